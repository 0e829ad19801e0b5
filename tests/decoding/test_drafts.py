"""Drafts go on as the page does, and end where the sample could."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.decoding.drafts import draft
from gophercite.documents import Document
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.quote_state import advance, initial
from tests.decoding.byte_models import BYTES

PAGE = Document(
    "1",
    "Old mill",
    "The mill burned in 1840. Nobody was hurt. A bee came down east from green hills in June; King "
    "Lear may open Peter's quiet red stone until very warm weather.",
)  # with so many beginnings of words that none is drafted
MOST = 16
CONSTRAINT = QuoteConstraint(BYTES, QuoteSettings(minimum_quote=10))
TABLES = CONSTRAINT.tables([CONSTRAINT.graph([PAGE])], 80)


@jax.jit
def drafted(text, length, left, count):
    state = initial(TABLES, jnp.zeros(1, jnp.int32))
    state = jax.lax.fori_loop(0, length, lambda i, s: advance(TABLES, s, text[None, i]), state)
    return draft(TABLES, state, left[None], count, MOST)


def text_drafted(text: str, left: int = 60, count: int = MOST) -> str:
    tokens = np.array(BYTES.encode(text))
    tokens, made = drafted(jnp.asarray(np.pad(tokens, (0, 80 - len(tokens)))), len(tokens),
                           jnp.asarray(left), jnp.asarray(count))  # fmt: skip
    made = np.asarray(made)[0]
    assert (np.sort(made)[::-1] == made).all()  # nothing after the first gap
    assert not made[count:].any()
    return BYTES.decode(np.asarray(tokens)[0][made].tolist())


@pytest.mark.parametrize(
    ("begun", "found"),
    [
        (" %<1840>%(", "Old mill)%["),
        (" %<1840>%(Old mill)%[The mi", "ll burned in 1840."),
        (" %<1840>%(Old mill)%[Nobody was", " hurt. A bee came"),
        (" %<18", ""),  # a claim may be anything
    ],
)
def test_a_draft_goes_on_as_the_page_does(begun, found):
    assert text_drafted(begun) == found[:MOST]


def test_no_more_is_drafted_than_is_asked_for():
    assert text_drafted(" %<1840>%(Old mill)%[The mi", count=4) == "ll b"
    assert text_drafted(" %<1840>%(Old mill)%[The mi", count=0) == ""


def test_a_draft_leaves_enough_tokens_to_finish():
    """`]%` and the end of sequence are three."""
    assert text_drafted(" %<1840>%(Old mill)%[The mill bur", left=6) == "ned]%"
