"""The prompts of appendix D.2: what they show, how it is shared out, what is left out and why."""

import collections
import gzip
import json
import pathlib
import random
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from vocabulary_fixtures import vocabularies

from gophercite import prompts
from gophercite.documents import Document
from gophercite.retrieval import contexts as contexts_module
from gophercite.retrieval.contexts import (
    Context,
    ContextError,
    ContextSettings,
    Reason,
    SearchResult,
    each_context,
    joint_context,
)
from gophercite.retrieval.training_contexts import rollout_context, training_context
from gophercite.text.sentences import sentence_spans

VOCABULARIES = vocabularies()
UNIGRAM = VOCABULARIES["unigram"]
QUESTION = "When was the lighthouse built?"
QUOTE = "Its tower was begun in 1874."


def page(name: str, sentences: int, fact: str = "") -> Document:
    text = [f"Sentence {i} is about {name} and the sea." for i in range(sentences)]
    text.insert(sentences // 2, fact)
    return Document(name, f"About {name}", " ".join(text), url=f"https://{name}.example")


def result(name: str, sentences: int = 40) -> SearchResult:
    fact = f"The keeper of {name} was paid in herring."
    return SearchResult(page(name, sentences, fact), f"<b>The keeper</b> of {name} was paid in …")


TARGET = page("Ormsby", 60, QUOTE)
OTHERS = [result(name) for name in ("Ilse", "Kesh", "Anner", "Dunmore", "Thole", "Wick")]


def contexts(number: int, **changes: object) -> Iterator[Context]:
    settings = ContextSettings(**changes)  # type: ignore[arg-type]
    for seed in range(number):
        draw = random.Random(seed)
        yield training_context(QUESTION, TARGET, QUOTE, OTHERS, 600, UNIGRAM, draw, settings)


def ids(context: Context) -> list[str]:
    return [window.document.id for window in context.windows]


def test_a_third_have_one_document_and_the_rest_one_to_five_in_any_order() -> None:
    made = [ids(context) for context in contexts(900)]
    sizes = collections.Counter(map(len, made))
    assert sizes[1] / 900 == pytest.approx(1 / 3 + 2 / 3 / 5, abs=0.05)
    for size in (2, 3, 4, 5):
        assert sizes[size] / 900 == pytest.approx(2 / 3 / 5, abs=0.04)
    for shown in made:
        # The target, and the first of the other results.
        assert set(shown) == {"Ormsby", *(o.document.id for o in OTHERS[: len(shown) - 1])}
    places = collections.Counter(shown.index("Ormsby") for shown in made if len(shown) == 5)
    assert set(places) == {0, 1, 2, 3, 4}


def test_every_prompt_holds_the_quote_and_the_snippets_within_the_budget() -> None:
    for context in contexts(60):
        assert len(context.tokens) <= 600
        assert list(context.tokens) == prompts.encode_prompt(UNIGRAM, QUESTION, context.windows)
        for window in context.windows:
            fact = QUOTE if window.document is TARGET else "The keeper of"
            assert fact in window.text
            assert window.text in window.document.text
        assert context.left_out == ()


def test_shares_follow_the_factors() -> None:
    """Two documents: the larger share is up to three times the other, and all of it is used."""
    ratios = []
    for context in contexts(300, single_fraction=0.0, max_documents=2):
        if len(context.windows) == 2:
            sizes = [len(UNIGRAM.encode(window.text)) for window in context.windows]
            ratios.append(max(sizes) / min(sizes))
            assert len(context.tokens) > 560
    assert max(ratios) < 3.3
    assert max(ratios) > 2.2
    assert min(ratios) < 1.1
    for context in contexts(20, single_fraction=0.0, least_factor=1.0, largest_factor=1.0):
        sizes = [len(UNIGRAM.encode(window.text)) for window in context.windows]
        assert max(sizes) - min(sizes) <= 15  # the last word is not cut


def test_equal_draws_give_equal_prompts_and_others_others() -> None:
    first, again = list(contexts(20)), list(contexts(20))
    assert first == again
    assert len({context.tokens for context in first}) > 15


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=6),
    st.integers(60, 400),
    st.sampled_from(sorted(VOCABULARIES)),
    st.integers(0, 1000),
    st.booleans(),
)
def test_the_quote_is_always_shown_or_the_reason_told(others, budget, kind, seed, passages) -> None:
    vocabulary = VOCABULARIES[kind]
    found = [
        SearchResult(page(f"n{i}", size, "A fact of its own."), "A fact of its own." if s else None)
        for i, (size, s) in enumerate(others)
    ]
    titles = [Document("", f"About n{i}", "") for i in range(len(found))]
    least = [Document("", TARGET.title, QUOTE), *titles]
    fits = len(prompts.encode_prompt(vocabulary, QUESTION, least)) + 10 <= budget

    def make() -> Context:
        draw = random.Random(seed)
        settings = ContextSettings(passages=passages)
        return training_context(QUESTION, TARGET, QUOTE, found, budget, vocabulary, draw, settings)

    if not fits:
        try:
            made = make()
        except ContextError as error:
            event(error.reason.value)
            return
    else:
        made = make()
    assert len(made.tokens) <= budget
    assert any(QUOTE in window.text for window in made.windows if window.document is TARGET)
    absent = {id for id, _ in made.left_out}
    assert passages or absent.isdisjoint(ids(made))  # of one page, a passage may be left out
    assert all(reason is Reason.SNIPPET_TOO_LONG for _, reason in made.left_out)


def long_page() -> Document:
    """Paragraphs, of which every tenth mentions the lighthouse; one has the quote."""
    paragraphs = [f"Paragraph {i} is about Ormsby. It has fish. It has gulls." for i in range(80)]
    for i in range(0, 80, 10):
        paragraphs[i] = f"In {1900 + i} the lighthouse got lamp {i}. It was seen from far away."
    paragraphs[35] = f"{QUOTE} The lighthouse is still there."
    return Document("Ormsby", "About Ormsby", "\n\n".join(paragraphs))


def test_passages_that_fit_the_question_best_are_shown_also_of_one_page() -> None:
    long = long_page()
    settings = ContextSettings(single_fraction=0.0, passages=True)
    places, with_it = set(), []
    starts = collections.defaultdict(set)
    for seed in range(60):
        draw = random.Random(seed)
        made = training_context(QUESTION, long, QUOTE, OTHERS, 600, UNIGRAM, draw, settings)
        assert len(made.tokens) <= 600
        assert list(made.tokens) == prompts.encode_prompt(UNIGRAM, QUESTION, made.windows)
        places |= {i for i, window in enumerate(made.windows) if QUOTE in window.text}
        # Other pages say nothing of a lighthouse.
        assert set(ids(made)) == {"Ormsby"}
        with_it += ["lighthouse" in window.text for window in made.windows]
        starts[len(made.windows)].add(tuple(sorted(window.start for window in made.windows)))
        spans = [(window.start, window.end) for window in made.windows]
        assert not any(a != b and a[0] <= b[0] and b[1] <= a[1] for a in spans for b in spans)
        assert len(set(spans)) == len(spans)
        assert any(QUOTE in window.text for window in made.windows)
    assert np.mean(with_it) > 0.9
    assert set(starts) == {1, 2, 3, 4, 5}
    assert places == {0, 1, 2, 3, 4}
    # Several windows begin where their passages do, as at inference, unless a quote would not fit.
    # Only the quote alone has a window that begins anywhere.
    assert all(len(starts[number]) <= 2 for number in (2, 3, 4, 5))
    assert len(starts[1]) > 3


def test_sampled_questions_get_passages_too_and_whole_pages_where_no_word_fits() -> None:
    settings = ContextSettings(single_fraction=0.0, max_documents=3, passages=True)
    for seed in range(20):
        results = [*OTHERS[:2], SearchResult(long_page(), "lamp")]
        draw = random.Random(seed)
        made = rollout_context(QUESTION, results, 600, UNIGRAM, draw, settings)
        assert set(ids(made)) == {"Ormsby"}
        results.insert(0, OTHERS[2])  # so that it is not among the first three
        draw = random.Random(seed)
        made = rollout_context(QUESTION, results, 600, UNIGRAM, draw, settings)
        assert "Ormsby" not in ids(made)
        draw = random.Random(seed)
        made = rollout_context("Quando?", OTHERS, 600, UNIGRAM, draw, settings)
        assert set(ids(made)) <= {"Ilse", "Kesh", "Anner"}
        assert all("The keeper of" in window.text for window in made.windows)


def test_pages_without_a_fitting_passage_are_not_added_to_those_with_one() -> None:
    rain = "It rains. " * 300
    page = Document("p", "Ormsby", f"{QUOTE} {rain} The lighthouse was built. {rain}")
    settings = ContextSettings(single_fraction=0.0, passages=True)
    shown = collections.Counter(
        tuple(ids(training_context(QUESTION, page, QUOTE, OTHERS, 600, UNIGRAM, draw, settings)))
        for draw in map(random.Random, range(30))
    )
    assert set(shown) == {("p",), ("p", "p")}  # up to five were asked for


@pytest.mark.parametrize("sentences", range(8, 16))
def test_a_page_that_fits_is_shown_once_whatever_passages_it_has(sentences: int) -> None:
    text = " ".join(f"The lighthouse was built for {i} ships." for i in range(sentences))
    short = Document("p", "Ormsby", f"{QUOTE} {text}")
    rain = "It rains. " * 100
    found = [SearchResult(Document("q", "Kesh", f"{rain}A lighthouse. {rain}"), None)]
    settings = ContextSettings(single_fraction=0.0, least_factor=0.1, passages=True)
    for seed in range(20):
        draw = random.Random(seed)
        made = training_context(QUESTION, short, QUOTE, found, 900, UNIGRAM, draw, settings)
        spans = [(window.document.id, window.start, window.end) for window in made.windows]
        assert len(set(spans)) == len(spans)


def test_a_quote_of_two_sentences_is_shown_whichever_passages_there_are() -> None:
    sentences = [f"The lighthouse was built for {i} ships." for i in range(60)]
    long = Document("p", "Ormsby", " ".join(sentences))
    settings = ContextSettings(single_fraction=0.0, passages=True)
    for first in range(50):
        draw = random.Random(first)
        quote = " ".join(sentences[first : first + 2])
        made = training_context(QUESTION, long, quote, [], 500, UNIGRAM, draw, settings)
        assert any(quote in window.text for window in made.windows)


def test_a_quote_gets_what_it_needs_and_its_passage_no_more() -> None:
    text = "The tower was begun in 1874. " * 20
    passage, other = (0, 500), (0, 28)
    for quote in ((0, 28), (0, 140)):
        pages = [
            contexts_module.PageToShow(Document("p", "", text), (passage, quote), quoted=True),
            contexts_module.PageToShow(Document("q", "", text), (other,), factor=9.0),
        ]
        shares = contexts_module._shares(pages, 400, UNIGRAM)
        need = len(UNIGRAM.encode(text[slice(*quote)]))
        assert (need > 40) is (quote[1] > 28)
        assert shares == [max(40, need), 400 - max(40, need)]


def test_pages_without_their_snippet_make_room_for_the_next() -> None:
    gone = SearchResult(page("gone", 40), "Sign in to read the newsletter of our town")
    empty = SearchResult(Document("empty", "Empty", " \n"), "The keeper of Ilse")
    twice = SearchResult(Document("twice", "Copy", TARGET.text), "Its tower was begun")
    newer = SearchResult(
        Document(TARGET.id, TARGET.title, f"{TARGET.text} Seen today."), "Seen today"
    )
    others = [gone, twice, newer, empty, *OTHERS]
    for seed in range(40):
        made = training_context(
            QUESTION, TARGET, QUOTE, others, 600, UNIGRAM, random.Random(seed), ContextSettings()
        )
        expected = {"Ormsby", *(o.document.id for o in OTHERS[: len(made.windows) - 1])}
        assert set(ids(made)) == expected
        if len(made.windows) > 1:
            assert made.left_out == (
                ("gone", Reason.SNIPPET_NOT_FOUND),
                ("empty", Reason.EMPTY_PAGE),
            )


def alone(result: SearchResult) -> Context:
    return joint_context(QUESTION, [result], 300, UNIGRAM)


def test_a_page_without_a_snippet_is_shown_from_anywhere() -> None:
    plain = [SearchResult(OTHERS[0].document)]
    starts = set()
    for seed in range(60):
        draw = random.Random(seed)
        made = training_context(QUESTION, TARGET, QUOTE, plain, 300, UNIGRAM, draw)
        starts |= {window.start for window in made.windows if window.document is not TARGET}
    assert len(starts) > 8
    (context,), _ = each_context(plain, alone)
    assert context.windows[0].start == 0


def articles() -> list[Document]:
    """Wikipedia's from ../shared/data beside the repository, where that is; else a made-up one."""
    path = pathlib.Path(__file__).parents[2] / "../shared/data/squad/wikipedia.json.gz"
    if not path.exists():
        return [TARGET]
    with gzip.open(path) as file:
        data = json.load(file)["data"]
    return [
        Document(a["title"], a["title"], "\n\n".join(p["context"] for p in a["paragraphs"]))
        for a in data
        if a["paragraphs"]
    ]


def test_every_sentence_of_an_article_can_be_a_training_target() -> None:
    found = articles()
    draw = random.Random(0)
    for article in found:
        for start, end in draw.sample(sentence_spans(article.text), 3):
            quote = article.text[start:end]
            others = [SearchResult(other) for other in found if other is not article]
            made = training_context(QUESTION, article, quote, others, 1500, UNIGRAM, draw)
            assert len(made.tokens) <= 1500
            assert any(quote in window.text for window in made.windows)


@pytest.mark.parametrize(
    ("quote", "budget", "reason"),
    [
        ("Its tower was begun in 1875.", 600, Reason.QUOTE_NOT_FOUND),
        ("", 600, Reason.QUOTE_NOT_FOUND),
        (TARGET.text, 200, Reason.QUOTE_TOO_LONG),
        (QUOTE, 20, Reason.NO_ROOM),
    ],
)
def test_examples_that_cannot_be_shown_say_why(quote: str, budget: int, reason: Reason) -> None:
    with pytest.raises(ContextError, match=reason.value) as caught:
        training_context(QUESTION, TARGET, quote, [], budget, UNIGRAM, random.Random(0))
    assert caught.value.reason is reason


def test_a_quote_in_another_case_is_found() -> None:
    made = training_context(QUESTION, TARGET, QUOTE.upper(), [], 100, UNIGRAM, random.Random(0))
    assert QUOTE in made.windows[0].text


def test_inference_shows_one_result_in_each_prompt() -> None:
    gone = SearchResult(page("gone", 40), "Sign in to read the newsletter of our town")
    made, left_out = each_context([OTHERS[0], gone, OTHERS[1]], alone)
    assert [ids(context) for context in made] == [["Ilse"], ["Kesh"]]
    assert left_out == [("gone", Reason.SNIPPET_NOT_FOUND)]
    for context, shown in zip(made, OTHERS, strict=False):
        (window,) = context.windows
        assert 280 < len(context.tokens) <= 300
        place = window.document.text.index("The keeper")
        assert 0 < place - window.start <= 500
        assert window.document is shown.document
    assert each_context([], alone) == ([], [])


def test_a_place_that_is_known_is_shown_whatever_the_snippet() -> None:
    document, snippet = OTHERS[0].document, OTHERS[0].snippet
    start = document.text.index("Sentence 30")
    for end in (start + 30, len(document.text)):  # all of that fits, or at least its beginning
        placed = SearchResult(document, snippet, (start, end))
        settings = ContextSettings(characters_before=0)
        (window,) = joint_context(QUESTION, [placed], 120, UNIGRAM, settings).windows
        assert window.start == start
        assert len(window.text) > 30


def test_inference_can_share_one_prompt() -> None:
    made = joint_context(QUESTION, OTHERS[:3], 300, UNIGRAM)
    assert ids(made) == ["Ilse", "Kesh", "Anner"]
    assert len(made.tokens) <= 300
    assert all("The keeper of" in window.text for window in made.windows)
    with pytest.raises(ContextError) as caught:
        joint_context(QUESTION, [], 300, UNIGRAM)
    assert caught.value.reason is Reason.NO_PAGE


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"single_fraction": 1.5}, "single_fraction is 1.5"),
        ({"max_documents": 0}, "max_documents is 0"),
        ({"least_factor": 0.0}, "least_factor is 0.0"),
        ({"least_factor": 2.0}, "the first not above the second"),
    ],
)
def test_wrong_settings_are_refused(setting: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ContextSettings(**setting)  # type: ignore[arg-type]
