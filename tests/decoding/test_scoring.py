"""Scores of given texts are what the sampler said when it drew them."""

import functools

import jax
import numpy as np
import pytest

from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.decoding.scoring import _score, score
from gophercite.documents import Document
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import QuoteConstraint
from tests.drawn_parameters import drawn_parameters
from tests.quoting.quote_worlds import HOSTILE_PIECES, TokenList

WORDS = TokenList(HOSTILE_PIECES)
MODEL = Transformer(
    TransformerConfig(
        vocab_size=WORDS.size + 3,
        d_model=16,
        num_layers=2,
        num_heads=2,
        head_dim=8,
        dtype="float32",
    )
)
PROMPTS = [[3, 4, 5], [7], [9, 10, 11, 12]]
PAGES = [
    [Document("a", "T", "the cat sat on the mat. It was ☃ day]% and so on.")],
    [Document("b", "Th", "one page"), Document("c", "The [T]", "another, é longer page")],
    [Document("d", "", "  \n  the third")],
]
LONGEST = 40
ENDS = {"eos_id": WORDS.eos_id, "pad_id": WORDS.pad_id}


@functools.cache
def parameters():
    return drawn_parameters(MODEL)


def texts_of(samples, each):
    rows = [
        row[:length].tolist() for row, length in zip(samples.tokens, samples.lengths, strict=True)
    ]
    return [rows[at : at + each] for at in range(0, len(rows), each)]


def test_free_samples():
    """Embeddings that are no tokens, as tables are often rounded up, have no share of them."""
    settings = SamplingSettings(max_tokens=LONGEST)
    made = sample(
        MODEL, parameters(), PROMPTS, jax.random.key(1), settings, samples_per_prompt=4, **ENDS,
        vocabulary_size=WORDS.size,
    )  # fmt: skip
    options = {"pad_id": WORDS.pad_id, "vocabulary_size": WORDS.size}
    found = score(MODEL, parameters(), PROMPTS, texts_of(made, 4), **options)
    assert found.constrained_log_probs is None
    longest = int(made.lengths.max())
    assert found.log_probs.shape == (12, longest)
    np.testing.assert_allclose(found.log_probs, made.log_probs[:, :longest], atol=1e-5)
    programs = _score._cache_size()
    for length in range(1, longest):
        some = [[text[:length] for text in of_prompt] for of_prompt in texts_of(made, 4)]
        score(MODEL, parameters(), PROMPTS, some, **options)
    assert _score._cache_size() == programs, "one program for all lengths"


def test_constrained_samples_and_a_text_that_is_not_allowed():
    constraint = QuoteConstraint(WORDS)
    tables = constraint.tables([constraint.graph(pages) for pages in PAGES], LONGEST)
    settings = SamplingSettings(max_tokens=LONGEST)
    key = jax.random.key(2)
    options = {"quotes": tables, "samples_per_prompt": 2}
    made = sample(MODEL, parameters(), PROMPTS, key, settings, **options, **ENDS)
    with pytest.raises(ValueError, match="quotes: 3 for 4 prompts"):
        sample(MODEL, parameters(), [*PROMPTS, [5]], key, settings, **options, **ENDS)
    options = {"pad_id": WORDS.pad_id, "quotes": tables, "max_tokens": LONGEST}
    texts = texts_of(made, 2)
    found = score(MODEL, parameters(), PROMPTS, texts, **options)
    longest = int(made.lengths.max())
    np.testing.assert_allclose(found.log_probs, made.log_probs[:, :longest], atol=1e-5)
    np.testing.assert_allclose(
        found.constrained_log_probs, made.constrained_log_probs[:, :longest], atol=1e-5
    )
    wrong = [[[*text[:3], WORDS.eos_id, *text[4:]] for text in of_prompt] for of_prompt in texts]
    found = score(MODEL, parameters(), PROMPTS, wrong, **options)
    for row, (after, text) in enumerate(
        zip(found.constrained_log_probs, [t for p in wrong for t in p], strict=True)
    ):
        assert np.isfinite(after[:3]).all(), row
        assert np.isneginf(after[3 : len(text)]).all()
        assert (after[len(text) :] == 0).all()
        assert np.isfinite(found.log_probs[row]).all()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([[[3]], [[4]]], "3 prompts"),
        ([[[3]], [[4]], [[3], [4]]], r"\[1, 1, 2\]"),
        ([[[3]], [[4]], [[]]], "text"),
    ],
)
def test_texts_that_cannot_be_scored_are_refused(texts, said):
    with pytest.raises(ValueError, match=said):
        score(MODEL, parameters(), PROMPTS, texts, pad_id=0)
