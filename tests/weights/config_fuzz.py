"""Random edits of each family's `config.json`: our logits beside those of `transformers`.

Needs torch and transformers (the extra `benchmarks`), which the tests themselves don't:

    python -m tests.weights.config_fuzz --edits 506 --seed 1     # the table of docs/weights.md
    python -m tests.weights.config_fuzz --seed 1 --store         # and what the tests hold us to

Each edit is made to a small checkpoint (`checkpoints/`), which both import. An edit comes out right
where the logits agree, refused where we refuse it in one line, and wrong otherwise. Alone are we
where `transformers` refuses what we import, or loads it with parameters of its own making; a field
that nothing is computed by (`_IDLE`) is taken out where only its type offends. What comes out right
is exported again, and `transformers` reads the export.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import sys
import tempfile
import warnings
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import torch
import transformers

from gophercite.models.config import TransformerConfig
from gophercite.weights.export import export_weights
from gophercite.weights.hugging_face import import_weights
from tests.weights import parity
from tests.weights.config_edits import NAMED, SHOWN, STORED, Edit, random_edit
from tests.weights.samples import CHECKPOINTS, FAMILIES, WITH_IMAGES, checkpoint

Outcome = Literal["right", "refused", "wrong", "alone"]
TOLERANCE = 2e-4
OUTCOMES: tuple[Outcome, ...] = ("right", "refused", "wrong", "alone")


# What `transformers` checks the type of, and what nothing is computed by.
_IDLE = (
    *("attention_dropout", "hidden_dropout", "classifier_dropout", "initializer_range"),
    *("resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_activation", "summary_first_dropout"),
    *("summary_proj_to_labels", "summary_type", "summary_use_proj", "use_cache", "pretraining_tp"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "is_decoder", "transformers_version"),
    *("architectures", "torch_dtype", "dtype", "mm_tokens_per_image", "boi_token_index"),
    *("eoi_token_index", "image_token_index"),
)


class Tried(NamedTuple):
    """What came of an edit.

    Attributes:
      outcome: see above.
      reason: why it was refused, or what differs.
      exported: whether `transformers` read the export of it too.
      logits: its logits, where both computed some.
      config: our architecture of it, likewise.
    """

    outcome: Outcome
    reason: str
    exported: bool = False
    logits: np.ndarray | None = None
    config: TransformerConfig | None = None


def their_logits(folder: pathlib.Path, tokens: np.ndarray) -> np.ndarray:
    """What `transformers` computes of a checkpoint.

    Raises:
      ValueError: it can't, or only with parameters that the checkpoint does not have.
    """
    try:
        return _their_logits(folder, tokens)
    except ValueError as error:
        wrong_type = re.search(r"Validation error for field '(\w+)'", str(error))
        if not wrong_type or wrong_type[1] not in _IDLE:
            raise
        path = folder / "config.json"
        path.write_text(json.dumps(_without(json.loads(path.read_text()), wrong_type[1])))
    return their_logits(folder, tokens)


def _without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    """A configuration and its parts without a field."""
    return {
        key: _without(value, name) if isinstance(value, dict) else value
        for key, value in fields.items()
        if key != name
    }


def _their_logits(folder: pathlib.Path, tokens: np.ndarray) -> np.ndarray:
    """As `their_logits`, from a file all whose fields are of the right types."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
                local_files_only=True,
            )
            if info["missing_keys"] or info["mismatched_keys"]:
                raise ValueError(f"tensors are missing: {sorted(info['missing_keys'])[:2]}")
            with torch.no_grad():
                logits = model(torch.from_numpy(tokens)[None]).logits[0].numpy()
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not np.isfinite(logits).all():
        raise ValueError("logits that are not finite")
    found: np.ndarray = logits
    return found


def our_logits(folder: pathlib.Path, tokens: np.ndarray) -> np.ndarray:
    """What we compute of a model folder, operation by operation: nothing is compiled anew."""
    with jax.disable_jit():
        (logits,), _ = parity.in_one_pass(*parity.in_float32(folder), [tokens])
    return logits


class Trial:
    """A checkpoint whose configuration is edited.

    Args:
      source: the checkpoint; its `config.json` is replaced.
      tokens: [length] whose logits are compared.
    """

    def __init__(self, source: pathlib.Path, tokens: np.ndarray) -> None:
        self._source, self._tokens = source, tokens
        self.fields = json.loads((source / "config.json").read_text("utf-8"))
        # Most edits leave the architecture as it was: the same model, computed and exported once.
        self._ours: dict[TransformerConfig, np.ndarray] = {}
        self._exported: dict[TransformerConfig, np.ndarray | Tried] = {}

    def attempt(self, edit: Edit, folder: pathlib.Path) -> Tried:
        """Imports the edited checkpoint, and compares.

        Args:
          edit: of the original `config.json`.
          folder: an empty one, to write to.
        """
        text = json.dumps(edit.apply(self.fields))
        (self._source / "config.json").write_text(text, "utf-8")
        try:
            config = import_weights(self._source, folder / "model").config
        except ValueError as error:
            lines = str(error).splitlines()
            return Tried("refused" if len(lines) == 1 else "wrong", lines[0])
        except Exception as error:
            return Tried("wrong", f"{type(error).__name__}: {error}")
        try:
            expected = their_logits(self._source, self._tokens)
        except ValueError as error:
            return Tried("alone", str(error).splitlines()[0])
        if config not in self._ours:
            self._ours[config] = our_logits(folder / "model", self._tokens)
            self._exported[config] = self._export(folder)
        difference = float(np.abs(self._ours[config] - expected).max())
        if not difference < TOLERANCE:
            return Tried("wrong", f"logits differ by {difference:.2g}")
        exported = self._exported[config]
        if isinstance(exported, Tried):
            return exported
        difference = float(np.abs(exported - expected).max())
        if not difference < TOLERANCE:
            return Tried("wrong", f"the export's logits differ by {difference:.2g}")
        return Tried("right", "", True, expected, config)

    def _export(self, folder: pathlib.Path) -> np.ndarray | Tried:
        """What `transformers` computes of our export, or why it can't."""
        try:
            export_weights(folder / "model", folder / "exported")
        except ValueError as error:
            return Tried("right", f"not exported: {error}")
        try:
            return their_logits(folder / "exported", self._tokens)
        except ValueError as error:
            return Tried("wrong", f"the export: {error}")


def fuzz(family: str, seed: int, edits: int, show: Any = None) -> list[tuple[Edit, Tried]]:
    """Tries random edits of a family's checkpoint.

    Args:
      family: a checkpoint's name.
      seed: of the edits; the first ones are the same however many there are.
      edits: how many.
      show: called with each edit and what came of it.
    """
    path = CHECKPOINTS / family / "config.json"
    fields = json.loads(path.read_text("utf-8"))
    draws = (random.Random(f"{seed} {family} {number}") for number in range(edits))
    return attempts(family, [random_edit(fields, draw) for draw in draws], show)


def attempts(family: str, edits: list[Edit], show: Any = None) -> list[tuple[Edit, Tried]]:
    """Tries some edits of a family's checkpoint, see `fuzz`."""
    sequences, _ = parity.reference(family)
    done = []
    with tempfile.TemporaryDirectory() as work:
        trial = Trial(checkpoint(family, pathlib.Path(work) / "source"), sequences[0])
        for number, edit in enumerate(edits):
            with tempfile.TemporaryDirectory(dir=work) as folder:
                tried = trial.attempt(edit, pathlib.Path(folder))
            done.append((edit, tried))
            if show:
                show(family, number, edit, tried)
    return done


def _of_each_architecture(done: list[tuple[Edit, Tried]], most: int) -> list[dict[str, Any]]:
    """Edits that came out right, each of another architecture, with some of their logits."""
    found: dict[TransformerConfig, dict[str, Any]] = {}
    for edit, tried in done:
        if tried.config is not None and tried.logits is not None and len(found) < most:
            logits = np.round(tried.logits[SHOWN].astype(float), 5).tolist()
            found.setdefault(tried.config, {**edit._asdict(), "logits": logits})
    return list(found.values())


def main() -> None:
    """Prints a row for each checkpoint, and everything that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=500, help="over all families together")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--families", nargs="*", default=(*FAMILIES, WITH_IMAGES))
    parser.add_argument("--store", action="store_true", help=f"some of what is right in {STORED}")
    parser.add_argument("--show", nargs="*", default=["wrong"], choices=OUTCOMES)
    flags = parser.parse_args()
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()
    each = -(-flags.edits // len(flags.families))

    def show(family: str, number: int, edit: Edit, tried: Tried) -> None:
        if tried.outcome in flags.show:
            print(f"{tried.outcome} {family} {number}: {edit}: {tried.reason}", file=sys.stderr)

    print(f"seed {flags.seed}", flush=True)
    print("| Checkpoint | edits | right | exported and read too | refused | wrong | alone |")
    print("|---|---|---|---|---|---|---|")
    total = [0] * 6
    stored: dict[str, list[dict[str, Any]]] = {}
    for family in flags.families:
        done = fuzz(family, flags.seed, each, show)
        count = collections.Counter(tried.outcome for _, tried in done)
        exported = sum(tried.exported for _, tried in done)
        row = [
            len(done),
            count["right"],
            exported,
            count["refused"],
            count["wrong"],
            count["alone"],
        ]
        total = [a + b for a, b in zip(total, row, strict=True)]
        print(f"| {family} | {' | '.join(map(str, row))} |", flush=True)
        if flags.store:
            named = attempts(family, NAMED[family], show)
            stored[family] = [
                *_of_each_architecture(named, len(named)),
                *_of_each_architecture(done, 2),
            ]
    if flags.store:
        STORED.write_text(json.dumps(stored, indent=1) + "\n", "utf-8")
    print(f"| together | {' | '.join(map(str, total))} |")


if __name__ == "__main__":
    main()
