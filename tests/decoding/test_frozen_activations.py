"""What the trained stack read while sampling is what it would read of the finished text."""

import jax
import numpy as np
import pytest

from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.rows import padded_rows
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from tests.drawn_parameters import drawn_parameters
from tests.quoting.quote_worlds import TokenList

BYTES = TokenList(())
SETTINGS = SamplingSettings(max_tokens=40)
PAGES = [
    [Document("a", "Ab", "the cat sat on the mat")],
    [Document("b", "B", "a dog, a log and a frog")],
]
PROMPTS = [[5, 6, 7], [8, 9, 10, 11, 12]]


def config(position: str, scan_layers: bool) -> TransformerConfig:
    return TransformerConfig(
        vocab_size=BYTES.size + 1,
        d_model=16,
        num_layers=3,
        num_heads=2,
        head_dim=8,
        position=position,
        scan_layers=scan_layers,
        dtype="float32",
    )


@pytest.mark.parametrize(
    ("position", "scan_layers", "frozen", "quoting"),
    [("rope", False, 2, True), ("transformer_xl", True, 1, False)],
)
def test_frozen_activations_of_samples(
    position: str, scan_layers: bool, frozen: int, quoting: bool
) -> None:
    model = Transformer(config(position, scan_layers))
    params = drawn_parameters(model, frozen_layers=frozen)
    constraint = QuoteConstraint(BYTES, QuoteSettings(minimum_quote=8, maximum_claim=5))
    tables = (
        constraint.tables([constraint.graph(shown) for shown in PAGES], SETTINGS.max_tokens)
        if quoting
        else None
    )
    tokens, lengths = padded_rows(PROMPTS, BYTES.pad_id, "prompt")
    plan = Plan(
        model,
        SETTINGS,
        BYTES.eos_id,
        BYTES.pad_id,
        BYTES.size,
        samples=3,
        rows=2,
        frozen_activations=True,
        # One token alone would hardly be drawn.
        other_eos_ids=() if quoting else tuple(range(10, 34)),
    )
    keys = jax.random.split(jax.random.key(1), len(PROMPTS))
    made = jax.device_get(decode(plan, params, tokens, lengths, keys, tables, None))
    assert made.frozen_activations is not None

    whole = jax.jit(model.frozen_activations)
    onwards = jax.jit(model.from_frozen_activations)
    room = tokens.shape[1] + SETTINGS.max_tokens
    for prompt, ids in enumerate(PROMPTS):
        for sample in range(plan.samples):
            length = int(made.lengths[prompt, sample])
            text = [*ids, *made.tokens[prompt, sample, : length - 1]]
            row = np.zeros((1, room), np.int32)
            row[0, : len(text)] = text
            places, real = np.arange(room)[None], (np.arange(room) < len(text)).astype(int)[None]
            expected = np.asarray(whole(params, row, places, real))
            read = made.frozen_activations.samples[prompt, sample, : length - 1]
            np.testing.assert_allclose(read, expected[0, len(ids) : len(text)], atol=1e-4)
            shown = made.frozen_activations.prompts[prompt, : len(ids)]
            np.testing.assert_allclose(shown, expected[0, : len(ids)], atol=1e-4)
            assert not np.any(made.frozen_activations.samples[prompt, sample, length - 1 :])
    # And reading on from there is reading all.
    hidden = onwards(params, expected, places, real)
    apart, _ = jax.jit(model.apply)(params, row, places, real)
    np.testing.assert_allclose(hidden, apart, rtol=1e-4, atol=1e-4)
