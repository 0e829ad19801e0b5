"""From questions and pages to prompts with search results: index, search, seqio task, statistics.

The last test reads SQuAD from `../shared/data`, next to the repository, where it is there; all that
it shows is tested on pages written here, too.
"""

import gzip
import json
from pathlib import Path

import pytest

from data_pipelines import convert, measure_prompts, search, tasks
from data_pipelines.converters.articles import join_passages
from data_pipelines.converters.gold import ConversionReport, GoldQuestion, document_of
from data_pipelines.converters.squad import convert_squad
from data_pipelines.document_choice import ContextReport
from data_pipelines.inputs import Input
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER, bundled_vocabulary
from gophercite import evidence, records
from gophercite.documents import Document
from gophercite.records import FoundDocument, Hit, Question, RatedAnswer, Span
from gophercite.retrieval.contexts import ContextSettings, Reason
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.search_results import (
    SearchReport,
    SearchSettings,
    with_pages,
    with_search_results,
)
from gophercite.storage.json_fields import RecordError

SHARED = Path(__file__).parents[2] / "../shared/data"
TOWNS = ("Alda", "Brenn", "Cove", "Dorn", "Esk", "Farl")


def page(town: str) -> Document:
    """A page too long for the rows below, with one sentence that answers the question."""
    houses = " ".join(f"House number {number} has a red door." for number in range(70))
    return Document(town.lower(), town, f"{houses} {quote(town)} {houses}")


def quote(town: str) -> str:
    return f"The town of {town} was founded in {1200 + len(town) * 7 + ord(town[0])}."


def answer(town: str, **changes: object) -> RatedAnswer:
    fields: dict = {
        "question_id": town,
        "question": f"When was the town of {town} founded?",
        "documents": (page(town),),
        "claim": quote(town)[-5:-1],
        "title": town,
        "quote": quote(town),
        "document": town.lower(),
        "plausible": True,
        "supported": True,
    }
    return RatedAnswer(**(fields | changes))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    records.write(folder / "answers.jsonl", map(answer, TOWNS))
    with DocumentIndex(folder / "corpus.db", write=True) as index:
        index.add(map(page, TOWNS))
    return folder


def run_search(folder: Path, *more: object) -> int:
    out = folder / "found.jsonl"
    files = map(str, (folder / "answers.jsonl", out, "--index", folder / "corpus.db"))
    return search.main(["rated-answers", *files, "--results", "4", *map(str, more)])


def test_answers_get_their_search_results(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_search(folder) == 0
    printed = capsys.readouterr().out
    assert "6 records written, 0 skipped" in printed
    assert "gold page found: 100.0% among 1 (of 6 questions that have one)" in printed
    for found in records.read(folder / "found.jsonl", RatedAnswer, strict=True):
        assert [type(source) for source in found.documents] == [Hit] * 4
        first = found.documents[0]
        assert isinstance(first, Hit)
        assert first.id == found.document
        assert found.title in first.snippet


def test_prompts_are_made_of_pages_in_the_index(folder: Path) -> None:
    assert run_search(folder) == 0
    report = ContextReport()
    tasks.add_rated_answers(
        "towns",
        {"train": folder / "found.jsonl"},
        bundled_vocabulary(),
        contexts=ContextSettings(response_tokens=64),
        report=report,
        index=folder / "corpus.db",
    )
    rows = list(Input("towns", "train", 320, 1, seed=0, pack=False).one_pass())
    assert len(rows) == report.made == len(TOWNS)
    assert len(report.documents) > 1
    for row in rows:
        prompt, response = bundled_vocabulary().decode(row["tokens"][0].tolist()).split("Answer:")
        (triple,) = evidence.parse(response)
        assert triple.quote in prompt


def test_an_index_needs_contexts(folder: Path) -> None:
    with pytest.raises(ValueError, match="an index of pages needs contexts"):
        tasks.add_rated_answers("towns", {}, bundled_vocabulary(), index=folder / "corpus.db")


def test_what_the_prompts_hold_is_measured(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = [
        answer("Alda", quote=page("Alda").text),  # longer than a prompt
        answer(
            "Brenn", documents=(Hit("brenn", "The town of"), Hit("gone", "No page has this id"))
        ),
        answer("Cove", documents=(Hit("cove", quote("Cove")), Hit("dorn", "Sign in to read on."))),
    ]
    records.write(folder / "changed.jsonl", changed)
    arguments = [str(folder / "changed.jsonl"), "--index", str(folder / "corpus.db"), "--epochs"]
    sizes = ["--vocabulary", str(VOCABULARY_FOLDER), "--length", "320", "--response-tokens", "64"]
    assert measure_prompts.main([*arguments, "20", *sizes]) == 0
    printed = capsys.readouterr()
    assert "20 prompts, 40 examples without one" in printed.out
    assert "20 the quote does not fit the prompt" in printed.out
    assert "20 a page is not in the index, or not the one that was quoted" in printed.out
    assert "window holds the quote: 100.00%" in printed.out
    lost = next(line for line in printed.out.splitlines() if "snippet was not found" in line)
    found, _, considered = lost.rpartition(": ")[2].partition(" of ")
    assert found == considered
    assert int(found) > 0
    assert "question 'Brenn'" in printed.err
    assert "the index has no page 'gone'" in printed.err


def test_what_the_prompts_of_questions_hold_is_measured(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = page("Alda").text.find(quote("Alda"))
    gold = (Span("alda", place, place + len(quote("Alda"))),)
    towns = [Hit("alda", quote("Alda")), Hit("dorn", quote("Dorn"))]
    asked = [
        Question("gold first", "When?", "us", tuple(towns), evidence=gold),
        Question("gold last", "When?", "us", tuple(towns[::-1]), evidence=gold),
        Question("gold unknown", "When?", "us", tuple(towns)),
        Question("no page", "When?", "us", ()),
    ]
    records.write(folder / "questions.jsonl", asked)
    arguments = [str(folder / "questions.jsonl"), "--questions", "--epochs", "30"]
    sizes = ["--index", str(folder / "corpus.db"), "--length", "320", "--response-tokens", "64"]
    vocabulary = ["--vocabulary", str(VOCABULARY_FOLDER)]
    assert measure_prompts.main([*arguments, *sizes, *vocabulary]) == 0
    printed = capsys.readouterr().out
    assert "90 prompts, 30 examples without one" in printed
    assert "30 there is no page to show" in printed
    # The first page is always there, the second in the prompts that show two.
    share = float(printed.partition("window holds the quote: ")[2].partition("%")[0])
    two = float(printed.partition("2: ")[2].partition("%")[0])
    assert share == pytest.approx((100 + two) / 2, abs=12)
    assert 35 < two < 72  # 2/3 × 4/5


def found_in(index: DocumentIndex, record, **settings):  # type: ignore[no-untyped-def]
    report = SearchReport()
    return with_search_results(record, index, SearchSettings(**settings), report), report


def test_a_gold_page_that_was_not_found_comes_last_or_not_at_all() -> None:
    gold = page("Alda")
    with DocumentIndex(None, write=True) as index:
        index.add(map(page, TOWNS[1:]))
        start = gold.text.index(quote("Alda"))
        spans = (Span("alda", start, start + 5),)
        asked = Question("q", "Which house has a red door?", "test", (gold,), ("all",), spans)
        kept, report = found_in(index, asked, results=3)
        assert kept.documents[-1] is gold
        assert len(kept.documents) == 4
        assert kept.evidence == spans
        assert (report.with_gold, report.recall(3), report.spans_left_out) == (1, 0.0, 0)
        left, report = found_in(index, asked, results=3, keep_gold=False)
        assert len(left.documents) == 3
        assert left.evidence == ()
        assert left.answers == ("all",)
        assert report.spans_left_out == 1
        assert left == records.from_json(records.to_json(left), Question)
        # An answer keeps the page that it quotes, whatever the settings say.
        rated, _ = found_in(index, answer("Alda", question="red door"), results=1, keep_gold=False)
        assert rated.documents[-1] == gold
        nothing, report = found_in(index, answer("Alda", question="?"), results=3)
        assert nothing.documents == (gold,)
        assert report.without_hits == 1


def test_keywords_are_for_the_engine_only() -> None:
    with DocumentIndex(None, write=True) as index:
        for number, host in enumerate(("en.wikipedia.org", "www.reddit.com")):
            text = page("Alda").text
            index.add([Document(str(number), "Alda", text, url=f"https://{host}/alda")])
        asked = Question("q", "When was Alda founded?", "test", ())
        for keywords, ids in (("", {"0", "1"}), ("-site:reddit.com", {"0"})):
            found, _ = found_in(index, asked, keywords=keywords)
            assert {source.id for source in found.documents} == ids
            assert found.question == "When was Alda founded?"


def test_another_page_under_the_same_id_is_refused() -> None:
    with DocumentIndex(None, write=True) as index:
        index.add([Document("alda", "Alda", f"{page('Alda').text} Since then much has changed.")])
        with pytest.raises(RecordError, match="another page under the id 'alda'"):
            found_in(index, answer("Alda"))


def test_pages_take_the_place_of_hits_with_their_snippets() -> None:
    pages = {town.lower(): page(town) for town in TOWNS}
    hits = (Hit("brenn", "House"), Hit("alda", "The town of Alda"))
    whole = with_pages(answer("Alda", documents=hits), pages.__getitem__)
    assert all(isinstance(source, FoundDocument) for source in whole.documents)
    assert [s.snippet for s in whole.documents if isinstance(s, FoundDocument)] == [
        "House", "The town of Alda",
    ]  # fmt: skip
    assert whole.documents[1].text == pages["alda"].text  # type: ignore[union-attr]
    for wrong, problem in (
        ({"title": "Brenn"}, "field 'title': the page 'alda' has the title 'Alda'"),
        ({"quote": "It was never founded."}, "field 'quote': is not verbatim in the page 'alda'"),
    ):
        with pytest.raises(RecordError, match=problem):
            with_pages(answer("Alda", documents=hits, **wrong), pages.__getitem__)
        with_pages(answer("Alda", documents=hits, supported=False, **wrong), pages.__getitem__)


def test_records_that_do_not_fit_the_index_are_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records.write(tmp_path / "answers.jsonl", map(answer, TOWNS))
    with DocumentIndex(tmp_path / "corpus.db", write=True) as index:
        index.add([*map(page, TOWNS[1:]), Document("alda", "Alda", quote("Alda"))])
    assert run_search(tmp_path) == 0
    printed = capsys.readouterr()
    assert "5 records written, 1 skipped" in printed.out
    assert "answers.jsonl: question 'Alda': field 'documents': the index has another" in printed.err
    (tmp_path / "found.jsonl").unlink()
    assert run_search(tmp_path, "--strict") == 1
    assert not (tmp_path / "found.jsonl").exists()
    missing = ["questions", str(folder / "answers.jsonl"), str(tmp_path / "out.jsonl"), "--index"]
    assert search.main([*missing, str(tmp_path / "none.db")]) == 1
    assert "none.db" in capsys.readouterr().err


# --- Articles ---


def gold_question(id: str, text: str, answer: str, title: str = "Mills") -> GoldQuestion:
    start = text.index(answer)
    span = (start, start + len(answer))
    return GoldQuestion(id, "When?", document_of("mills", title, text), title, (answer,), span)


def test_passages_are_joined_and_spans_move_along() -> None:
    gold = [
        gold_question("a", "It burned in 1812.", "1812"),
        gold_question("b", "It was built in 1700. Nobody knows why.", "1700"),
        gold_question("c", "It burned in 1812.", "burned"),
        gold_question("d", "A river, 12 km long.", "12 km", "Rivers"),
    ]
    joined = join_passages(gold)
    assert joined[0].document is joined[1].document
    assert (
        joined[0].document.text == "It burned in 1812.\n\nIt was built in 1700. Nobody knows why."
    )
    assert [item.document.title for item in joined] == ["Mills", "Mills", "Mills", "Rivers"]
    for item in joined:
        assert item.span is not None
        assert item.document.text[slice(*item.span)] == item.answers[0]


def test_articles_are_for_sources_that_have_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        convert.main(["fairytaleqa", "in.jsonl", "out", "--articles"])
    assert "--articles works only for squad and natural_questions" in capsys.readouterr().err


@pytest.mark.skipif(not SHARED.is_dir(), reason="no public data beside the repository")
def test_real_articles_give_prompts_that_hold_the_quote(tmp_path: Path) -> None:
    with gzip.open(SHARED / "squad/wikipedia.json.gz") as file:
        articles = json.load(file)["data"][:3]
    (tmp_path / "squad.json").write_text(json.dumps({"data": articles}))
    whole = list(convert_squad(tmp_path / "squad.json", ConversionReport()))
    assert len({item.document.id for item in join_passages(whole)}) == 3
    data = tmp_path / "data"
    arguments = ["squad", str(tmp_path / "squad.json"), str(data), "--articles"]
    assert convert.main([*arguments, "--validation", "0", "--test", "0"]) == 0
    answers = list(records.read(data / "rated_answers_train.jsonl", RatedAnswer))[::60]
    records.write(tmp_path / "answers.jsonl", answers)
    with DocumentIndex(tmp_path / "corpus.db", write=True) as index:
        index.add(records.read(data / "documents_train.jsonl", Document))
    assert run_search(tmp_path) == 0
    with DocumentIndex(tmp_path / "corpus.db") as index:
        found = measure_prompts.measure_prompts(
            list(records.read(tmp_path / "found.jsonl", RatedAnswer, strict=True)),
            600,
            bundled_vocabulary(),
            ContextSettings(),
            page=index.document,
        )
    assert found.report.made == found.with_quote == len(answers)
    assert found.report.left_out[Reason.SNIPPET_NOT_FOUND] == 0
