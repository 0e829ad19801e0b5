"""launch/train.py: what it says of wrong settings, and that it trains, stops and goes on."""

import dataclasses
import errno
import inspect
import io
import json
import os
import re
import resource
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import configuration
import dry_run
import gin
import gin_files
import pytest
import seqio
import setting_names
import train
from tiny_runs import TINY

from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER
from gophercite import interruption
from gophercite.cli import processes
from gophercite.model_folders.folder import load_model
from gophercite.models.config import TransformerConfig
from gophercite.monitoring.metrics import read_metrics
from gophercite.storage import StorageError
from tests.long_forms import LONG

pytestmark = pytest.mark.usefixtures("two_devices")

ROOT = Path(__file__).parents[2]
SFT = "gin_configs/sft_sample_world.gin"
PRETRAIN = "gin_configs/pretrain_sample_world.gin"


def arguments(file: str, **bindings: str) -> list[str]:
    return [f"--gin_file={file}", *[f"--gin.{name}={value}" for name, value in bindings.items()]]


WRONG = {
    "a missing file": (
        ["--gin_file=gin_configs/sft_sample_wrld.gin"],
        "there is no gin file 'gin_configs/sft_sample_wrld.gin'; "
        "did you mean gin_configs/sft_sample_world.gin?",
    ),
    "a macro that must be set": (
        arguments(PRETRAIN),
        "MODEL_DIR is not set: add --gin.MODEL_DIR=VALUE",
    ),
    "a mistyped macro": (
        arguments(PRETRAIN, MODEL_DIR="x", TRAIN_STEP="7"),
        "--gin.TRAIN_STEP: nothing uses a macro of this name; did you mean TRAIN_STEPS?",
    ),
    "a mistyped scope": (
        arguments(PRETRAIN, **{"MODEL_DIR": "x", "validaton/Input.pack": "False"}),
        "--gin.validaton/Input.pack: nothing is configured in scope 'validaton'; did you mean "
        "validation?",
    ),
    "a mistyped parameter": (
        arguments(PRETRAIN, **{"MODEL_DIR": "x", "train.log_evry": "7"}),
        "--gin.train.log_evry: train has no parameter 'log_evry'; did you mean train.log_every?",
    ),
    "a mistyped object": (
        arguments(PRETRAIN, **{"MODEL_DIR": "x", "trian.log_every": "7"}),
        "--gin.trian.log_every: nothing is named 'trian'; did you mean train?",
    ),
    "a mistyped reference": (
        arguments(PRETRAIN, **{"MODEL_DIR": "x", "SupervisedLearner.optimizer": "@adafacto()"}),
        "--gin.SupervisedLearner.optimizer: nothing is named 'adafacto'; did you mean adafactor?",
    ),
    "a mistyped use of a macro": (
        arguments(PRETRAIN, **{"MODEL_DIR": "x", "train.total_steps": "%TRAIN_STEP"}),
        "--gin.train.total_steps: nothing sets %TRAIN_STEP; did you mean %TRAIN_STEPS?",
    ),
    "a missing file that is like no other": (
        ["--gin_file=runs/my_run.gin"],
        "there is no gin file 'runs/my_run.gin'\n",
    ),
    "a field passed on": (
        arguments(
            PRETRAIN,
            **{
                "MODEL_DIR": "x",
                "Transformer.config": "@gopher()",
                "gopher.size": "44m",
                "gopher.num_layer": "3",
            },
        ),
        "--gin.gopher.num_layer: gopher has no parameter 'num_layer'; "
        "did you mean gopher.num_layers?",
    ),
    "a value of the wrong kind": (
        arguments(PRETRAIN, MODEL_DIR="x", TRAIN_STEPS="ten"),
        "--gin.TRAIN_STEPS = 'ten': must be a whole number (train.total_steps)",
    ),
    "an unknown task": (
        arguments(PRETRAIN, MODEL_DIR="x", MIXTURE_OR_TASK_NAME="sample_wrld"),
        "--gin.MIXTURE_OR_TASK_NAME: there is no task or mixture 'sample_wrld'; "
        "did you mean sample_world?",
    ),
}
# These are found when the parts of a run are made.
WRONG_VALUES = {
    "a value out of range": (
        arguments(PRETRAIN, MODEL_DIR="x", TRAIN_STEPS="0"),
        "--gin.TRAIN_STEPS = 0: must be a whole number, at least 1 (TrainSettings.total_steps)",
    ),
    "a seed that is taken for another": (  # the random keys of 2**32 and of 0 are the same
        arguments(PRETRAIN, MODEL_DIR="x", SEED="4294967296"),
        "--gin.SEED = 4294967296: must be a whole number, 0 to 4294967295 (TrainSettings.seed)",
    ),
    "no checkpoint to keep": (
        arguments(PRETRAIN, **{"MODEL_DIR": "x", "train.keep_newest": "0"}),
        "--gin.train.keep_newest = 0: must be a whole number, at least 1 (TrainSettings.keep",
    ),
    "microbatches that a batch has no rows for": (
        arguments(PRETRAIN, **{"MODEL_DIR": "x", "SupervisedLearner.microbatches": "3"}),
        "--gin.SupervisedLearner.microbatches = 3: must divide the 16 rows of a batch",
    ),
    "no microbatches": (
        arguments(PRETRAIN, **{"MODEL_DIR": "x", "SupervisedLearner.microbatches": "0"}),
        "--gin.SupervisedLearner.microbatches = 0: must be a whole number, at least 1",
    ),
    "a frozen part that the model has not": (
        arguments(PRETRAIN, **{"MODEL_DIR": "x", "SupervisedLearner.frozen_parts": "('embeds',)"}),
        "--gin.SupervisedLearner.frozen_parts = ('embeds',): the model has no part 'embeds'; ",
    ),
    "no model to start from": (
        arguments(PRETRAIN, MODEL_DIR="x", INITIAL_CHECKPOINT="no/such/folder"),
        "no/such/folder: not a model folder: there is no model.json in it",
    ),
    "a vocabulary that does not fit": (
        arguments(PRETRAIN, **{"MODEL_DIR": "x", "TransformerConfig.vocab_size": "100"}),
        "has a vocabulary of 2048 tokens, but the model has 100",
    ),
    "a batch size that the input does not have": (
        arguments(PRETRAIN, **{"MODEL_DIR": "x", "train.batch_size": "32"}),
        "--gin.train.batch_size = 32: the input's batches have 16 rows; set both by BATCH_SIZE",
    ),
    "a home that the shell did not put in": (
        arguments(PRETRAIN, MODEL_DIR="~/runs/x"),
        "--gin.MODEL_DIR = '~/runs/x': the shell did not expand ~; write $HOME instead",
    ),
    "a set with a name of the run's own": (
        arguments(
            PRETRAIN, **{"MODEL_DIR": "x", "Run.evaluations": "{'train': @validation/Input()}"}
        ),
        "an evaluation set is named 'train', as other metrics of a run are: give it another name",
    ),
    "a batch that the mesh can't cut": (
        arguments(PRETRAIN, MODEL_DIR="x", BATCH_SIZE="15"),
        "a batch of 15 rows can't be divided evenly among the 2 devices",
    ),
}


@pytest.mark.parametrize("case", WRONG_VALUES)
def test_a_wrong_value_is_answered_in_one_line(case, capsys):
    flags, message = WRONG_VALUES[case]
    assert train.main(flags) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("train: ")
    assert message in line


ANSWER_EACH = """
import json, sys
import train
for flags in json.load(sys.stdin):
    train.main(flags)
loaded = {"jax", "tensorflow", "seqio", "flax", "orbax", "numpy"} & sys.modules.keys()
sys.exit(f"loaded: {sorted(loaded)}")
"""


def test_a_wrong_name_is_answered_in_one_line_before_anything_is_loaded():
    command = [sys.executable, "-c", ANSWER_EACH]
    everything = json.dumps([flags for flags, _ in WRONG.values()])
    path = os.pathsep.join([str(ROOT), str(ROOT / "launch")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, input=everything, capture_output=True, text=True, env=environment
    )
    *lines, loaded = done.stderr.splitlines()
    assert loaded == "loaded: []"
    for line, (_, message) in zip(lines, WRONG.values(), strict=True):
        assert line.startswith("train: ")
        assert message in line + "\n"


def test_a_folder_where_one_stands_is_no_package_of_gins(tmp_path, monkeypatch):
    """Files include `models/…`, and a folder `models` may lie anywhere."""
    (tmp_path / "models").mkdir()
    without = [path for path in sys.path if not Path(path, "models").exists()]  # our tests' own
    monkeypatch.setattr(sys, "path", [str(tmp_path), *without])
    monkeypatch.delitem(sys.modules, "models", raising=False)
    assert len(gin_files.load([PRETRAIN], {"MODEL_DIR": "x"})) == 3


def test_names_are_read_from_the_sources_as_they_are():
    real = {
        name.split(".")[-1]: set(inspect.signature(known.wrapped).parameters) - {"changes"}
        for name, known in gin.config._REGISTRY.items()
        if name.startswith("gophercite.") and name != "gophercite.Evaluation"
    }
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    for family in ("gopher", "llama", "gemma", "model_config"):  # pass on what they are given
        real[family] |= fields
    read = {setting.name: set(setting.parameters) for setting in setting_names.read_settings()}
    assert read == real
    assert set(setting_names.read_tasks()) <= {
        *seqio.TaskRegistry.names(),
        *seqio.MixtureRegistry.names(),
    }


def test_a_wrong_name_in_a_file_is_answered_with_its_line(tmp_path, capsys):
    (tmp_path / "run.gin").write_text("include 'pretrain_sample_world.gin'\n\ntrain.log_evry = 3\n")
    assert train.main([f"--gin_file={tmp_path / 'run.gin'}", "--gin.MODEL_DIR=x"]) == 1
    assert "run.gin:3: train has no parameter 'log_evry'" in capsys.readouterr().err
    (tmp_path / "run.gin").write_text("include 'pretrain_sample_world.gin'\nTRAIN_STEP = 3\n")
    assert train.main(["--gin_file=run.gin", f"--gin_search_paths={tmp_path}", "--gin.MODEL_DIR=x"])
    message = capsys.readouterr().err
    assert f"TRAIN_STEP in {tmp_path / 'run.gin'}:2: " in message
    assert "did you mean TRAIN_STEPS?" in message
    use = "include 'pretrain_sample_world.gin'\n\nlinear_warmup_cosine.total_steps = %TRAIN_STEP\n"
    (tmp_path / "run.gin").write_text(use)
    assert train.main([f"--gin_file={tmp_path / 'run.gin'}", "--gin.MODEL_DIR=x"]) == 1
    message = capsys.readouterr().err
    assert "run.gin:3: nothing sets %TRAIN_STEP; did you mean %TRAIN_STEPS?" in message


@pytest.mark.parametrize(
    "macros",
    [
        {"TRAIN_STEPS": "%TRAIN_STEPS"},
        {"TRAIN_STEPS": "%LENGTH", "LENGTH": "%TRAIN_STEPS"},
        {"BATCH_SIZE": "%TRAIN_STEPS", "TRAIN_STEPS": "%TRAIN_STEPS"},  # leads into the circle
    ],
)
def test_a_macro_that_refers_to_itself_is_refused(macros):
    with pytest.raises(gin_files.ConfigurationError, match="refers to itself"):
        gin_files.load([PRETRAIN], {"MODEL_DIR": "x", **macros})


def test_a_path_with_a_folder_to_fill_in_needs_no_quotes():
    gin_files.load([PRETRAIN], {"MODEL_DIR": "{folder}/run"})
    assert gin.query_parameter("MODEL_DIR/macro.value") == "{folder}/run"


def test_a_macro_whose_only_use_is_replaced_is_no_mistake():
    gin_files.load([PRETRAIN], {"MODEL_DIR": "x", "Input.length": "64"})
    assert gin.query_parameter("Input.length") == 64


def test_an_argument_that_is_no_setting_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as stop:
        train.main([f"--gin_file={SFT}", "--TRAIN_STEPS=3"])
    assert stop.value.code == 2
    assert "settings are --gin.NAME=VALUE" in capsys.readouterr().err


# What runs include.
SHARED = {
    "supervised.gin",
    "reward.gin",
    "actor_critic.gin",
    "lora.gin",
    "rm_gopher.gin",
    "real_questions_documents.gin",
    "behaviour_cloning.gin",
    "bc_webgpt.gin",
    "reward_of_answers.gin",
    "rm_webgpt.gin",
    "ppo.gin",
    "ppo_webgpt.gin",
}
RUNS = {path.name for path in (ROOT / "gin_configs").glob("*.gin")} - SHARED


def text_with_includes(file: str) -> str:
    text = (ROOT / "gin_configs" / file).read_text()
    included = re.findall(r'^include "(.+)"$', text, re.MULTILINE)
    return "".join([text, *map(text_with_includes, included)])


@pytest.mark.parametrize("file", sorted(RUNS))
def test_every_run_s_file_is_complete_but_for_paths(file):
    paths = ["MODEL_DIR", "INITIAL_CHECKPOINT", "REWARD_MODEL", "VOCABULARY", "INDEX", "DATA_DIR"]
    paths += ["RECORDS", "SAMPLES", "TRAIN_FILES", "ELI5_FILE", "NQ_FILE", "VALIDATION_FILE"]
    paths += ["NQ", "ELI5", "SQUAD", "TRIVIA_QA", "FEVER"]
    paths += ["DEMONSTRATIONS", "COMPARISONS", "WORLD", "QUESTIONS", "HELD_OUT_QUESTIONS"]
    paths += ["VOCABULARY_SIZE"]  # of one's own vocabulary
    text = text_with_includes(file)
    used = set(re.findall(r"%(\w+)", text)) | {"MODEL_DIR"}
    bindings = {name: "a" for name in paths if name in used}
    if file.startswith("bc_webgpt_"):  # epochs of one's own demonstrations
        bindings["TRAIN_STEPS"] = "100"
    gin_files.load([f"gin_configs/{file}"], bindings)
    assert gin.query_parameter("%TRAIN_STEPS") > 0


def test_a_run_trains_goes_on_and_its_folder_is_a_model(tmp_path, cache, capsys, request):
    folder = Path(os.path.relpath(tmp_path / "run"))  # people give relative paths
    small = TINY | {"TransformerConfig.num_layers": "1", "SupervisedLearner.microbatches": "1"}
    flags = [*arguments(PRETRAIN, MODEL_DIR=str(folder), **small), "--gin.Run.evaluations={}"]
    assert train.main([*flags, cache]) == 0
    assert "TRAIN_STEPS = 2" in (folder / "config.gin").read_text()
    assert json.loads((folder / "model.json").read_text())["architecture"]["d_model"] == 16
    more = ["--gin.train.total_steps=3", "--gin.train.log_every=1"]  # of the same schedule
    capsys.readouterr()
    assert train.main([*flags, *more, cache]) == 0
    differ = "train.log_every = 1 (was 10), train.total_steps = 3 (was %TRAIN_STEPS)"
    said = capsys.readouterr().err.splitlines()
    assert f"train: other settings than at the last start: {differ}" in said
    steps = [line["step"] for line in read_metrics(folder) if line["split"] == "train"]
    assert steps == [1, 3]
    model = load_model(folder)
    assert model.transformer.config.d_model == 16
    assert model.vocabulary.decode(model.vocabulary.encode("It was built in 1874.")) == (
        "It was built in 1874."
    )
    # The parameters of another number of heads have the same shapes.
    capsys.readouterr()
    heads = ["--gin.TransformerConfig.num_heads=1", "--gin.TransformerConfig.head_dim=16"]
    assert train.main([*flags, "--gin.TRAIN_STEPS=4", *heads, cache]) == 1
    said = f"train: --gin.MODEL_DIR = {str(folder)!r}: its checkpoints are of a model with "
    assert f"{said}num_heads = 2, but this run's model has 1; " in capsys.readouterr().err
    faster = ["--gin.TransformerConfig.attention_block=32", "--dry_run"]  # no other model
    request.getfixturevalue("uncompiled")
    assert train.main([*flags, *faster, cache]) == 0


def test_a_metric_that_evaluations_don_t_report_is_answered_in_one_line(tmp_path, cache, capsys):
    small = TINY | {"TransformerConfig.num_layers": "1", "SupervisedLearner.microbatches": "1"}
    metric = {"train.best_metric": "eval/validation/acuracy", "train.best_mode": "max"}
    flags = arguments(PRETRAIN, MODEL_DIR=str(tmp_path / "run"), **small, **metric)
    assert train.main([*flags, cache]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    named = "train: TrainSettings.best_metric names 'eval/validation/acuracy', but evaluations"
    assert line == f"{named} report eval/validation/accuracy, eval/validation/loss, " + (
        "eval/validation/perplexity"
    )


def test_a_checkpoint_that_a_disk_refuses_is_one_line_without_tracebacks(
    tmp_path, cache, capsys, caplog
):
    small = TINY | {"TransformerConfig.num_layers": "1", "SupervisedLearner.microbatches": "1"}
    flags = arguments(PRETRAIN, MODEL_DIR=str(tmp_path / "run"), **small)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:  # more than a vocabulary, less than an embedding
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
        assert train.main([*flags, "--gin.Run.evaluations={}", cache]) == 69
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    said = capsys.readouterr().err
    assert said.splitlines()[-1].startswith("train: checkpoint 2 can't be saved in ")
    assert "Traceback" not in said
    assert not [each for each in caplog.records if each.exc_info]


def test_a_run_does_not_overwrite_a_model(tmp_path, cache, capsys):
    """`MODEL_DIR` is a name that one may take for the folder of the model to start from."""
    shutil.copytree(VOCABULARY_FOLDER.parent, tmp_path / "model")
    before = (tmp_path / "model" / "model.json").read_bytes()
    flags = arguments(PRETRAIN, **TINY, MODEL_DIR=str(tmp_path / "model"))
    assert train.main([*flags, cache]) == 1
    assert "model': this folder holds a model, which the run would" in capsys.readouterr().err
    assert (tmp_path / "model" / "model.json").read_bytes() == before
    file = tmp_path / "model" / "model.json"
    assert train.main([*arguments(PRETRAIN, **TINY, MODEL_DIR=str(file)), cache]) == 1
    said = f"--gin.MODEL_DIR = {str(file)!r}: is a file, but a run needs a folder"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "include 'gin_configs/models/small.gin'\n"])
def test_a_gin_file_that_describes_no_run_is_named_so(tmp_path, cache, capsys, text):
    (tmp_path / "own.gin").write_text(text)
    assert train.main([f"--gin_file={tmp_path / 'own.gin'}", cache]) == 1
    said = "train: nothing sets Run.settings (nor transformer, learner, initialisation, "
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_part_without_what_it_needs_is_named_as_one_types_it():
    with pytest.raises(gin_files.ConfigurationError) as refused, gin_files.one_line():
        gin.get_configurable("train")()
    assert str(refused.value).startswith("nothing sets train.model_dir")


def test_a_bucket_that_does_not_answer_may_do_so_later():
    """What gin builds reads models; a launcher tries again what is no fault of the settings."""

    def unreachable() -> NoReturn:
        raise StorageError("gs://b/x: the bucket can't be used: timeout\nmore")

    with pytest.raises(StorageError) as raised, gin_files.one_line():
        unreachable()
    assert str(raised.value) == "gs://b/x: the bucket can't be used: timeout"


def test_the_sets_of_a_run_may_be_named_by_a_macro():
    gin_files.load([PRETRAIN], {
        "MODEL_DIR": "x", "SETS": "{'held_out': @validation/Input()}", "Run.evaluations": "%SETS",
    })  # fmt: skip
    assert [each.split for each in configuration.inputs()] == ["train", "validation"]


def test_a_dry_run_shows_batch_parameters_and_memory():
    small = TINY | {"TransformerConfig.num_layers": "1", "SupervisedLearner.microbatches": "1"}
    gin_files.load([SFT], {**small, "MODEL_DIR": "x", "INITIAL_CHECKPOINT": "None"})
    out = io.StringIO()
    dry_run.show(configuration.build(), out)
    text = out.getvalue()
    assert "Answer:⟦ %<" in text
    assert "trained_layers/query" in text
    assert "temporaries (activations, gradients)" in text


def test_what_may_pass_has_a_status_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that a launcher knows what to try again."""

    def fails(*_: object) -> NoReturn:
        raise processes.JoinError("nobody came")

    monkeypatch.setattr(processes, "join", fails)
    assert train.main(arguments(SFT, MODEL_DIR=str(tmp_path))) == 69
    assert capsys.readouterr().err == "train: nobody came\n"


@pytest.mark.parametrize(
    ("number", "status"),
    [(errno.ENOSPC, 69), (errno.ENAMETOOLONG, 1), (errno.EROFS, 1), (errno.EEXIST, 1)],
)
def test_what_another_try_does_not_mend_has_the_status_of_a_refusal(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
    status: int,
) -> None:
    def fails(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number), "runs/x")

    monkeypatch.setattr(processes, "join", fails)
    assert train.main(arguments(SFT, MODEL_DIR=str(tmp_path))) == status
    assert capsys.readouterr().err.startswith("train: runs/x: ")


@LONG  # test_processes.py has those that never come, and the test above the status
def test_a_process_that_others_do_not_join_ends_with_a_line(tmp_path: Path) -> None:
    command = [sys.executable, train.__file__, f"--gin_file={SFT}", f"--gin.MODEL_DIR={tmp_path}"]
    command += ["--coordinator_address=localhost:1", "--num_processes=2", "--process_id=1"]
    command += ["--join_timeout=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 69, done.stderr
    message = "train: process 1 of 2: not all processes have joined at localhost:1 within 1 s"
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_processes_that_can_t_find_one_another_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GCE_METADATA_IP", "127.0.0.1:9")
    flags = [f"--gin_file={SFT}", f"--gin.MODEL_DIR={tmp_path}", "--distributed", "--process_id=0"]
    assert train.main(flags) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("train: can't find the other processes")


@pytest.fixture
def _heard_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a command does about signals ends with the test."""
    monkeypatch.setattr(interruption._Terminal, "stderr", interruption._Terminal.stderr)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    signal.set_wakeup_fd(-1)
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def _broken_task() -> Iterator[None]:
    """A task named `broken`, whose reader is."""

    def read(split: str, shuffle_files: bool, seed: int | None = None) -> NoReturn:
        raise KeyError("nothing")

    source = seqio.FunctionDataSource(read, splits=["train", "validation"])
    features = seqio.TaskRegistry.get("sample_world").output_features
    seqio.TaskRegistry.add("broken", source, preprocessors=[], output_features=features)
    yield
    seqio.TaskRegistry.remove("broken")


@pytest.mark.usefixtures("_broken_task", "_heard_as_before")
def test_an_error_of_the_program_is_not_taken_for_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run as a command is, but in this process."""
    bindings = TINY | {"MIXTURE_OR_TASK_NAME": "broken", "INITIAL_CHECKPOINT": "None"}
    flags = arguments(SFT, MODEL_DIR=str(tmp_path / "run"), **bindings)
    monkeypatch.setattr(sys, "argv", [train.__file__, *flags])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(train.__file__, run_name="__main__")
    assert end.value.code == 70
    assert "KeyError: 'nothing'" in capsys.readouterr().err
