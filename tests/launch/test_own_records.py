"""Fine-tuning on a folder of one's own records, as docs/own_records.md walks through it."""

import json
import pathlib
import re
import shlex

import pytest
import train

from data_pipelines.own_records import OwnRecordsSource
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite.model_folders.folder import Model, load_model, save_model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from tests.drawn_parameters import drawn_parameters

pytestmark = pytest.mark.usefixtures("two_devices")

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "own_records.md").read_text()


def block(kind: str) -> str:
    (found,) = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    return found


@pytest.fixture
def here(tmp_path, monkeypatch, cache) -> pathlib.Path:
    """A working folder with the page's records, and a model that trains in seconds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").symlink_to(cache.partition("=")[2])
    exec(block("python"), {})
    config = TransformerConfig(
        vocab_size=2048, d_model=16, num_layers=1, num_heads=2, head_dim=8, d_ff=16,
        position="rope", dtype="float32",
    )  # fmt: skip
    transformer = Transformer(config)
    params = drawn_parameters(transformer)
    save_model(tmp_path / "tiny", Model(transformer, params, bundled_vocabulary(), {}))
    return tmp_path


def flags(here: pathlib.Path, *more: str) -> list[str]:
    command = shlex.split(block("bash").replace("\\\n", " "))
    assert command[:2] == ["python", "launch/train.py"]
    own = [f"--gin.INITIAL_CHECKPOINT={here / 'tiny'}", "--gin.SupervisedLearner.microbatches=1"]
    own += ["--gin.BATCH_SIZE=2", "--gin.validation/Input.batch_size=2"]
    return [*command[2:], *own, f"--compilation_cache={here / 'cache'}", *more]


def test_the_page_s_run_says_what_it_uses_trains_and_leaves_a_model(here, capsys):
    assert train.main(flags(here)) == 0
    said = capsys.readouterr().err
    expected = block("text").splitlines()
    assert said.splitlines()[: len(expected)] == expected
    assert "WARNING" not in said
    assert load_model(here / "runs" / "mine").transformer.config.d_model == 16
    assert "![metrics by step](curves.png)" in (here / "runs" / "mine" / "report.md").read_text()


def test_what_can_t_be_trained_on_is_refused_in_one_line_before_the_run_begins(here, capsys):
    folder = here / "data" / "mine"
    good = (folder / "records.jsonl").read_text()
    wrong = {
        "": "has no good record in data/mine/records.jsonl",
        '{"question": 1}\nnonsense\n': "records.jsonl:1: field ",
        good.splitlines()[0] + "\n": "all 1 good records belong to one question",
    }
    for content, message in wrong.items():
        (folder / "records.jsonl").write_text(content)
        assert train.main(flags(here)) == 1
        (line,) = [x for x in capsys.readouterr().err.splitlines() if "warms up" not in x]
        assert line.startswith("train: ")
        assert message in line
    (folder / "records.jsonl").write_text(good)
    assert train.main(flags(here, "--gin.LENGTH=16")) == 1
    assert "fits length=16 (one has " in capsys.readouterr().err
    (folder / "records.jsonl").unlink()
    assert train.main(flags(here)) == 1
    assert "data/mine: has no file of records to train on" in capsys.readouterr().err
    folder.rmdir()
    assert train.main(flags(here)) == 1
    assert "data/mine: there is no such folder of records" in capsys.readouterr().err
    assert not (here / "runs").exists()


def questions(source: OwnRecordsSource, split: str) -> set[str]:
    texts = (source.record(split, index)[1] for index in range(source.count(split)))
    return {json.loads(text)["question_id"] for text in texts}


@pytest.mark.usefixtures("uncompiled")
def test_a_set_that_is_too_small_for_its_share_is_said_to_be_so(here, capsys):
    """The question that is held out instead may go to training when others come."""
    said = "only one question is held out, as a share of 0.001 would hold out none; it may move to"
    assert train.main(flags(here, "--dry_run", "--gin.add_own_records.held_out=0.001")) == 0
    assert capsys.readouterr().err.count(said) == 1
    assert train.main(flags(here, "--dry_run", "--gin.add_own_records.held_out=0.3")) == 0
    assert said[:25] not in capsys.readouterr().err


def test_questions_are_held_out_whole_and_stay_so_when_more_come(here):
    file = here / "data" / "mine" / "records.jsonl"
    few = OwnRecordsSource(file.parent, 0.3)
    train_before, held_before = questions(few, "train"), questions(few, "validation")
    assert held_before
    assert not train_before & held_before
    line = json.loads(file.read_text().splitlines()[0])
    with file.open("a") as more:
        for number in range(300):
            more.write(json.dumps(line | {"question_id": f"new{number % 150}"}) + "\n")
    many = OwnRecordsSource(file.parent, 0.3)
    train_after, held_after = questions(many, "train"), questions(many, "validation")
    assert train_before <= train_after
    assert held_before <= held_after
    assert not train_after & held_after
    assert 0.2 < len(held_after) / (len(held_after) + len(train_after)) < 0.4

    (file.parent / "my_validation.jsonl").write_text(json.dumps(line) + "\n")
    named = OwnRecordsSource(file.parent)
    assert questions(named, "validation") == {"q0"}
    assert questions(named, "train") == train_after | held_after
