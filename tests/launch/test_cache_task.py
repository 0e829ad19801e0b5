"""The command that caches a run's tasks, from gin files to the batches of a run."""

import importlib.util
import itertools
import pathlib
import signal
import subprocess
import sys
import time

import cache_task
import cache_workers
import configuration
import gin_files
import numpy as np
import pytest

from data_pipelines.sample_world.convert import to_rated_answer
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER
from data_pipelines.sample_world.world import World
from gophercite import records

BEAM = pytest.mark.skipif(
    importlib.util.find_spec("apache_beam") is None, reason="needs Apache Beam (the extra 'beam')"
)
ROOT = pathlib.Path(__file__).parents[2]
GIN = """
include "supervised.gin"
MIXTURE_OR_TASK_NAME = @add_rated_answers()
add_rated_answers.name = "own"
add_rated_answers.vocabulary = "{vocabulary}"
add_rated_answers.files = @split_files()
split_files.folder = "{folder}"
split_files.splits = ("train", "validation")
BATCH_SIZE = 2
LENGTH = 512
"""
CACHED = {
    "MIXTURE_OR_TASK_NAME": "@add_cached()",
    "add_cached.name": "own",
    "add_cached.vocabulary": str(VOCABULARY_FOLDER),
}


@pytest.fixture
def gin_file(tmp_path):
    world = World(good_fraction=1.0)
    for split, numbers in (("train", range(20)), ("validation", range(20, 26))):
        answers = [to_rated_answer(world.rated_answer(i)) for i in numbers]
        records.write(tmp_path / f"rated_answers_{split}.jsonl", answers)
    path = tmp_path / "own.gin"
    path.write_text(GIN.format(vocabulary=VOCABULARY_FOLDER, folder=tmp_path))
    return str(path)


def batches(gin_file, bindings):
    gin_files.load([gin_file], bindings, unset=[])
    train, validation = configuration.inputs()
    return [*itertools.islice(train.batches(3), 4), *validation.one_pass()]


@pytest.mark.parametrize("workers", [["--processes=2"], pytest.param(["--beam="], marks=BEAM)])
def test_a_run_has_the_same_batches_from_the_cache(gin_file, tmp_path, capsys, workers):
    wanted = batches(gin_file, {})
    output = str(tmp_path / "cached")
    flags = ["--output", output, *workers]
    assert cache_task.main([f"--gin_file={gin_file}", *flags]) == 0
    said = capsys.readouterr().out
    assert "train: 20 examples\n" in said
    assert "validation: 6 examples\n" in said
    for path in tmp_path.glob("rated_answers_*"):
        path.unlink()
    found = batches(gin_file, {**CACHED, "add_cached.folder": output})
    for ours, theirs in zip(found, wanted, strict=True):
        for name in theirs:
            np.testing.assert_array_equal(ours[name], theirs[name])


def test_a_worker_writes_the_shard_that_it_is_asked_for(gin_file, tmp_path):
    configured = cache_workers.Configuration((gin_file,), (), ())
    shards = {"folder": str(tmp_path / "cached"), "key": "key", "records": 20, "each": 8}
    work = cache_workers.Work(configured, "own", "train", shards)
    assert [cache_workers.write(work, number) for number in (2, 0)] == [(2, 4), (0, 8)]


def test_what_cannot_be_cached_is_named(gin_file, tmp_path, capsys):
    arguments = [f"--gin_file={gin_file}", "--output", str(tmp_path / "cached")]
    world = "--gin.MIXTURE_OR_TASK_NAME=sample_world"
    assert cache_task.main([*arguments, world]) == 1
    assert "'sample_world' generates records without end" in capsys.readouterr().err
    assert cache_task.main([*arguments, "--gin.split_files.folder=nowhere"]) == 1
    assert "nowhere/rated_answers_" in capsys.readouterr().err
    (tmp_path / "rated_answers_train.jsonl").write_text("{}\n")
    assert cache_task.main(arguments) == 1
    assert "has no good record" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ("", [], "cache_task: the gin files describe no run: nothing sets Run.input\n"),
        ("", ["--gin.MODEL_DIR=x"], "--gin.MODEL_DIR: the gin files use no macro, so they "),
        ("include 'supervised.gin'\n", ["--gin.Run.input=3"], "--gin.Run.input = 3: must be @…()"),
        (
            "include 'supervised.gin'\n",
            ["--gin.Run.evaluations=None"],
            ".evaluations = None: must ",
        ),
        ("include 'supervised.gin'\n", ["--gin.LENGTH=x"], "--gin.LENGTH = 'x': must be a whole "),
    ],
)
def test_what_describes_no_inputs_is_named(tmp_path, capsys, text, flags, said):
    (tmp_path / "run.gin").write_text(text)
    arguments = [f"--gin_file={tmp_path / 'run.gin'}", f"--output={tmp_path / 'cached'}"]
    assert cache_task.main([*arguments, *flags]) == 1
    assert said in capsys.readouterr().err


def test_an_output_that_is_a_file_is_refused_before_any_work(gin_file, tmp_path, capsys):
    for output, said in ((gin_file, f"--output {gin_file}: is a file"), ("", "--output is empty")):
        with pytest.raises(SystemExit):
            cache_task.main([f"--gin_file={gin_file}", f"--output={output}"])
        assert said in capsys.readouterr().err


def test_ctrl_c_while_libraries_load_is_no_traceback(gin_file, tmp_path):
    command = [sys.executable, "launch/cache_task.py", f"--gin_file={gin_file}"]
    with subprocess.Popen(
        [*command, f"--output={tmp_path / 'cached'}"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as process:
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "cache_task: stopped; the same command goes on where it was\n"


@pytest.mark.skipif(importlib.util.find_spec("apache_beam") is not None, reason="Beam is here")
def test_without_beam_the_message_says_what_to_install(gin_file, capsys):
    with pytest.raises(SystemExit):
        cache_task.main([f"--gin_file={gin_file}", "--output=cached", "--beam="])
    assert "--beam needs Apache Beam: pip install -e '.[beam]'" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["processes", "shard_mb"])
def test_none_at_all_is_refused(gin_file, capsys, flag):
    with pytest.raises(SystemExit):
        cache_task.main([f"--gin_file={gin_file}", "--output=cached", f"--{flag}=0"])
    assert f"--{flag} 0: must be at least 1" in capsys.readouterr().err
