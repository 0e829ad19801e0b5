"""Which samples people are to compare, and what becomes of their ratings."""

import dataclasses
import json
import math
import pathlib
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines import rated_rounds, rating_items
from data_pipelines.rating_items import Sampled, choose, contrast, truth_of
from gophercite import records
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.records import Comparison, Question, RatedAnswer, Span

PAGE = Document("p", "Mill", "It burned in 1812. It was built in 1730. It stands by the Dusa.")


def sampled(
    claim: str, log_prob: float = -1.0, reward: float | None = None, good: bool | None = None
) -> Sampled:
    answer = RatedAnswer("q", "When?", (PAGE,), claim, "Mill", "It burned in 1812.", "p")
    return Sampled(answer, log_prob, reward, good, good)


def claims(items: list[tuple[Sampled, Sampled]]) -> list[set[str]]:
    return [{each.answer.claim for each in two} for two in items]


def test_disagreement_takes_the_likeliest_answers_of_the_two_commonest_claims() -> None:
    samples = {
        "agreed": [sampled("1812"), sampled("1812.", -2), sampled("1812", -3), sampled("1730")],
        "split": [
            sampled("1730", -9.0), sampled("1730.", -3.0), sampled("1812", -5.0),
            sampled("the 1812", -4.0), sampled("1900", -0.1),
        ],
    }  # fmt: skip
    chosen = choose(samples, "disagreement", 2, random.Random(0))
    assert claims(chosen.items) == [{"1730.", "the 1812"}, {"1812", "1730"}]
    assert claims(choose(samples, "disagreement", 1, random.Random(0)).items) == [
        {"1730.", "the 1812"}
    ]
    assert chosen.passed_over["questions beyond --items"] == 0


def test_uncertainty_takes_the_closest_rewards() -> None:
    samples = {
        "sure": [sampled("a", reward=0.0), sampled("b", reward=5.0)],
        "unsure": [sampled("c", reward=-3.0), sampled("d", reward=1.0), sampled("e", reward=1.5)],
    }
    chosen = choose(samples, "uncertainty", 1, random.Random(0))
    assert claims(chosen.items) == [{"d", "e"}]
    assert chosen.passed_over["questions beyond --items"] == 1
    with pytest.raises(ValueError, match="needs rewards"):
        choose({"q": [sampled("a"), sampled("b", reward=1.0)]}, "uncertainty", 1, random.Random(0))


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), st.integers(0, 99))
def test_entropy_orders_questions_and_pairs_are_of_different_samples(
    drawn: list[str], seed: int
) -> None:
    samples = [sampled(claim, -float(at)) for at, claim in enumerate(drawn)]
    for by in ("random", "disagreement"):
        chosen = choose({"q": samples}, by, 5, random.Random(seed))
        assert len(chosen.items) == (len(samples) > 1)
        for first, second in chosen.items:
            assert first is not second
            differ = first.answer.claim != second.answer.claim
            assert differ or by == "random" or len({*drawn}) == 1
    if len(samples) > 1:
        shares = [drawn.count(claim) / len(drawn) for claim in {*drawn}]
        entropy, _ = rating_items._disagreeing(samples, random.Random(seed))
        assert entropy == pytest.approx(-sum(share * math.log(share) for share in shares))


def test_sides_are_drawn() -> None:
    samples = {str(n): [sampled("a"), sampled("b", -2.0)] for n in range(200)}
    items = choose(samples, "disagreement", 200, random.Random(1)).items
    assert 70 < sum(first.answer.claim == "a" for first, _ in items) < 130


def test_what_is_right_of_an_item_is_what_is_known_of_both() -> None:
    assert truth_of(sampled("a", good=True), sampled("b", good=False)) == {
        "plausible_0": "yes", "supported_0": "yes", "plausible_1": "no", "supported_1": "no",
    }  # fmt: skip
    assert truth_of(sampled("a", good=True), sampled("b")) is None


def line(text: str, **fields: Any) -> dict[str, Any]:
    judged = {"claim_correct": True, "supported": False}
    return {"question_id": "q", "text": text, "log_prob": -1.0, **judged, **fields}


def test_samples_become_items_and_faults_are_counted(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        line("%<1812>%(Mill)%[It burned in 1812.]%"),
        line(" %<1812>%(Mill)%[It burned in 1812.]%"),  # the same again
        line('1730 (Mill: "…")', answer="%<1730>%(Mill)%[built in 1730]%", supported=True),
        line("1730"),
        line("%<1730>%(Mill)%[it never was]%"),
        line("%<1730>%(Windmill)%[built in 1730]%"),
        line("%<1>%(Mill)%[built in 1730]%%<2>%(Mill)%[built in 1730]%"),
        line("%<1812>%(Mill)%[It burned in 1812.]%", question_id="another"),
    ]
    samples = tmp_path / "of_samples.jsonl"
    samples.write_text("".join(json.dumps(each) + "\n" for each in lines) + '{"text": 1}\n')
    questions = tmp_path / "questions.jsonl"
    records.write(questions, [Question("q", "When?", "s", (PAGE,), ("1812",))])
    arguments = [str(samples), str(questions), str(tmp_path / "items")]
    assert rating_items.main(arguments) == 0
    said = capsys.readouterr()
    for expected in (
        "1 malformed samples", "2 samples whose quote is not in its page", "1 samples with several",
        "1 samples whose question is not in the file", "1 items",
    ):  # fmt: skip
        assert expected in said.out
    assert "of_samples.jsonl:9" in said.err
    items = list(records.read(tmp_path / "items" / "items.jsonl", RatedAnswer, strict=True))
    assert {(each.claim, each.quote) for each in items} == {
        ("1812", "It burned in 1812."), ("1730", "built in 1730"),
    }  # fmt: skip
    assert [each.documents for each in items] == [(PAGE,)] * 2
    truth = json.loads((tmp_path / "items" / "truth.jsonl").read_text())
    place = [each.claim for each in items].index("1730")
    assert truth["item"] == "q"
    assert truth["values"][f"supported_{place}"] == "yes"
    assert truth["values"][f"supported_{1 - place}"] == "no"


def test_nothing_to_rate_is_an_error(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("samples", "questions"):
        (tmp_path / name).write_text("")
    names = [str(tmp_path / name) for name in ("samples", "questions", "items")]
    assert rating_items.main(names) == 1
    assert "no question has two answers to compare" in capsys.readouterr().err
    assert rating_items.main([str(tmp_path / "none"), *names[1:]]) == 1
    assert "none" in capsys.readouterr().err


def test_an_only_answer_is_compared_with_its_claim_beside_another_sentence(
    tmp_path: pathlib.Path,
) -> None:
    start = PAGE.text.index("It was built")
    end = start + len("It was built in 1730.")
    question = Question("q", "When?", "s", (PAGE,), ("1812",), (Span("p", start, end),))
    others = {contrast(sampled("1812", good=True), question, random.Random(n)) for n in range(20)}
    assert {each.answer.quote: each.supported for each in others if each} == {
        "It was built in 1730.": True,  # of this question, whose gold evidence that is
        "It stands by the Dusa.": False,
    }
    for each in others:
        assert each is not None
        assert (each.answer.claim, each.plausible) == ("1812", True)
    unknown = contrast(sampled("1812"), question, random.Random(0))
    assert unknown is not None
    assert unknown.supported is None
    alone = dataclasses.replace(PAGE, text="It burned in 1812.")
    bare = dataclasses.replace(question, documents=(alone,), evidence=())
    assert contrast(sampled("1812", good=True), bare, random.Random(0)) is None

    (tmp_path / "samples").write_text(json.dumps(line("%<1812>%(Mill)%[It burned in 1812.]%")))
    records.write(tmp_path / "questions", [question])
    names = [str(tmp_path / name) for name in ("samples", "questions", "items")]
    assert rating_items.main(names) == 1
    assert rating_items.main([*names, "--contrast"]) == 0
    path = tmp_path / "items" / "items.jsonl"
    items = list(records.read(path, RatedAnswer, strict=True))
    assert [each.claim for each in items] == ["1812", "1812"]
    assert "It burned in 1812." in {each.quote for each in items}
    # They may be being rated: a run that finds nothing leaves them alone.
    before = path.read_bytes()
    assert rating_items.main(names) == 1
    assert path.read_bytes() == before
    # Nor are questions overwritten that are named as the items are.
    path.write_bytes((tmp_path / "questions").read_bytes())
    assert rating_items.main([names[0], str(path), names[2], "--contrast"]) == 1
    assert path.read_bytes() == (tmp_path / "questions").read_bytes()


# --- Rounds ---


def write_round(folder: pathlib.Path, number: int, questions: int) -> None:
    folder.mkdir()
    pair = ((Evidence("1812", "Mill", "It burned in 1812."),), (Evidence("1", "Mill", "1812."),))
    answers, compared = [], []
    for at in range(questions):
        text = f"question {number} {at}?"
        for good in (True, False, None):
            quoted = "1812", "Mill", "It burned in 1812.", "p", good, True
            answers.append(RatedAnswer(f"{number}-{at}", text, (PAGE,), *quoted))
        preferred = (0.0, 0.5, None)[at % 3]
        compared.append(Comparison(f"{number}-{at}", text, "s", pair, preferred))
    records.write(folder / "rated_answers.jsonl", answers)
    records.write(folder / "comparisons.jsonl", compared)


def test_rounds_add_up_and_questions_stay_on_their_side(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = [tmp_path / f"round {number}" for number in range(3)]
    for number, folder in enumerate(rounds):
        write_round(folder, number, 30)
    sides = []
    for count in (1, 3):
        out = tmp_path / f"data {count}"
        arguments = [str(out), *map(str, rounds[:count]), "--held-out", "0.3"]
        assert rated_rounds.main(arguments) == 0
        read = {
            split: {
                each.question
                for each in records.read(
                    out / "comparisons" / f"comparisons_{split}.jsonl", Comparison, strict=True
                )
            }
            for split in ("train", "validation")
        }
        assert not read["train"] & read["validation"]
        assert len(read["train"]) + len(read["validation"]) == 30 * count
        sides.append(read)
        files = sorted(path.name for path in (out / "answers").iterdir())
        assert files == [f"round_{number}.jsonl" for number in range(count)]
        good = list(records.read(out / "answers" / "round_0.jsonl", RatedAnswer, strict=True))
        assert len(good) == 30
        assert all(each.plausible and each.supported for each in good)
        counts = json.loads((out / "counts.json").read_text())
        assert counts == [{"answers": 90, "good": 30, "comparisons": 30, "decided": 10}] * count
    assert sides[0]["validation"] <= sides[1]["validation"]
    assert 10 < len(sides[1]["validation"]) < 45
    # A merge of fewer rounds leaves no answers of the others.
    assert rated_rounds.main([str(out), *map(str, rounds[:2]), "--held-out", "0.3"]) == 0
    assert sorted(path.name for path in (out / "answers").iterdir()) == files[:2]
    assert "round 2: 90 answers, 30 good; 30 comparisons" in capsys.readouterr().out


def test_too_few_comparisons_are_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_round(tmp_path / "round", 0, 1)
    assert rated_rounds.main([str(tmp_path / "out"), str(tmp_path / "round")]) == 1
    assert "have more items rated" in capsys.readouterr().err


def test_rounds_without_a_good_answer_are_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_round(tmp_path / "round", 0, 5)
    path = tmp_path / "round" / "rated_answers.jsonl"
    bad = [dataclasses.replace(each, supported=False) for each in records.read(path, RatedAnswer)]
    records.write(path, bad)
    assert rated_rounds.main([str(tmp_path / "out"), str(tmp_path / "round")]) == 1
    assert "none of the 15 answers was rated plausible and supported" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("side", ["train", "validation"])
def test_ties_alone_are_nothing_to_train_or_to_validate_with(
    tmp_path: pathlib.Path, side: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of ties a reward model's accuracy is not known, and its best checkpoint neither."""
    write_round(tmp_path / "round", 0, 30)
    arguments = [str(tmp_path / "out"), str(tmp_path / "round"), "--held-out", "0.3"]
    assert rated_rounds.main(arguments) == 0
    kept = tmp_path / "out" / "comparisons" / f"comparisons_{side}.jsonl"
    here = {each.question for each in records.read(kept, Comparison)}
    path = tmp_path / "round" / "comparisons.jsonl"
    ties = [
        dataclasses.replace(each, preferred=0.5) if each.question in here else each
        for each in records.read(path, Comparison)
    ]
    records.write(path, ties)
    assert rated_rounds.main(arguments) == 1
    said = capsys.readouterr().err
    assert ("0 decided comparisons for training" if side == "train" else "0 for validation") in said
    assert "have more items rated" in said
