"""What tests of training share."""

from collections.abc import Iterator

import pytest

from tests.shared_programs import shared_programs


@pytest.fixture(scope="module")
def compiled_once() -> Iterator[None]:
    """Runs with equal learners on equal meshes share their compiled programs."""
    with shared_programs(lambda program: program.learner):
        yield
