"""What benchmarks/mutants.py names is there: its sources, its tests and its edits by hand."""

import pathlib
import re

import pytest

from benchmarks import mutants

NAMED = sorted({test for tests in mutants.SUBJECTS.values() for test in tests})


@pytest.mark.parametrize("test", NAMED)
def test_each_test_that_is_to_notice_exists(test: str) -> None:
    file, _, function = test.partition("::")
    text = (mutants.ROOT / mutants.TESTS / file).read_text()
    assert not function or re.search(rf"^def {function.partition('[')[0]}\(", text, re.MULTILINE)


@pytest.mark.parametrize("subject", mutants.SUBJECTS)
def test_each_subject_is_a_source(subject: str) -> None:
    assert (mutants.ROOT / "gophercite" / subject).is_file()


@pytest.mark.parametrize(("subject", "old", "new"), mutants.BY_HAND)
def test_each_edit_by_hand_has_a_place(subject: str, old: str, new: str) -> None:
    text = pathlib.Path(mutants.ROOT, "gophercite", subject).read_text()
    assert old in text
    assert old != new
