"""What a run writes in addition to checkpoints: versions, parameter overview, samples, report."""

import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from etils import epath

from gophercite.learning.state import TrainState
from gophercite.model_folders.checkpoint_files import name_leaves
from gophercite.model_folders.folder import ModelFolderError, read_description
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import Params
from gophercite.monitoring.metrics import TRAIN, read_metrics
from gophercite.storage import is_remote, write_file
from gophercite.storage.checkpoint_steps import saved_steps
from gophercite.training.initialisation import other_architecture

CURVES = "curves.png"
_PACKAGES = (
    "gophercite",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "numpy",
    "seqio",
    "tensorflow",
    "sentencepiece",
    "tokenizers",
)


def refuse_unfit_folder(folder: epath.PathLike, config: TransformerConfig) -> None:
    """Refuses a run in a place where it can't be, or where it would overwrite something else.

    Checkpoints of another architecture may have the same shapes: of another number of heads, or
    of another base of rotary positions. The run would go on from them as from noise.

    Args:
      folder: the run's folder, on a disk or in a bucket.
      config: the architecture of the run's model.

    Raises:
      ValueError: it is a file, or holds a model, or checkpoints of another architecture.
      StorageError: its bucket can't be used.
    """
    place = f"TrainSettings.model_dir = {os.fspath(folder)!r}"
    if not is_remote(folder) and os.path.exists(folder) and not os.path.isdir(folder):
        raise ValueError(f"{place}: is a file, but a run needs a folder")
    try:
        description = read_description(folder)
    except ModelFolderError:  # usually because there is nothing
        return
    if description.parameters is not None:
        raise ValueError(
            f"{place}: this folder holds a model, which the run would overwrite; set MODEL_DIR to "
            "a new folder"
        )
    difference = other_architecture(description.config, config)
    if difference and saved_steps(folder):
        raise ValueError(
            f"{place}: its checkpoints are of a model with {difference}; set MODEL_DIR to a new "
            "folder, or configure the model as before"
        )


def versions() -> dict[str, Any]:
    """Everything that bit-exact results depend on: packages, Python, devices, processes."""
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # inference-only installations lack some
    return {
        "packages": packages,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "backend": jax.default_backend(),
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "processes": jax.process_count(),
        "command": sys.argv,
    }


def parameter_table(params: Params, trained: Collection[str]) -> str:
    """A table of parameters: name, shape, dtype, sharding, number, and whether it is trained.

    Args:
      params: tree of arrays, or of shapes with shardings.
      trained: the parts that the optimiser updates.

    Returns:
      Lines of text, with totals at the end.
    """
    rows = [("parameter", "shape", "dtype", "sharding", "values", "trained")]
    total = learned = size = 0
    for name, leaf in name_leaves(params).items():
        count = int(np.prod(leaf.shape, dtype=np.int64))
        is_trained = name.split("/")[0] in trained
        total, learned = total + count, learned + count * is_trained
        size += count * leaf.dtype.itemsize
        spec = getattr(leaf.sharding, "spec", None)
        cuts = " ".join("·" if axis is None else str(axis) for axis in spec or ())
        mark = "yes" if is_trained else "frozen"
        rows.append((name, str(list(leaf.shape)), str(leaf.dtype), cuts, f"{count:,}", mark))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if column == 4 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.append(f"{total:,} parameters, {learned:,} of them trained, {size / 2**20:,.1f} MiB")
    return "\n".join(lines) + "\n"


def trained_parts(state: TrainState) -> set[str]:
    """The top-level parts of the parameters that the optimiser has state for."""
    keys = {key for name in name_leaves(state.optimizer) for key in name.split("/")}
    return keys & set(state.params)


def write_text(folder: epath.Path, files: Mapping[str, str]) -> None:
    """Writes files into a run's folder, in the first process only."""
    if jax.process_index() == 0:
        for name, text in files.items():
            write_file(folder / name, text)


def versions_json() -> str:
    """`versions` as the text of `versions.json`."""
    return json.dumps(versions(), indent=2) + "\n"


def draw_curves(folder: epath.Path) -> str:
    """Draws a run's learning curves into `curves.png`.

    Args:
      folder: the run's folder.

    Returns:
      Markdown for the report: the picture, or why there is none.
    """
    try:
        from gophercite.monitoring.learning_curves import report_curves
        from gophercite.reports.figures import png
    except ImportError:
        return "No learning curves: they need matplotlib, `pip install gophercite[report]`."
    figure = report_curves(folder)
    if figure is None:
        return "No learning curves: no metric was measured at more than one step."
    write_file(folder / CURVES, png(figure))
    return f"![metrics by step]({CURVES})"


def report(
    folder: epath.Path,
    outcome: Sequence[str],
    best_step: int | None,
    curves: str = "",
    times: str = "",
) -> str:
    """A run's report: how it ended, the results of each evaluation, and where its answers are.

    Args:
      folder: the run's folder.
      outcome: lines on how the run ended.
      best_step: the checkpoint with the best score; None if none is within the limits.
      curves: Markdown with the learning curves.
      times: Markdown on how the time was spent.

    Returns:
      Markdown.
    """
    lines = [f"# {folder.name}", "", *[f"- {line}" for line in outcome]]
    none = "none, because no evaluated state is within the limits"
    lines.append(f"- best checkpoint: {none if best_step is None else f'step {best_step}'}")
    if curves:
        lines += ["", "## Learning curves", "", curves]
    if times:
        lines += ["", "## Time spent", "", times]
    metrics = read_metrics(folder)
    splits = dict.fromkeys(line["split"] for line in metrics if line["split"] != TRAIN)
    for split in splits:
        of_split = [line for line in metrics if line["split"] == split]
        names = [name for name in of_split[-1] if name not in ("step", "split")]
        short = [name.removeprefix(f"eval/{split}/") for name in names]
        lines += ["", f"## {split}", "", _row(["step", *short]), _row(["---:"] * (len(short) + 1))]
        lines += [
            _row([str(line["step"]), *[_number(line.get(name)) for name in names]])
            for line in of_split
        ]
    samples = {
        int(name[1]): path
        for path in (folder / "samples").glob("step_*.md")
        if (name := re.fullmatch(r"step_(\d+)\.md", path.name))  # not a copy of a user's
    }
    if samples:
        newest = samples[max(samples)].read_text(encoding="utf-8")
        lines += ["", "## Sample answers", "", newest.strip()]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
