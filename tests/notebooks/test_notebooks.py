"""The notebooks: kept without outputs, and run from top to bottom on tiny models.

They are run as a user runs them, by a kernel, in a folder that is not the repository's. Only the
cell of settings gets other numbers, in a cell behind it, as papermill does it.
"""

import ast
import json
import os
import pathlib
import re
import zipfile
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from gophercite.weights.export import export_weights

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")

# Two steps of training, of models with a few thousand parameters.
TINY: dict[str, Any] = {
    "TRAIN_STEPS": 2,
    "BATCH_SIZE": 8,
    "train.evaluate_every": 2,
    "train.save_every": 2,
    "linear_warmup_cosine.warmup_steps": 1,
    "TransformerConfig.d_model": 16,
    "TransformerConfig.num_layers": 1,
    "TransformerConfig.d_ff": 16,
    "TransformerConfig.num_heads": 2,
    "TransformerConfig.head_dim": 8,
    "TransformerConfig.scale_embeddings": False,  # a Llama, then, which can be exported
    "validation/Input.limit": 16,
    "validation/ComparisonInput.limit": 16,
}
TINY_RL = TINY | {
    "A2CLearner.microbatches": 1,
    "A2CLearner.value_width": 8,
    "validation/RolloutInput.limit": 16,
    "EarlyStopping.limits": {},
    "Answers.questions": 4,
    "Answers.batch_size": 4,
    "MAX_TOKENS": 24,
    "train.profile_step": None,
}


def source_of(path: pathlib.Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def settings_cell(notebook: nbformat.NotebookNode) -> int:
    (place,) = (
        place
        for place, cell in enumerate(notebook.cells)
        if "parameters" in cell.metadata.get("tags", [])
    )
    return place


def run(name: str, folder: pathlib.Path, **settings: object) -> nbformat.NotebookNode:
    """The notebook with its outputs; a cell that fails, fails the test."""
    notebook = source_of(ROOT / "notebooks" / f"{name}.ipynb")
    place = settings_cell(notebook)
    tree = ast.parse(notebook.cells[place].source)
    known = {node.targets[0].id for node in tree.body}  # type: ignore[attr-defined]
    assert settings.keys() <= known
    lines = [f"{setting} = {value!r}" for setting, value in settings.items()]
    notebook.cells.insert(place + 1, nbformat.v4.new_code_cell("\n".join(lines)))
    folder.mkdir(exist_ok=True)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}})
    environment = {"IPYTHONDIR": str(folder / ".ipython")}
    client.execute(env=os.environ | environment)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):  # of a script that exits, %run only shows the error
            assert output.output_type != "error", (cell.source, output)
    return notebook


def shown(notebook: nbformat.NotebookNode, kind: str) -> list[str]:
    """What the cells show, of one kind: "text/html", "image/png", "text/plain" or a stream."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    if kind in ("stdout", "stderr"):
        return [output.text for output in outputs if output.get("name") == kind]
    return [output.data[kind] for output in outputs if kind in output.get("data", {})]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_sources_are_kept_without_outputs(path: pathlib.Path) -> None:
    notebook = source_of(path)
    nbformat.validate(notebook)
    assert notebook.nbformat == 4
    assert notebook.cells[0].source.startswith("# ")
    settings_cell(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
            assert len(cell.source.splitlines()) <= 35, "a cell has one thought"
        else:
            for target in LINK.findall(cell.source):
                assert "://" in target or (path.parent / target).exists(), target


def test_every_notebook_is_described() -> None:
    page = (ROOT / "docs" / "notebooks.md").read_text("utf-8")
    assert all(f"(../notebooks/{path.name})" in page for path in NOTEBOOKS)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, nbformat.NotebookNode]:
    folder = tmp_path_factory.mktemp("sft_to_rl")
    random = {"INITIAL_CHECKPOINT": None}
    notebook = run(
        "sft_to_rl",
        folder,
        SFT=TINY | random | {"Run.answers": None},
        REWARD=TINY | random,
        RL=TINY_RL,
        QUESTIONS=4,
        SAMPLES=2,
    )
    return folder / "runs" / "sft_to_rl", notebook


def test_from_supervised_to_reinforcement_learning(
    learnt: tuple[pathlib.Path, nbformat.NotebookNode],
) -> None:
    folder, notebook = learnt
    assert len(shown(notebook, "image/png")) == 5  # three trainings, two figures of the report
    tables = [page for page in shown(notebook, "text/html") if "<table>" in page]
    assert any("wrong claim" in table for table in tables)
    assert any("SFT, first answer" in table and "RL, top@2" in table for table in tables)
    assert any("distinct answers of 2" in table for table in tables)
    assert sum("<mark>" in page for page in shown(notebook, "text/html")) == 2
    assert "| SFT, first answer" in "".join(shown(notebook, "stdout"))
    assert (folder / "report.html").exists()


def test_ask_your_documents(
    learnt: tuple[pathlib.Path, nbformat.NotebookNode], tmp_path: pathlib.Path
) -> None:
    """From a checkpoint as others publish them: the one that was just trained, exported."""
    export_weights(learnt[0] / "sft", tmp_path / "checkpoint")
    notebook = run(
        "ask_your_documents",
        tmp_path / "work",
        CHECKPOINT=str(tmp_path / "checkpoint"),
        REWARD_MODEL=str(learnt[0] / "rm"),
        FEW_SHOT=1,
        SAMPLES=4,
        LABELLED=3,
    )
    first, samples, edited = shown(notebook, "text/html")
    assert "<mark>" in first
    assert 1 + 1 <= samples.count("<tr>") <= 1 + 4
    assert re.search("moved: |changed: |missing: ", edited)
    assert len(shown(notebook, "image/png")) == 1
    printed = "".join(shown(notebook, "stdout"))
    assert "labelled answers are too few to promise 90%" in printed
    assert re.search(r"^exact \d+ \d+ [0-9a-f]{64}$", printed, re.MULTILINE)


def test_read_a_report(tmp_path: pathlib.Path) -> None:
    notebook = run("read_a_report", tmp_path)
    assert len(shown(notebook, "image/png")) == 3
    pages = shown(notebook, "text/html")
    assert "<mark>" in pages[0]
    assert "✗ supported" in pages[1]
    assert "faults: " in pages[2]
    assert "is not here" in pages[2]
    assert any("RL minus SFT" in page for page in pages)
    assert {"report.md", "report.html"} <= {path.name for path in tmp_path.iterdir()}


def test_the_bundled_results_name_no_machine() -> None:
    """They are of `launch/miniature.sh`, and its folder is runs/miniature by default."""
    with zipfile.ZipFile(ROOT / "notebooks" / "miniature_results.zip") as bundled:
        for name in bundled.namelist():
            assert not name.startswith(("/", "..")), name
            assert b'"/' not in bundled.read(name), name
        summary = json.loads(bundled.read("answers/sft_0/test.json"))
    assert summary["run"]["model"] == "runs/miniature/sft"
