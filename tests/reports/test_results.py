"""Which of a question's samples counts, and the files of an evaluation."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gophercite.documents import Document
from gophercite.evaluation.answers import JudgedSample, with_consensus
from gophercite.evaluation.citations import CitationQuality
from gophercite.evaluation.intervals import estimate
from gophercite.evaluation.metrics import judge
from gophercite.records import Question
from gophercite.reports.results import Outcome, Results, choose, sample_line
from gophercite.reports.saved_results import read_system

PAGE = Document("o", "Ormsby", "Its lighthouse was built in 1874. It burned in 1902.")
QUESTION = Question("q", "When?", "test", (PAGE,), ("1874",))
TEXTS = (
    " %<1902>%(Ormsby)%[It burned in 1902.]%",
    "1874, I think.",
    " %<1874>%(Ormsby)%[Its lighthouse was built in 1874.]%",
    " %<in 1874>%(Ormsby)%[Its lighthouse was built in 1874.]%",
    " %<in 1874>%(Ormsby)%[built in 1874.]%",
)


def samples() -> tuple[JudgedSample, ...]:
    """The most likely first; the last one has the highest reward."""
    return tuple(
        JudgedSample(
            QUESTION, text, text, judge(text, QUESTION), (0,) * 10, -n / 10, reward=float(n)
        )
        for n, text in enumerate(TEXTS)
    )


def test_each_way_of_choosing() -> None:
    agreed = with_consensus(samples())
    assert choose(agreed, "likelihood").text == TEXTS[0]
    longer = dataclasses.replace(agreed[2], tokens=(0,) * 100)
    assert choose((*agreed[:2], longer, *agreed[3:]), "mean").text == TEXTS[0]  # 0 nats a token
    assert choose((*agreed[1:2], longer, *agreed[3:]), "mean").text == TEXTS[2]
    assert choose((*agreed[1:2], longer, *agreed[3:]), "likelihood").text == TEXTS[1]
    assert choose(agreed, "reward").text == TEXTS[4]
    assert choose(agreed).text == choose(agreed, "consensus").text == TEXTS[3]
    values = [sample.consensus for sample in agreed]
    assert values[1] == 0, "it is not in the syntax"
    assert values[3] == max(values)
    assert sample_line(agreed[3], "m", 0)["consensus"] == values[3]


def test_a_quote_that_lacks_its_claim_counts_only_if_all_do() -> None:
    agreed = with_consensus(samples())
    marked = [
        dataclasses.replace(each, quote_lacks_claim=each.text in (TEXTS[3], TEXTS[4], TEXTS[0]))
        for each in agreed
    ]
    assert choose(marked).text == choose(marked, "reward").text == TEXTS[2]
    assert choose(marked, "mean").text == choose(marked, "likelihood").text == TEXTS[1]
    all_marked = [dataclasses.replace(each, quote_lacks_claim=True) for each in agreed]
    assert choose(all_marked).text == TEXTS[3]
    # The mark is kept with the sample.
    (first, *_), (_, _, third, *_) = marked, marked
    assert sample_line(first, "m", 0)["quote_lacks_claim"]
    assert "quote_lacks_claim" not in sample_line(third, "m", 0)


def test_pages_weigh_as_they_are_ordered() -> None:
    other = Document("b", "Burnt", "It burned in 1902.")
    question = dataclasses.replace(QUESTION, documents=(PAGE, other))
    burned = " %<1902>%(Burnt)%[It burned in 1902.]%"
    for first, second in ((TEXTS[2], burned), (burned, TEXTS[2])):
        pages = (PAGE, other) if first == TEXTS[2] else (other, PAGE)
        asked = dataclasses.replace(question, documents=pages)
        both = [
            JudgedSample(asked, text, text, judge(text, asked), document=page.id)
            for text, page in zip((second, first), pages[::-1], strict=True)
        ]
        assert choose(with_consensus(both)).text == first


def test_what_an_earlier_evaluation_left_is_deleted(tmp_path: Path) -> None:
    """Otherwise its samples and figures would be taken for those of the answers next to them."""
    several = [dataclasses.replace(each, question=QUESTION) for each in samples()]

    def write(kept: Sequence[JudgedSample], **more: Any) -> set[str]:
        outcomes = [Outcome(QUESTION, tuple(kept))] if kept else []
        systems = {"model": [each.judgement for each in several[:1]]}
        Results("t", systems, outcomes=outcomes, best=kept[:1], **more).write(tmp_path / "test")
        return {path.name for path in tmp_path.iterdir()}

    (tmp_path / "test_of_another.jsonl").touch()
    report = {"test.md", "test.html", "test.json", "test_of_another.jsonl"}
    first = write(several, files={"_claims.jsonl": ""})
    assert {"test.jsonl", "test_samples.jsonl", "test_best_of.png", "test_claims.jsonl"} <= first
    later = write(several[:1])
    assert later - {f"test_{name}.png" for name in ("coverage", "roc")} == {*report, "test.jsonl"}
    assert read_system("m", tmp_path / "test").samples[0]["text"] == several[0].text
    assert write([]) == {*report, "test.jsonl"}


def test_declined_questions_are_no_samples(tmp_path: Path) -> None:
    """With one sample a question, the file of the answers is that of the samples, too."""
    other = dataclasses.replace(QUESTION, id="declined")
    outcomes = [Outcome(QUESTION, samples()[:1]), Outcome(other, "there is no page to show")]
    systems = {"model": [samples()[0].judgement]}
    Results("t", systems, outcomes=outcomes, best=samples()[:1]).write(tmp_path / "test")
    assert not (tmp_path / "test_samples.jsonl").exists()
    found = read_system("m", tmp_path / "test")
    for lines in (found.answers, found.samples):
        assert [line["question_id"] for line in lines] == [QUESTION.id]


def test_citation_quality_is_written_with_the_other_shares(tmp_path: Path) -> None:
    """An answer without a quote counts as 0, as in the report; without a model there is none."""
    asked = [dataclasses.replace(QUESTION, id=id) for id in ("a", "b")]
    best = [dataclasses.replace(samples()[n + 1], question=asked[1 - n]) for n in (1, 0)]
    outcomes = [Outcome(one.question, (one,)) for one in best]
    systems = {"model": [one.judgement for one in best], "baseline": [best[0].judgement]}
    measured = Results(
        "t", systems, outcomes=outcomes, best=best, citations=[CitationQuality(1.0, 0.5), None]
    )
    measured.write(tmp_path / "test")
    lines = [json.loads(line) for line in (tmp_path / "test.jsonl").read_text().splitlines()]
    found = [(each["citation_recall"], each["citation_precision"]) for each in lines]
    assert found == [(1.0, 0.5), (0.0, 0.0)]
    written = json.loads((tmp_path / "test.json").read_text())["systems"]
    assert written["model"]["citation_recall"] == dataclasses.asdict(estimate([1.0, 0.0]))
    assert written["model"]["citation_precision"]["mean"] == 0.25
    assert "citation_recall" not in written["baseline"]
    dataclasses.replace(measured, citations=()).write(tmp_path / "test")
    assert "citation_" not in (tmp_path / "test.jsonl").read_text()
    assert "citation_" not in (tmp_path / "test.json").read_text()


def test_one_sample_has_nothing_to_agree_with() -> None:
    (alone,) = with_consensus(samples()[:1])
    assert alone.consensus is None
    assert choose([alone]) is alone
    assert "consensus" not in sample_line(alone, "m", 0)
