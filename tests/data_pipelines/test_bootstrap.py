"""From a few-shot prompted model's samples to rated answers."""

import json
from pathlib import Path

import pytest

from data_pipelines import bootstrap
from data_pipelines.bootstrapping import BootstrapReport, BootstrapSettings, Sampled, best_answer
from gophercite import records
from gophercite.documents import Document
from gophercite.few_shot.prompting import Style
from gophercite.records import Hit, Question, RatedAnswer, Span
from gophercite.retrieval.index import DocumentIndex

GOLD = "The mill burned down in 1812, in a very dry summer."
PAGE = Document("m", "Old mill", f"The mill was built by the river. {GOLD} It was never rebuilt.")
RIVER = Document("r", "River", "The river is long. It has many mills. Some burned in 1812.")
START = PAGE.text.index(GOLD)
QUESTION = Question(
    "q",
    "When did the mill burn?",
    "test",
    (RIVER, PAGE),
    ("in 1812",),
    (Span("m", START, START + len(GOLD)),),
)
SHORT, LONG = BootstrapSettings(Style.SHORT), BootstrapSettings(Style.LONG)


def chosen(
    texts: list[str], settings: BootstrapSettings = SHORT, question: Question = QUESTION
) -> tuple[RatedAnswer | None, BootstrapReport]:
    report = BootstrapReport()
    samples = [Sampled(text, model="base") for text in texts]
    return best_answer(question, samples, settings, report), report


def written(claim: str, quote: str, title: str = "Old mill") -> str:
    return f" %<{claim}>%({title})%[{quote}]%"


def test_the_sample_nearest_to_the_gold_answer_and_evidence_is_kept() -> None:
    best, report = chosen(
        [
            written("In 1812.", "Some burned in 1812.", "River"),
            written("In 1812.", GOLD) + "\n\nPage: Another\nText\n\nQuestion: Why?\nAnswer: %<x",
            written("In a very dry summer.", GOLD),
        ]
    )
    assert best is not None
    assert (best.claim, best.title, best.quote, best.document) == (
        "In 1812.",
        "Old mill",
        GOLD,
        "m",
    )
    assert (best.plausible, best.supported, best.model) == (True, True, "base")
    assert best.ratings == ({"rater": "ROUGE-L", "score": 1.0, "claim": 1.0, "quote": 1.0},)
    assert (report.samples, report.kept, report.rated_good, report.unrated) == (3, 1, 1, 0)


def test_what_a_quote_left_out_is_put_back() -> None:
    best, _ = chosen([written("1812", "The mill burned down [...] in a very dry summer.")])
    assert best is not None
    assert best.quote == GOLD
    assert best.supported


def test_samples_that_cannot_be_used_are_counted_by_reason() -> None:
    best, report = chosen(
        [
            "In 1812.",
            written("In 1812.", GOLD) + written("In summer.", GOLD),
            written(" ", GOLD),
            written("In 1812.", "The mill burned down in 1912."),
            written("In 1812.", GOLD, "New mill"),
            written("In 1812.", "1812"),
        ]
    )
    assert best is None
    assert report.kept == 0
    assert report.refused == {
        "malformed": 1,
        "several claims": 1,
        "no claim": 1,
        "the quote is not in the page": 1,
        "no page with that title": 1,
        "short quote": 1,
    }


def test_a_claim_gets_the_sentences_that_are_most_like_it() -> None:
    best, _ = chosen([f" {GOLD}\nQuestion: What else?"], LONG)
    assert best is not None
    assert best.claim == GOLD
    assert best.quote == PAGE.text
    report = BootstrapReport()
    only_river = Sampled("It burned in 1812.", document="r")
    of_river = best_answer(QUESTION, [only_river], LONG, report)
    assert of_river is not None
    assert of_river.document == "r"
    assert of_river.supported is False
    assert best_answer(QUESTION, [Sampled("x", "gone"), Sampled(" ")], LONG, report) is None
    assert report.refused == {"no page to take the evidence from": 1, "no claim": 1}


def test_where_nothing_is_known_people_have_to_rate() -> None:
    unknown = Question("q", "When?", "test", (RIVER, PAGE))
    nearer = "The mill was built by the river."
    best, report = chosen(["Nobody knows it.", nearer], LONG, unknown)
    assert best is not None
    assert best.claim == nearer
    assert (best.plausible, best.supported) == (None, None)
    assert report.unrated == 1


def test_the_command_writes_rated_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hits = (Hit("r", "The river is long."), Hit("m", "The mill burned"))
    records.write(tmp_path / "questions.jsonl", [records.Question("q", "When?", "test", hits)])
    with DocumentIndex(tmp_path / "corpus.db", write=True) as index:
        index.add([PAGE, RIVER])
    samples = [
        {"question_id": "q", "text": written("In 1812.", GOLD), "model": "base", "tokens": [1]},
        {"question_id": "q", "text": "%<"},
        {"text": "no question"},
    ]
    (tmp_path / "samples.jsonl").write_text("\n".join(map(json.dumps, samples)))
    files = [str(tmp_path / name) for name in ("samples.jsonl", "questions.jsonl", "out.jsonl")]
    index_flag = ["--index", str(tmp_path / "corpus.db")]
    assert bootstrap.main([*files, "--style", "short", *index_flag]) == 0
    (answer,) = records.read(tmp_path / "out.jsonl", RatedAnswer, strict=True)
    assert (answer.claim, answer.quote, answer.model) == ("In 1812.", GOLD, "base")
    printed = capsys.readouterr()
    assert "1 refused: malformed" in printed.out
    assert "samples.jsonl:3: field 'question_id'" in printed.err
    assert bootstrap.main([files[0], files[1], files[1], "--style", "short", *index_flag]) == 1
    assert f"bootstrap: {files[1]} would overwrite" in capsys.readouterr().err
    gone = records.Question("gone", "Why?", "test", (Hit("none", "x"),))
    records.write(
        tmp_path / "questions.jsonl", [gone, records.Question("q", "When?", "test", hits)]
    )
    with (tmp_path / "samples.jsonl").open("a") as file:
        file.write("\n{}" * 500)
    assert bootstrap.main([*files, "--style", "short", *index_flag]) == 0
    assert list(records.read(tmp_path / "out.jsonl", RatedAnswer, strict=True)) == [answer]
    said = capsys.readouterr().err
    assert "502 skipped" in said
    assert said.count("\n") < 120
    (tmp_path / "samples.jsonl").write_text("\n".join(map(json.dumps, samples)))
    assert bootstrap.main([*files, "--style", "short", *index_flag]) == 0
    said = capsys.readouterr().err
    assert "questions.jsonl: field 'documents': question 'gone': the index has no page" in said
    records.write(tmp_path / "others.jsonl", [records.Question("o", "When?", "test", hits)])
    others = [files[0], str(tmp_path / "others.jsonl"), files[2]]
    assert bootstrap.main([*others, "--style", "short", *index_flag]) == 1
    assert "2 refused: the question is not in the file of questions" in capsys.readouterr().out
    assert bootstrap.main([*files, "--style", "long", "--supported", "7"]) == 1
    assert "supported is 7.0: must be between 0 and 1" in capsys.readouterr().err
