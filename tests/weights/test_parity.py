"""Imported models compute what `transformers` does (see make_checkpoints.py for the reference)."""

import dataclasses
import pathlib

import pytest

from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from tests.long_forms import IS_LONG
from tests.weights import parity
from tests.weights.samples import FAMILIES, WITH_IMAGES

Loaded = tuple[str, Transformer, Params]
TOLERANCE = 1e-4
# Their architectures have nothing that is not in llama3, qwen2_windows or gemma3.
LIKE_OTHERS = ("llama2", "mistral", "qwen2", "qwen3", WITH_IMAGES)


@pytest.fixture(scope="module", params=(*FAMILIES, WITH_IMAGES))
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    folder: pathlib.Path = tmp_path_factory.mktemp(request.param)
    return request.param, *parity.load_float32(request.param, folder)


@pytest.mark.parametrize(
    ("family", "setting"),
    [
        ("llama3", "rope_scaling"),
        ("mistral", "window"),
        ("qwen2_windows", "window"),
        ("gemma2", "attention_softcap"),
    ],
)
def test_the_reference_tells_settings_apart(
    family: str, setting: str, tmp_path: pathlib.Path
) -> None:
    """Without the setting the logits are other ones: the small models would show its absence."""
    transformer, params = parity.load_float32(family, tmp_path)
    without = Transformer(dataclasses.replace(transformer.config, **{setting: None}))
    sequences, expected = parity.reference(family)
    padded, _ = parity.in_one_pass(without, params, sequences)
    assert parity.largest_difference(padded, expected) > 100 * TOLERANCE


def test_padded_and_packed_sequences_have_the_same_logits(loaded: Loaded) -> None:
    family, transformer, params = loaded
    sequences, expected = parity.reference(family)
    for found in parity.in_one_pass(transformer, params, sequences):
        assert parity.largest_difference(found, expected) < TOLERANCE


def test_a_cache_gives_the_same_logits(loaded: Loaded) -> None:
    family, transformer, params = loaded
    if family in LIKE_OTHERS and not IS_LONG:
        pytest.skip("a long form: LONG_TESTS=1 runs it")
    sequences, expected = parity.reference(family)
    found = parity.with_cache(transformer, params, sequences)
    assert parity.largest_difference(found, expected) < TOLERANCE
