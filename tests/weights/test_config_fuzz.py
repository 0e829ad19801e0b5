"""Random edits of `config.json` (`config_edits`) come out right, or are refused in one line."""

import json
import pathlib
import random

import jax
import numpy as np
import pytest

from gophercite.weights.architectures import read_architecture
from gophercite.weights.hugging_face import import_weights
from tests.weights import parity
from tests.weights.config_edits import SHOWN, STORED, Edit, random_edit
from tests.weights.samples import CHECKPOINTS, FAMILIES, WITH_IMAGES, checkpoint

ALL = (*FAMILIES, WITH_IMAGES)


@pytest.mark.parametrize("family", ALL)
def test_an_edit_is_read_or_refused_in_one_line(family: str) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    fields = json.loads((CHECKPOINTS / family / "config.json").read_text("utf-8"))
    refusals: list[str] = []
    for number in range(300):
        edit = random_edit(fields, random.Random(f"{seed} {number}"))
        try:
            read_architecture(edit.apply(fields))
        except ValueError as error:
            refusals.append(str(error))
    assert 30 < len(refusals) < 270
    assert not [refusal for refusal in refusals if "\n" in refusal]


@pytest.mark.parametrize("family", ALL)
def test_edits_have_the_logits_that_transformers_computed(
    family: str, tmp_path: pathlib.Path
) -> None:
    source = checkpoint(family, tmp_path / "source")
    fields = json.loads((source / "config.json").read_text("utf-8"))
    import_weights(source, tmp_path / "unedited")
    unedited = parity.in_float32(tmp_path / "unedited")
    (tokens, *_), (of_unedited, *_) = parity.reference(family)
    stored = json.loads(STORED.read_text("utf-8"))[family]
    assert len(stored) > 1
    for number, entry in enumerate(stored):
        edit = Edit(entry["part"], entry["changes"], tuple(entry["dropped"]))
        (source / "config.json").write_text(json.dumps(edit.apply(fields)), "utf-8")
        import_weights(source, tmp_path / str(number))
        transformer, params = parity.in_float32(tmp_path / str(number))
        same = jax.tree.all(jax.tree.map(np.array_equal, params, unedited[1]))
        if same and transformer == unedited[0]:
            logits = of_unedited  # as test_parity shows
        else:
            (logits,), _ = parity.in_one_pass(transformer, params, [tokens])
        np.testing.assert_allclose(logits[SHOWN], entry["logits"], atol=3e-4, err_msg=str(edit))


@pytest.mark.parametrize("family", ALL)
def test_an_edit_has_the_logits_of_transformers_or_is_refused(family: str) -> None:
    """A sample of `python -m tests.weights.config_fuzz`, where `transformers` is installed."""
    pytest.importorskip("torch", reason="compared with torch, which is not in the lock")
    pytest.importorskip(
        "transformers", reason="compared with transformers, which is not in the lock"
    )
    from tests.weights.config_fuzz import fuzz

    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    for edit, tried in fuzz(family, seed, 6):
        assert tried.outcome != "wrong", (edit, tried.reason)
