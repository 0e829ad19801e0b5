"""Quotes that hold their claims: what is drawn once more, and what it becomes."""

import random
import re
import string

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite import evidence
from gophercite.decoding import claim_in_quote
from gophercite.decoding.claim_in_quote import Redraws, Shown, holds_claim, pieces_holding
from gophercite.decoding.decode_loop import decode
from gophercite.decoding.rerank import sample_in_turn
from gophercite.decoding.sampler import Samples, sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.decoding.scoring import score
from gophercite.documents import Document
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.pieces import quotable_pieces
from gophercite.quoting.quote_settings import QuoteSettings
from tests.decoding.test_rerank import model
from tests.long_forms import IS_LONG
from tests.quoting import answer_judge
from tests.quoting.quote_worlds import spell
from tests.quoting.shown_pages import shown
from tests.text import word_breaks

VOCABULARY = model().vocabulary


@pytest.mark.parametrize(
    ("text", "claim", "holds"),
    [
        ("It was built in 1812 by Mara.", "1812", True),
        ("It was built in 1812 by Mara.", "MARA", True),
        ("It was built in 1812 by\n Mara.", "1812  by Mara", True),
        ("It was built in 1812 by Mara.", "181", False),  # no whole word
        ("It was built in 1812 by Mara.", "built by", False),
        ("He paid $3.50 (in cash).", "$3.50", True),
        ("He paid $3.50 (in cash).", "3.5", False),
        ("中文字", "文", True),  # a script without spaces
        ("A+ and a+", "a+", True),
        ("nothing", "  ", False),
    ],
)
def test_a_quote_holds_the_words_of_its_claim(text, claim, holds):
    assert holds_claim(text, claim) == holds


WORDS = st.lists(st.sampled_from(["a ", "A ", "b ", "ab ", "c. ", "a\n", "]% "]), max_size=14)


def runs(pieces):
    """Everything that can be quoted, by title."""
    return {
        (title, piece.text[i : j + 1])
        for title, texts in pieces.items()
        for piece in texts
        for i in np.flatnonzero(np.frombuffer(piece.begins, bool)).tolist()
        for j in np.flatnonzero(np.frombuffer(piece.ends, bool)).tolist()
        if i <= j
    }


def plainly_holds(run, claim):
    """The same by other code: each place of the claim, and another's word boundaries."""
    bounds = set(word_breaks.boundaries(run))
    folded = r"\s+".join(re.escape(word.lower()) for word in claim.split())
    starts = range(len(run))
    ends = ((i, re.match(folded, run[i:].lower())) for i in starts)
    return any(found and {i, i + found.end()} <= bounds for i, found in ends)


@settings(deadline=None, max_examples=300 if IS_LONG else 100)
@given(WORDS.map("".join), WORDS.map("".join), st.sampled_from(["a", "a b", "ab", "c", "a a", "x"]))
def test_the_runs_of_the_pieces_are_those_that_hold_the_claim(text, other, claim):
    pages = [Document("1", "T", text), Document("2", "U", other), Document("3", "T", "a b a")]
    pieces = quotable_pieces(pages, VOCABULARY, 1, boundaries="words")
    expected = {(title, run) for title, run in runs(pieces) if plainly_holds(run, claim)}
    assert runs(pieces_holding(pieces, claim)) == expected


def test_a_claim_that_occurs_a_thousand_times_keeps_its_graph_small():
    """Each occurrence had 4,000 characters of its own: of this page, four million."""
    text = "".join(f"7 and {number} then " for number in range(1000, 2000))  # all are different
    pieces = quotable_pieces([Document("1", "T", text)], VOCABULARY, 1, boundaries="words")
    (found,) = pieces_holding(pieces, "7").values()
    assert sum(len(each.text) for each in found) < 65_000
    assert all(holds_claim(each.text, "7") for each in found)
    few = quotable_pieces(
        [Document("1", "T", "then " * 900 + "7" + " then" * 900)], VOCABULARY, 1, boundaries="words"
    )
    ((piece,),) = pieces_holding(few, "7").values()
    assert len(piece.text) > 3900, "a single one has all of its room"


def test_a_run_near_a_second_occurrence_is_kept_where_none_near_the_first_is():
    """The sentence ends too far from the first, so it belonged to neither."""
    sentence = f"Then 7 {'word ' * 28}7 {'word ' * 16}end."
    often = "So 7. " * 200
    pages = [Document("1", "T", sentence), Document("2", "U", often)]
    pieces = quotable_pieces(pages, VOCABULARY, 1, boundaries="sentences")
    assert ("T", sentence) in runs(pieces_holding(pieces, "7"))


# Claims of one character are often on pages that have all of them as words.
ALPHABET = " ".join(string.ascii_letters + string.digits)
PAGES = [
    Document("1", "The mill", f"{ALPHABET}. It was b, then c, never d; e f g h."),
    Document("2", "Mills", f"Nobody knows. {ALPHABET[::-1]} A mill has no d e."),
]
QUOTES = QuoteSettings(maximum_claim=1, minimum_quote=2)
SAMPLING = SamplingSettings(max_tokens=48)
PROMPTS = [[5, 6, 7], [8, 9]]


SOURCES = [[PAGES[0]], PAGES]


def drawn(support, questions, count, seed=0):
    """Samples of questions, each a list of numbers of `PROMPTS`."""
    constraint = QuoteConstraint(VOCABULARY, QUOTES)
    sources = [SOURCES[prompt] for prompts in questions for prompt in prompts]
    tables = constraint.tables([constraint.graph(shown) for shown in sources], 48)
    pages = Shown(constraint, sources) if support else None
    keys = jax.random.split(jax.random.key(seed), len(questions))
    asked = [[PROMPTS[prompt] for prompt in prompts] for prompts in questions]
    return sample_in_turn(model(), asked, count, keys, SAMPLING, tables, shown=pages)


def holds(sample):
    (triple,) = evidence.parse(sample.text)
    return plainly_holds(triple.quote, triple.claim)


def could_hold(sample, sources):
    (triple,) = evidence.parse(sample.text)
    return any(plainly_holds(page.text, triple.claim) for page in sources)


# Samples of eight prompts, for one program: those of as many questions, and of half as many.
ALONE = [[0], [1]] * 4
SEVERAL = [[0, 1]] * 4


def test_claims_stay_and_a_single_quote_that_lacks_its_claim_is_drawn_again():
    seeds = range(2)
    before = [one for seed in seeds for (one,) in drawn(False, ALONE, 1, seed)]
    after = [one for seed in seeds for (one,) in drawn(True, ALONE, 1, seed)]
    rules = answer_judge.Rules(48, 2, None, 1, 1)
    again = 0
    for (number,), one, other in zip(ALONE * len(seeds), before, after, strict=True):
        (first,), (second,) = evidence.parse(one.text), evidence.parse(other.text)
        assert first.claim == second.claim
        judged = [shown(page, "words") for page in SOURCES[number]]
        text = other.text.removesuffix(VOCABULARY.decode([VOCABULARY.eos_id]))
        assert not answer_judge.faults_of_text(text, judged, rules)
        assert not other.quote_lacks_claim
        if not holds(one) and could_hold(one, SOURCES[number]):
            assert holds(other)
            again += 1
        else:
            assert one == other
    assert again >= 3
    # Log-probabilities are those of the whole answer, as if it had been given.
    texts = [[each.tokens] for each in after]
    prompts = [PROMPTS[number] for (number,) in ALONE * len(seeds)]
    scored = score(model().transformer, model().params, prompts, texts, pad_id=VOCABULARY.pad_id)
    for row, each in zip(scored.log_probs, after, strict=True):
        assert each.log_prob == pytest.approx(float(np.sum(row)), abs=1e-3)


def test_of_several_samples_those_that_lack_their_claims_are_marked():
    """They are drawn again only where no other sample of the question is without the mark."""
    marked = redrawn = 0
    for seed in range(6):
        before, after = drawn(False, SEVERAL, 2, seed), drawn(True, SEVERAL, 2, seed)
        for one, other in zip(before, after, strict=True):
            lacks = [not holds(s) and could_hold(s, SOURCES[s.prompt]) for s in one]
            if all(lacks):
                assert all(map(holds, other))
                assert not any(each.quote_lacks_claim for each in other)
                redrawn += 1
                continue
            assert [each.quote_lacks_claim for each in other] == lacks
            assert [each._replace(quote_lacks_claim=False) for each in other] == one
            marked += sum(lacks)
    assert marked >= 5
    assert redrawn >= 1


def test_the_second_pass_is_the_first_one_s_program():
    drawn(True, ALONE, 1)
    programs = decode._cache_size()
    drawn(True, ALONE, 1, seed=1)
    assert decode._cache_size() == programs
    assert drawn(True, ALONE, 1, seed=1) == drawn(True, ALONE, 1, seed=1)


@pytest.mark.parametrize("per_question", [1, 2])
def test_no_more_is_drawn_again_than_questions_need(per_question, caplog):
    """And the numbers need no program of their own."""
    constraint, small, counts = QuoteConstraint(VOCABULARY, QUOTES), model(), [1] * 8
    sources, prompts = SOURCES * 4, PROMPTS * 4
    tables = constraint.tables([constraint.graph(shown) for shown in sources], 48)
    passes = []

    def draw(**options):
        made = sample(
            small.transformer, small.params, prompts, settings=SAMPLING, pad_id=VOCABULARY.pad_id,
            eos_id=VOCABULARY.eos_id, vocabulary_size=VOCABULARY.size,
            other_eos_ids=VOCABULARY.other_eos_ids, **options,
        )  # fmt: skip
        passes.append(made.tokens.tolist())
        return made

    keys = jax.random.split(jax.random.key(4), 8)
    with jax.log_compiles():
        made, lacks = claim_in_quote.sample_supported(
            draw,
            keys,
            [0] * 8,
            tables,
            counts,
            VOCABULARY,
            Shown(constraint, sources),
            per_question,
        )
    assert caplog.text.count("Compiling jit(decode)") <= 1
    first, again = passes
    changed = [old != new for old, new in zip(first, made.tokens.tolist(), strict=True)]
    assert 0 < sum(changed) < 8
    assert [made.tokens.tolist()[row] for row in np.flatnonzero(changed)] == again
    # Whole questions are drawn again, and of the others not all samples are marked.
    by_question = np.reshape(changed, (-1, per_question))
    assert (by_question.all(axis=1) == by_question.any(axis=1)).all()
    assert not (by_question & lacks.reshape(by_question.shape)).any()
    assert lacks.any() == (per_question == 2)


def test_what_is_drawn_again_takes_the_place_of_the_first():
    def samples(first, passes):
        numbers = np.arange(first, first + 20).reshape(5, 4)
        logs = -numbers.astype(np.float32)
        lengths = numbers[:, 0] % 4 + 1
        return Samples(numbers, lengths, logs, logs / 2, None, passes)

    before, again = samples(0, 7), samples(100, 5)
    # Rows 1 and 4 are of prompts 0 and 1; the second prompt's samples come after the first one's 3.
    redraws = Redraws(
        rows=np.array([1, 4]),
        slots=np.array([0, 1]),
        prompts=np.array([0, 1]),
        begun=np.array([2, 3]),
        counts=np.array([3, 3]),
        quotes=None,
    )
    made = claim_in_quote.put_into(before, redraws, again)
    assert made.passes == 12
    assert made.faults is None
    kept = [0, 2, 3]
    for part, one, other in zip(made[:4], before[:4], again[:4], strict=True):
        np.testing.assert_array_equal(part[kept], one[kept])
        if one is not before.constrained_log_probs:
            np.testing.assert_array_equal(part[[1, 4]], other[[0, 4]])
    # Of its claim's tokens each keeps what the first pass's constraint made of them.
    first, second = before.constrained_log_probs, again.constrained_log_probs
    np.testing.assert_array_equal(made.constrained_log_probs[1], [*first[1, :2], *second[0, 2:]])
    np.testing.assert_array_equal(made.constrained_log_probs[4], [*first[4, :3], *second[4, 3:]])


def test_as_much_is_drawn_again_as_the_tables_of_the_first_pass_hold():
    """Larger tables would need another program; each question has its most frequent claim."""
    rng = random.Random(0)
    filler = " ".join("".join(rng.choices("bcdfg", k=6)) for _ in range(500))
    pages = [[Document("1", "The mill", f"It is old. {ALPHABET}. {filler}")] for _ in range(2)]
    constraint = QuoteConstraint(VOCABULARY, QUOTES)
    quotes = constraint.host_tables([constraint.graph(page) for page in pages], 48)
    claims = [*"01234599", *"01288345"]
    answers = [f" %<{claim}>%(The mill)%[It is old.]%" for claim in claims]
    rows = [[*spell(rng, VOCABULARY, text.encode()), VOCABULARY.eos_id] for text in answers]
    lengths = np.array([len(row) for row in rows])
    tokens = np.array([np.resize(row, 48) for row in rows])
    samples, counts = Samples(tokens, lengths, None, None, None, 0), [8, 8]
    lacking = claim_in_quote.unsupported(VOCABULARY, Shown(constraint, pages), samples, counts)
    assert [each.row for each in lacking] == list(range(16))
    redraws = claim_in_quote.to_redraw(constraint, lacking, samples, counts, quotes)
    assert redraws.quotes.claim.shape == quotes.claim.shape
    assert redraws.quotes.token.shape == quotes.token.shape
    assert redraws.counts.sum() == len(redraws.rows) < 16
    assert {claims[row] for row in redraws.rows} >= {"9", "8"}
    # Of one question there is room for more.
    more = claim_in_quote.to_redraw(constraint, lacking[:8], samples, counts, quotes)
    assert more.counts[0] > redraws.counts[0]
    assert more.quotes.token.shape == quotes.token.shape
    # Graphs whose answers don't fit into the tokens are no one's.
    short = samples._replace(tokens=tokens[:, : lengths.min() - 8])
    assert claim_in_quote.to_redraw(constraint, lacking, short, counts, quotes) is None


def test_answers_of_several_triples_are_as_they_come():
    several = QuoteConstraint(VOCABULARY, QuoteSettings(maximum_triples=2))
    assert claim_in_quote.unsupported(VOCABULARY, Shown(several, []), None, [1]) == []
