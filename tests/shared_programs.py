"""Runs of a test file share the programs that are the same for them."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gophercite.training.program import Program, shapes_of


@contextmanager
def shared_programs(same: Callable[[Program], Any]) -> Iterator[None]:
    """Inside, a step is compiled once for all runs with equal shapes on equal meshes.

    Args:
      same: what else a program depends on; equal for runs that may share one.
    """

    def once(compile: Callable[[Program, Any], Any]) -> Callable[[Program, Any], Any]:
        made: dict[Any, Any] = {}

        @functools.wraps(compile)
        def compiled(program: Program, batch: Any) -> Any:
            shapes = shapes_of(program.state_target()), shapes_of(batch)
            key = same(program), program.partitioner, shapes
            if key not in made:
                made[key] = compile(program, batch)
            return made[key]

        return compiled

    with pytest.MonkeyPatch.context() as patch:
        for name in ("compile_update", "compile_evaluate"):
            patch.setattr(Program, name, once(getattr(Program, name)))
        yield
