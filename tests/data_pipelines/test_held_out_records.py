"""Which of a few records is held out: one that can be used."""

import json
import zlib

import pytest

from data_pipelines import own_records
from gophercite import records
from gophercite.documents import Document

PAGE = Document("p", "Mill", "It was built in 1812. It burned.")
PLACES = {f"q{n}": zlib.crc32(f"q{n}".encode()) / 2**32 for n in range(400)}
NAMES = sorted((name for name in PLACES if PLACES[name] > 0.2), key=PLACES.__getitem__)[:6]
IN_SHARE = min(PLACES, key=PLACES.__getitem__)


def source_of(folder, names, bad):
    answers = [
        records.RatedAnswer(
            name, "When?", (PAGE,), "1812", "Mill", "It was built in 1812.", "p",
            supported=False if name in bad else None,
        )
        for name in names
    ]  # fmt: skip
    records.write(folder / "records.jsonl", answers)
    return own_records.OwnRecordsSource(folder)


def questions(source, split):
    return [json.loads(source.record(split, n)[1]) for n in range(source.count(split))]


def held(source):
    return {each["question_id"] for each in questions(source, "validation")}


@pytest.mark.parametrize("bad", [0, 1, 3])
def test_the_nearest_question_that_can_be_used_is_held_out(tmp_path, bad):
    source = source_of(tmp_path, NAMES, NAMES[:bad])
    assert held(source) == {NAMES[bad]}
    assert len(questions(source, "train")) == len(NAMES) - 1
    assert "only one question is held out" in source.warning("validation")


def test_one_is_held_out_if_those_in_the_share_cannot_be_used(tmp_path):
    assert held(source_of(tmp_path, [IN_SHARE, *NAMES], [IN_SHARE])) == {IN_SHARE, NAMES[0]}


def test_the_share_is_held_out_as_before(tmp_path):
    source = source_of(tmp_path, [IN_SHARE, *NAMES], NAMES[:1])
    assert held(source) == {IN_SHARE}
    assert source.warning("validation") is None


def test_nothing_that_can_be_used_leaves_the_nearest(tmp_path):
    assert held(source_of(tmp_path, NAMES, NAMES)) == {NAMES[0]}
