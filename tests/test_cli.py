"""The command's results, exit statuses and messages, and what it imports."""

import gzip
import json
import pathlib
import subprocess
import sys

import jax
import pytest

from gophercite import cli
from gophercite.model_folders.folder import Model, describe_run, save_model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.vocabularies import Vocabulary, train_sentencepiece
from tests.drawn_parameters import drawn_parameters

GOOD = '{"id": "d1", "title": "Aldgate", "text": "Aldgate lies on the river Orm."}\n'
BAD = '{"id": "d2", "title": 7, "text": "x"}\n'
CONFIG = TransformerConfig(
    vocab_size=320, d_model=8, num_layers=2, num_heads=2, head_dim=4, position="rope"
)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return train_sentencepiece([f"Town {i} lies on the river Orm." for i in range(200)], 320)


def test_validate_good_file(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_text(GOOD)
    assert cli.main(["validate", str(path), "--kind", "documents"]) == 0
    assert capsys.readouterr().out == "1 record read, 0 skipped\n"


def test_validate_names_file_line_and_field(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_text(GOOD + BAD)
    assert cli.main(["validate", str(path), "--kind", "documents", "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    assert (result["read"], result["skipped"]) == (1, 1)
    assert result["errors"][0] | {"problem": ""} == {
        "file": str(path),
        "line": 2,
        "field": "title",
        "problem": "",
    }
    assert cli.main(["validate", str(path), "--kind", "documents"]) == 1
    assert f"{path}:2: field 'title'" in capsys.readouterr().out


def test_info_of_model_folder(
    tmp_path: pathlib.Path, vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    transformer = Transformer(CONFIG)
    params = drawn_parameters(transformer)
    folder = tmp_path / "model"
    save_model(folder, Model(transformer, params, vocabulary, {"source": "a test"}))
    assert cli.main(["info", str(folder), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["parameters"] == sum(x.size for x in jax.tree.leaves(params))
    assert result["architecture"]["d_model"] == 8
    assert result["provenance"] == {"source": "a test"}
    assert result["files"] == ["parameters.safetensors"]
    assert cli.main(["info", str(folder)]) == 0
    assert "d_model: 8" in capsys.readouterr().out


def test_info_of_run_folder(
    tmp_path: pathlib.Path, vocabulary: Vocabulary, capsys: pytest.CaptureFixture[str]
) -> None:
    provenance = {"\x1b[2J\x9b1m": "\x9b31m\u202e"}  # what controls terminals
    describe_run(tmp_path, Transformer(CONFIG), vocabulary, provenance)
    assert cli.main(["info", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["checkpoints"] == []
    assert result["best_checkpoint"] is None
    assert result["provenance"] == provenance
    assert cli.main(["info", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert r'  \u001b[2J\u009b1m: "\u009b31m\u202e"' in shown
    assert shown.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "arguments",
    [["info", "nowhere"], ["validate", "nowhere.jsonl", "--kind", "questions"]],
    ids=lambda a: a[0],
)
def test_failure_is_one_line_on_stderr(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"gophercite {arguments[0]}: ")
    assert captured.err.count("\n") == 1
    assert "nowhere" in captured.err


def test_validate_goes_on_after_a_file_that_can_not_be_read(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = b'{"id": "a", "title": "t", "text": "x"}\n'
    files = {
        "cut.jsonl.gz": gzip.compress(b"[]\n" + good * 9)[:-9],
        "empty.jsonl": b"\n",
        "bad.jsonl": b"{}\n",
        "good.jsonl": good,
    }
    for name, text in files.items():
        (tmp_path / name).write_bytes(text)
    paths = [str(tmp_path / name) for name in files]
    for flags in ([], ["--json"]):
        assert cli.main(["validate", *paths, "--kind", "documents", *flags]) == 1
        said = capsys.readouterr()
        assert "empty.jsonl: holds no records\n" in said.err
        assert "cut.jsonl.gz:" in said.err
        assert "damaged here" in said.err
        assert said.err.count("\n") == 1
        if flags:
            assert paths[2] in [each["file"] for each in json.loads(said.out)["errors"]]
        else:
            assert "bad.jsonl:1: field 'id'" in said.out
            assert "cut.jsonl.gz:1: expected an object" in said.out


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["validate", "x"], ["info"]], ids=str)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(arguments)
    assert raised.value.code == 2


def imported_by(program: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running a program."""
    report = "; import sys; print('\\n' + '\\n'.join(sys.modules), file=sys.stderr)"
    result = subprocess.run(
        [sys.executable, "-c", program + report], capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in result.stderr.splitlines()}


def test_help_imports_nothing_heavy() -> None:
    program = """
from gophercite import cli
try:
    cli.main(["--help"])
except SystemExit:
    pass
0"""
    loaded = imported_by(program)
    assert "gophercite" in loaded
    assert not loaded & {"jax", "flax", "numpy", "orbax", "sentencepiece", "tensorflow", "seqio"}


def test_package_imports_nothing_heavy() -> None:
    loaded = imported_by("import gophercite")
    assert "gophercite" in loaded
    assert not loaded & {"jax", "flax", "numpy", "tensorflow"}


def test_whole_library_never_imports_tensorflow() -> None:
    """Nor does `ask` import what only few answers need."""
    program = """
import gc, importlib, pkgutil, sys, gophercite
gc.disable()  # what is imported stays
from gophercite.answering import declining, loading
from gophercite.cli import ask
assert "jax" in sys.modules and not {"scipy.linalg", "scipy.special"} & sys.modules.keys()
for module in pkgutil.walk_packages(gophercite.__path__, "gophercite."):
    importlib.import_module(module.name)
0"""
    loaded = imported_by(program)
    assert {"gophercite", "jax"} <= loaded
    assert not loaded & {"tensorflow", "tensorflow_datasets", "tensorflow_text", "seqio"}
