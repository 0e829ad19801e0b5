"""Comparisons made of a model's own judged samples."""

import json
from pathlib import Path

import pytest

from data_pipelines import sample_comparisons
from gophercite import evidence, records
from gophercite.records import Comparison
from gophercite.records.types import Response


def said(claim: str) -> str:
    return f" %<{claim}>%(Mill)%[It burned in 1812.]%"


def write_samples(path: Path, *rows: tuple[str, str, bool | None]) -> Path:
    lines = [
        {"question_id": id, "question": f"When, {id}?", "text": text, "supported": supported}
        for id, text, supported in rows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def made(folder: Path, split: str = "train") -> list[Comparison]:
    return list(records.read(folder / f"comparisons_{split}.jsonl", Comparison, strict=True))


def better(comparison: Comparison) -> Response:
    return comparison.responses[int(comparison.preferred or 0)]


def test_a_supported_sample_is_preferred_to_each_other_of_its_question(tmp_path: Path) -> None:
    rows: list[tuple[str, str, bool | None]] = []
    for number in range(40):
        rows += [(f"q{number}", said("1812"), True), (f"q{number}", said("1812"), True)]
        rows += [(f"q{number}", said(f"18{other}"), False) for other in range(20, 25)]
    rows += [("all good", said("1812"), True), ("all bad", said("1813"), False)]
    samples = write_samples(tmp_path / "samples.jsonl", *rows)
    assert sample_comparisons.main([str(samples), str(tmp_path / "out"), "--held-out", "0"]) == 0
    comparisons = made(tmp_path / "out")
    assert len(comparisons) == 40 * 3
    assert not made(tmp_path / "out", "validation")
    for comparison in comparisons:
        first, second = comparison.supported_and_plausible
        assert (first, second) == (comparison.preferred == 0, comparison.preferred == 1)
        assert better(comparison) == evidence.parse(said("1812"))
        assert comparison.question == f"When, {comparison.id.split('/')[0]}?"
        worse = comparison.responses[1 - int(comparison.preferred or 0)]
        assert not isinstance(worse, str)
        assert worse[0].claim in {"1820", "1821", "1822", "1823", "1824"}
    of_one = [each.responses for each in comparisons if each.id.startswith("q7/")]
    assert len({frozenset(pair) for pair in of_one}) == 3  # no two compare the same
    assert {each.preferred for each in comparisons} == {0.0, 1.0}  # either side


def test_questions_are_held_out_whole_and_by_their_id(tmp_path: Path) -> None:
    rows: list[tuple[str, str, bool | None]] = []
    for number in range(200):
        rows += [(f"q{number}", said("1812"), True), (f"q{number}", said("1813"), False)]
        rows += [(f"q{number}", said("1814"), False)]
    samples = write_samples(tmp_path / "samples.jsonl", *rows)
    assert sample_comparisons.main([str(samples), str(tmp_path), "--held-out", "0.3"]) == 0
    train, validation = made(tmp_path), made(tmp_path, "validation")
    questions = [{each.id.split("/")[0] for each in split} for split in (train, validation)]
    assert not questions[0] & questions[1]
    assert 30 < len(questions[1]) < 90
    assert len(train) + len(validation) == 400
    first = made(tmp_path)
    assert sample_comparisons.main([str(samples), str(tmp_path), "--held-out", "0.3"]) == 0
    assert made(tmp_path) == first  # nothing is drawn anew


def test_malformed_samples_are_compared_as_texts(tmp_path: Path) -> None:
    samples = write_samples(
        tmp_path / "samples.jsonl", ("q", said("1812"), True), ("q", " %<1812>%(Mill", False)
    )
    assert sample_comparisons.main([str(samples), str(tmp_path), "--held-out", "0"]) == 0
    (comparison,) = made(tmp_path)
    assert " %<1812>%(Mill" in comparison.responses


def test_the_judged_part_of_a_few_shot_sample_is_compared(tmp_path: Path) -> None:
    """Its text goes on with a question that nobody asked, in the examples' form."""
    lines = [
        {"question_id": "q", "question": "When?", "text": f"{claim}\nQuestion: Where?{n}",
         "answer": said(claim), "supported": claim == "1812"}
        for n, claim in enumerate(("1812", "1813", "1813"))
    ]  # fmt: skip
    samples = tmp_path / "samples.jsonl"
    samples.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert sample_comparisons.main([str(samples), str(tmp_path), "--held-out", "0"]) == 0
    (comparison,) = made(tmp_path)
    assert better(comparison) == evidence.parse(said("1812"))
    assert evidence.parse(said("1813")) in comparison.responses


def test_what_can_t_be_used_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples = write_samples(tmp_path / "samples.jsonl", ("q", said("1812"), None))
    assert sample_comparisons.main([str(samples), str(tmp_path)]) == 1
    printed = capsys.readouterr().err
    assert "samples.jsonl:1: field 'supported': is missing; judge the samples first" in printed
    assert "no question has a supported sample and an unsupported one" in printed
    assert sample_comparisons.main([str(tmp_path / "nowhere.jsonl"), str(tmp_path)]) == 1
    assert f"{tmp_path / 'nowhere.jsonl'}: no such file or directory" in capsys.readouterr().err
    for wrong in (["--pairs", "0"], ["--held-out", "1"]):
        with pytest.raises(SystemExit):
            sample_comparisons.main([str(samples), str(tmp_path), *wrong])
