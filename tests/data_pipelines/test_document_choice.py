"""Appendix D.2's prompts in a seqio task: whole, reproducible, within the row, with a report."""

import itertools
import json
import logging

import numpy as np
import pytest

from data_pipelines import document_choice, tasks
from data_pipelines.document_choice import ContextReport
from data_pipelines.inputs import Input
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite import evidence, records
from gophercite.documents import Document, Window
from gophercite.retrieval.contexts import Context, ContextSettings, Reason

VOCABULARY = bundled_vocabulary()
LENGTH, RESPONSE = 256, 64
SETTINGS = ContextSettings(response_tokens=RESPONSE)
EXAMPLES = 12


def pages(number: int) -> list[records.FoundDocument]:
    """Pages too long for a row: the first has the answer, all have their snippet."""
    made = []
    for rank in range(5):
        name = f"Town {number}-{rank}"
        filling = [f"It has {i} houses and a mill." for i in range(60)]
        filling.insert(20 + 5 * rank, f"The town of {name} was founded in {1200 + number}.")
        snippet = f"The town of <b>{name}</b> was founded in …"
        text = " ".join(filling)
        made.append(records.FoundDocument(f"{number}-{rank}", name, text, snippet=snippet))
    return made


def answer(number: int, **changes: object) -> dict[str, object]:
    found = pages(number)
    target = found[number % 5]
    quote = f"The town of {target.title} was founded in {1200 + number}."
    rated = records.RatedAnswer(
        question_id=f"q{number}",
        question=f"When was {target.title} founded?",
        documents=tuple(found),
        claim=f"In {1200 + number}.",
        title=target.title,
        quote=quote,
        document=target.id,
        plausible=True,
        supported=True,
    )
    return {**records.to_json(rated), **changes}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "rated.jsonl"
    path.write_text("\n".join(json.dumps(answer(number)) for number in range(EXAMPLES)))
    return {"train": path, "validation": path}


@pytest.fixture
def report(files):
    report = ContextReport()
    tasks.add_rated_answers("pages", files, VOCABULARY, contexts=SETTINGS, report=report)
    return report


def texts(batches):
    """The prompt and response of each row, by question."""
    found = {}
    for batch in batches:
        for tokens, segments in zip(batch["tokens"], batch["segments"], strict=True):
            text = VOCABULARY.decode(tokens[segments > 0].tolist())
            found[text.split("Question: ")[1].split("\n")[0]] = text
    return found


def source(**changes):
    settings = {"length": LENGTH, "batch_size": 1, "seed": 3, "pack": False, **changes}
    return Input("pages", "train", **settings)


def test_every_prompt_shows_the_quote_and_leaves_room_for_the_response(report) -> None:
    rows = list(itertools.islice(source().batches(), 5 * EXAMPLES))
    assert source().report.dropped == 0
    assert report.made >= 5 * EXAMPLES
    assert not report.dropped
    assert set(report.documents) == {1, 2, 3, 4, 5}
    for row in rows:
        weighted = row["weights"][0] > 0
        assert np.argmax(weighted) < LENGTH - RESPONSE  # where the response is predicted from
        text = VOCABULARY.decode(row["tokens"][0][row["segments"][0] > 0].tolist())
        prompt, response = text.split("Answer:")
        (triple,) = evidence.parse(response)
        assert triple.quote in prompt
        assert f"Page: {triple.title}\n" in prompt
        for shown in prompt.split("Page: ")[1:]:
            assert f"The town of {shown.splitlines()[0]} was founded in" in shown


def test_each_epoch_shows_other_windows_and_a_run_repeats_itself(report) -> None:
    rows = list(itertools.islice(source().batches(), 2 * EXAMPLES))
    first, second = texts(rows[:EXAMPLES]), texts(rows[EXAMPLES:])
    assert set(first) == set(second)
    changed = sum(first[question] != second[question] for question in first)
    assert changed >= EXAMPLES - 1
    again = itertools.islice(source().batches(EXAMPLES), EXAMPLES)
    assert texts(again) == second
    other = itertools.islice(source(seed=4).batches(), EXAMPLES)
    assert texts(other) != first


def test_prompts_depend_neither_on_order_nor_on_hosts(report) -> None:
    whole = texts(source(shuffle=False).one_pass())
    shares: dict[str, str] = {}
    for host in range(2):
        share = source(shuffle=False, batch_size=2, process_index=host, process_count=2)
        shares |= texts(share.one_pass())
    assert shares == whole
    assert len(whole) == EXAMPLES


def test_a_record_says_what_was_shown(report) -> None:
    for question in source().questions(limit=EXAMPLES):
        (span,) = question.evidence
        shown = {document.id: document for document in question.documents}
        document = shown[span.document]
        assert isinstance(document, Document)
        assert "was founded in" in document.text[span.start : span.end]
        assert len(VOCABULARY.encode(document.text)) <= LENGTH - RESPONSE


def test_passages_of_one_page_are_told_apart_in_the_record(tmp_path) -> None:
    path = tmp_path / "rated.jsonl"
    page = pages(1)[1]
    years = " ".join(f"In {year} a mill was built. The river froze." for year in range(1300, 1400))
    long = Document(page.id, page.title, f"{page.text} {years}")
    changed = answer(1, documents=[records.to_json(long)], question="When was a mill founded?")
    path.write_text(json.dumps(changed))
    settings = ContextSettings(RESPONSE, single_fraction=0.0, passages=True)
    report = ContextReport()
    tasks.add_rated_answers("pages", {"train": path}, VOCABULARY, contexts=settings, report=report)
    for row in itertools.islice(source().batches(), 20):
        text = VOCABULARY.decode(row["tokens"][0][row["segments"][0] > 0].tolist())
        assert "was founded in 1201." in text.split("Answer:")[0]
    assert not report.dropped
    assert set(report.documents) == {1, 2, 3, 4, 5}
    found = [source(seed=seed).questions(limit=1)[0] for seed in range(8)]
    question = max(found, key=lambda each: len(each.documents))
    (span,) = question.evidence
    shown = {document.id: document for document in question.documents}
    assert shown.keys() == {"1-1", *(f"1-1 ({n})" for n in range(2, len(shown) + 1))}
    assert len(shown) > 1
    assert "was founded in" in shown[span.document].text[span.start : span.end]


def test_gold_spans_move_to_the_window_that_has_them() -> None:
    page = Document("p", "Title", "First part. Second part. Third part.")
    other = Document("o", "Title", "Another page, which is as long as that one.")
    windows = (
        Window(page, 12, 24),
        Window(other, 0, 30),
        Window(page, 0, 11),
        Window(page, 25, 36),
    )
    gold = tuple(records.Span("p", *span) for span in ((0, 5), (12, 18), (6, 18)))
    question = records.Question("q", "Which?", "us", (page, other), evidence=gold)
    shown = document_choice._showing(question, Context(windows, ()))
    found = {d.id: d.text for d in shown.documents}
    assert found.pop("o") == other.text[:30]
    assert found == {"p": "Second part.", "p (2)": "First part.", "p (3)": "Third part."}
    texts = [found[each.document][each.start : each.end] for each in shown.evidence]
    assert texts == ["First", "Second"]  # the third is cut in two


def test_dropped_examples_are_counted_with_their_reasons(tmp_path, caplog) -> None:
    path = tmp_path / "rated.jsonl"
    whole_page = pages(1)[1]
    too_long = answer(1, quote=whole_page.text)
    moved = [records.to_json(page) | {"snippet": "Sign in to read on"} for page in pages(2)]
    changed_pages = answer(2, documents=moved)
    path.write_text("\n".join(map(json.dumps, (answer(0), too_long, changed_pages))))
    report = ContextReport()
    tasks.add_rated_answers("faulty", {"train": path}, VOCABULARY, contexts=SETTINGS, report=report)
    with caplog.at_level(logging.WARNING):
        rows = list(Input("faulty", "train", LENGTH, 1, seed=5, pack=False).one_pass())
    assert len(rows) == report.made == 2
    assert report.dropped == {Reason.QUOTE_TOO_LONG: 1}
    (error,) = report.errors
    assert error.startswith("0:1 (question 'q1'): the quote does not fit the prompt: ")
    assert error in caplog.text.replace(" was dropped (the report counts the others)", "")
    assert set(report.left_out) <= {Reason.SNIPPET_NOT_FOUND}


def test_rows_without_room_for_a_prompt_are_refused(files) -> None:
    tasks.add_rated_answers("pages", files, VOCABULARY, contexts=ContextSettings())
    with pytest.raises(ValueError, match="rows have 256 tokens, of which response_tokens=256"):
        next(source().batches())
