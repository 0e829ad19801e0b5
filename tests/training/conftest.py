"""What tests of training share."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gophercite.training.program import Program, shapes_of


@pytest.fixture(scope="module")
def compiled_once() -> Iterator[None]:
    """Runs with equal learners on equal meshes share their compiled programs."""

    def once(compile: Callable[[Program, Any], Any]) -> Callable[[Program, Any], Any]:
        made: dict[Any, Any] = {}

        @functools.wraps(compile)
        def compiled(program: Program, batch: Any) -> Any:
            state = shapes_of(program.state_target())
            key = program.learner, program.partitioner, state, shapes_of(batch)
            if key not in made:
                made[key] = compile(program, batch)
            return made[key]

        return compiled

    with pytest.MonkeyPatch.context() as patch:
        for name in ("compile_update", "compile_evaluate"):
            patch.setattr(Program, name, once(getattr(Program, name)))
        yield
