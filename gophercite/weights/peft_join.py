"""Adapters of a model that adapters had been merged into, as adapters of the first model.

Two trainings in turn give W + s1 A1 B1 + s2 A2 B2, which is W + s2 [A1 A2] [(s1/s2) B1; B2]:
adapters of the sum of both ranks. So a training can go on from published adapters, and the result
is published in the same form, for the same base.
"""

import hashlib
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from gophercite.weights.checkpoint import WeightsError, read_json
from gophercite.weights.peft_import import (
    CONFIG,
    MADE_FOR,
    TENSORS,
    read_pairs,
    read_settings,
)

Pair = tuple[np.ndarray, np.ndarray]  # A [rank, in] and B [out, rank] of a module


def join_adapters(
    earlier: str | os.PathLike[str],
    provenance: Mapping[str, Any],
    later: Mapping[str, Pair],
    scale: float,
) -> dict[str, Pair]:
    """Puts a run's adapters after those that were merged into the run's base model.

    Args:
      earlier: folder of the adapters that were merged, in PEFT's form.
      provenance: of the run's base model; it has the digest of what was merged.
      later: the run's adapters by module.
      scale: factor on the product of the run's adapters, which is that of the result.

    Returns:
      Adapters of the earlier ones' base by module.

    Raises:
      WeightsError: other adapters had been merged into the run's base, or they adapt other modules.
      TensorFileError: a file of tensors is missing, truncated or damaged.
    """
    folder = pathlib.Path(earlier)
    settings = read_settings(folder / CONFIG)
    pairs = read_pairs(folder / TENSORS)
    with (folder / TENSORS).open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    merged = provenance.get("adapters")
    wanted = merged.get("sha256") if isinstance(merged, Mapping) else None
    if wanted != found:
        raise WeightsError(
            f"{folder / TENSORS}: the run began with "
            + (f"other adapters ({wanted[:12]})" if wanted else "a model without adapters")
            + f", not with these ({found[:12]})"
        )
    if other := sorted(pairs.keys() ^ later.keys()):
        raise WeightsError(
            f"{folder / TENSORS}: module {other[0]!r} is adapted either here or by the run, not by "
            "both: such adapters can't be joined"
        )
    joined = {}
    for module, (a, b) in later.items():
        first_a, first_b = pairs[module]
        factor = settings.scale(module, len(first_a)) / scale
        joined[module] = np.concatenate([first_a, a]), np.concatenate([factor * first_b, b], axis=1)
    return joined


def base_of(earlier: str | os.PathLike[str]) -> str:
    """The digest of the parameters that adapters were trained on.

    Raises:
      WeightsError: the folder does not say it.
    """
    path = pathlib.Path(earlier) / MADE_FOR
    value = read_json(path) if path.exists() else None
    digest = value.get("base_sha256") if isinstance(value, dict) else None
    if not isinstance(digest, str):
        raise WeightsError(f"{path}: must give the digest of the adapters' base, 'base_sha256'")
    return digest
