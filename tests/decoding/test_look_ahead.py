"""What is made ahead is yielded in order, and all of it before an error of the source."""

from collections.abc import Iterator

import pytest

from gophercite.decoding.look_ahead import made_ahead


def failing() -> Iterator[int]:
    yield from (1, 2, 3)
    raise OSError("the file ends here")


@pytest.mark.parametrize("ahead", [0, 1, 2, 9])
def test_an_error_of_the_source_comes_after_what_was_made_before_it(ahead: int) -> None:
    found: list[tuple[int, int]] = []
    with pytest.raises(OSError, match="the file ends here"):
        found.extend(made_ahead(lambda item: item * item, failing(), ahead))
    assert found == [(1, 1), (2, 4), (3, 9)]
    assert list(made_ahead(str, range(5), ahead)) == [(n, str(n)) for n in range(5)]
