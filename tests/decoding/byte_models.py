"""A small model of bytes, with pages to quote, for tests of how samples are drawn."""

import dataclasses
import functools

import numpy as np

from gophercite.decoding.sampler import Samples
from gophercite.documents import Document
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from tests.drawn_parameters import drawn_parameters
from tests.quoting.quote_worlds import TokenList

BYTES = TokenList(())  # bytes alone
CONFIG = TransformerConfig(
    vocab_size=BYTES.size,
    d_model=16,
    num_layers=2,
    num_heads=4,
    head_dim=4,
    dtype="float32",
    position="rope",
)


def pages(prompts: int) -> list[list[Document]]:
    """A page for each prompt."""
    return [
        [Document(str(i), f"Mill {i}", f"Mill {i} burned in 18{i:02}. It had {i} wheels.")]
        for i in range(prompts)
    ]


@functools.cache
def model_and_parameters(sureness, **changed):
    """A model, and parameters whose likeliest tokens are drawn the oftener the surer it is."""
    model = Transformer(dataclasses.replace(CONFIG, **changed))
    params = drawn_parameters(model)
    params["embed"]["embedding"] *= sureness
    return model, params


def assert_same(found: Samples, wanted: Samples) -> None:
    np.testing.assert_array_equal(found.tokens, wanted.tokens)
    np.testing.assert_array_equal(found.lengths, wanted.lengths)
    for name in ("log_probs", "constrained_log_probs"):
        if getattr(wanted, name) is not None:
            np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), atol=2e-5)
    if wanted.faults is not None:
        np.testing.assert_array_equal(found.faults, wanted.faults)
