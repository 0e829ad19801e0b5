"""The notebooks: kept without outputs, and run from top to bottom on tiny models.

They are run as a user runs them, by a kernel, in a folder that is not the repository's. Only the
cell of settings gets other numbers, in a cell behind it, as papermill does it. All have one kernel,
which imports JAX and the rest once, and forgets a notebook's names before the next.
"""

import ast
import asyncio
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient

from gophercite.monitoring.metrics import read_metrics
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


@pytest.fixture(scope="module")
def kernel() -> Iterator[AsyncKernelManager]:
    manager = AsyncKernelManager()  # is started by whoever first runs a notebook
    yield manager
    asyncio.run(manager.shutdown_kernel(now=True))


def run(
    kernel: AsyncKernelManager, name: str, folder: pathlib.Path, **settings: object
) -> nbformat.NotebookNode:
    """The notebook with its outputs; a cell that fails, fails the test."""
    notebook = source_of(ROOT / "notebooks" / f"{name}.ipynb")
    place = settings_cell(notebook)
    tree = ast.parse(notebook.cells[place].source)
    known = {node.targets[0].id for node in tree.body}  # type: ignore[attr-defined]
    assert settings.keys() <= known
    lines = [f"{setting} = {value!r}" for setting, value in settings.items()]
    notebook.cells.insert(place + 1, nbformat.v4.new_code_cell("\n".join(lines)))
    # As our commands do, which import what notebooks import.
    rarely = "import gc\ngc.set_threshold(400_000, 20, 100)"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"{rarely}\n%reset -f\n%cd -q {folder}"))
    folder.mkdir(exist_ok=True)
    environment = {"IPYTHONDIR": str(folder / ".ipython")}
    NotebookClient(notebook, kernel, timeout=600).execute(env=os.environ | environment)
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


def code_with(name: str, *parts: str) -> str:
    """A notebook's code cells that hold one of these parts."""
    cells = source_of(ROOT / "notebooks" / f"{name}.ipynb").cells
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    return "\n".join(source for source in sources if any(part in source for part in parts))


def in_ipython(code: str, folder: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    """Runs code with magics as a script of IPython's, which starts faster than a kernel."""
    (folder / "code.ipy").write_text(code)
    return subprocess.run(
        [sys.executable, "-m", "IPython", "--colors=nocolor", "code.ipy"],
        cwd=folder,
        env=os.environ | {"IPYTHONDIR": str(folder / ".ipython")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_folders_may_have_spaces(tmp_path: pathlib.Path) -> None:
    """Colab keeps notebooks on Drive in "Colab Notebooks"."""
    launch = tmp_path / "Colab Notebooks" / "launch"
    launch.mkdir(parents=True)
    for command in ("train", "eval", "compare_policies"):
        (launch / f"{command}.py").write_text("import sys\nprint(sys.argv[1:])")
    code = (
        "import pathlib, gophercite\nwrite_world = World = lambda *given, **named: None\n"
        + code_with("sft_to_rl", "FOLDER = ", "LAUNCH = ", "%run", "ASK = ")
    )
    code = code.replace('"runs/sft_to_rl"', '"my runs"')
    code = code.replace('REPOSITORY / "launch"', f"pathlib.Path({str(launch)!r})")
    done = in_ipython(code, tmp_path)
    ran = [ast.literal_eval(line) for line in done.stdout.splitlines() if line[:1] == "["]
    assert len(ran) == 3 + 2 * 2 + 1, (done.stdout, done.stderr)
    assert "--gin.TRAIN_STEPS=240" in ran[0]
    for given, name in zip(ran, ("sft", "rm", "rl"), strict=False):
        assert f"--gin.MODEL_DIR=my runs/{name}" in given
    assert "--gin.REWARD_MODEL=my runs/rm" in ran[2]
    for given in ran[3:7]:
        assert {"my runs/world/questions_test.jsonl", "--examples"} <= {*given}
    assert [given[-1] for given in ran[3:7]] == [
        f"my runs/answers/{name}/test{free}" for name in ("sft", "rl") for free in ("", "_free")
    ]
    assert ran[-1] == [
        "SFT=my runs/answers/sft/test", "RL=my runs/answers/rl/test",
        "--output", "my runs/report", "--trained", "SFT=my runs/sft", "RL=my runs/rl",
    ]  # fmt: skip


def test_a_report_without_the_repository_is_refused_in_one_line(tmp_path: pathlib.Path) -> None:
    """As where a wheel is installed, which has no notebooks."""
    code = code_with("read_a_report", "RESULTS = ", "zipfile.ZipFile")
    installed = f"gophercite.__file__ = {str(tmp_path / 'gophercite' / '__init__.py')!r}\n"
    done = in_ipython(f"import pathlib, zipfile, gophercite\n{installed}{code}", tmp_path)
    said = done.stdout + done.stderr
    assert "SystemExit: the bundled results are only in the repository, not in a wheel: " in said
    assert "Traceback" not in said
    assert not (tmp_path / "runs").exists()


def test_a_question_that_is_declined_stops_no_cell(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # where a cell saves the answer
    imports = code_with("ask_your_documents", "%matplotlib").replace("%matplotlib inline", "")
    after = code_with(
        "ask_your_documents", "drawn = ", "calibrate(labelled)", "promises = ", "if promises",
        "in answer.citations", "saved = ", "edited = ",
    )  # fmt: skip
    declined = (
        "from gophercite.records.answers import Answer\n"
        "SAMPLES, documents, answers, labelled = 4, [], [], []\n"
        'answer = Answer("Who?", "m", reason="no page fits the question")\n'
    )
    exec(f"{imports}\n{declined}{after}", {})
    assert capsys.readouterr().out.splitlines() == [
        "No other answers: no page fits the question.",
        "All questions were declined: there are no answers to find a threshold with.",
        "No quote to edit: no page fits the question.",
    ]


def test_a_folder_without_documents_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IPython shows a SystemExit in one line: see the test of a report without the repository."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "letter.docx").write_text("Dear all")
    imports = code_with("ask_your_documents", "%matplotlib").replace("%matplotlib inline", "")
    code = f"{imports}\nDOCUMENTS, LABELLED = 'notes', 1\n"
    code += code_with("ask_your_documents", "read_documents(DOCUMENTS)")
    with pytest.raises(
        SystemExit, match=r"^notes: holds no \.txt, \.md, \.html or \.pdf file with text$"
    ):
        exec(code, {})


@pytest.fixture(scope="module")
def learnt(
    kernel: AsyncKernelManager, tmp_path_factory: pytest.TempPathFactory
) -> tuple[pathlib.Path, nbformat.NotebookNode]:
    folder = tmp_path_factory.mktemp("sft_to_rl")
    random = {"INITIAL_CHECKPOINT": None}
    notebook = run(
        kernel,
        "sft_to_rl",
        folder,
        FOLDER="my runs",
        SFT=TINY | random | {"Run.answers": None, "SupervisedLearner.microbatches": 1},
        REWARD=TINY | random | {"RewardLearner.microbatches": 1},
        RL=TINY_RL,
        QUESTIONS=4,
        SAMPLES=2,
    )
    return folder / "my runs", notebook


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
    metrics = read_metrics(folder / "rl")
    evaluated = [line for line in metrics if line["split"] == "validation"]
    assert [line["step"] for line in evaluated] == [0, 2]
    assert evaluated[0]["eval/validation/faults"] == 0
    # At each evaluation the policy's own answers, under the constraint.
    rates = [line for line in metrics if line["split"] == "samples"]
    assert [line["eval/samples/verbatim"] for line in rates] == [1, 1]
    assert "Sample answers after step 2" in (folder / "rl" / "samples" / "step_2.md").read_text()


def test_ask_your_documents(
    kernel: AsyncKernelManager,
    learnt: tuple[pathlib.Path, nbformat.NotebookNode],
    tmp_path: pathlib.Path,
) -> None:
    """From a checkpoint as others publish them: the one that was just trained, exported."""
    export_weights(learnt[0] / "sft", tmp_path / "checkpoint")
    notebook = run(
        kernel,
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


def test_read_a_report(kernel: AsyncKernelManager, tmp_path: pathlib.Path) -> None:
    notebook = run(kernel, "read_a_report", tmp_path)
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
