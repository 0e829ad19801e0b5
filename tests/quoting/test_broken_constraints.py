"""The ways in which benchmarks/broken_constraints.py breaks the constraint can still be made."""

import pytest

from benchmarks import broken_constraints


@pytest.mark.parametrize("each", broken_constraints.BREAKS, ids=lambda each: each.name)
def test_each_edit_has_one_place_in_the_code_as_it_stands(
    each: broken_constraints.Break,
) -> None:
    for edit in each.edits:
        code = (broken_constraints.ROOT / "gophercite" / edit.file).read_text("utf-8")
        assert code.count(edit.old) == 1, edit
        assert edit.new != edit.old
