"""Tables can be made in threads: side by side they come out the same, and nobody waits for them."""

import importlib
import pkgutil
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba.core.dispatcher import Dispatcher

from gophercite import commands, quoting
from gophercite.documents import Document
from gophercite.quoting.constraint import QuoteConstraint
from tests.quoting.quote_worlds import HOSTILE_PIECES, TokenList, hostile_documents


def test_threads_make_the_tables_that_one_makes() -> None:
    constraint = QuoteConstraint(TokenList(HOSTILE_PIECES))
    rng = random.Random(5)
    quotable = Document("q", "The end", "It is the end of the page.")
    prompts = [[*hostile_documents(rng, 400), quotable] for _ in range(12)]
    alone = [_columns(constraint, documents) for documents in prompts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda documents: _columns(constraint, documents), prompts))
    for one, other in zip(alone, together, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)


def _columns(constraint: QuoteConstraint, documents: list[Document]) -> dict[str, np.ndarray]:
    graph = constraint.graph(documents)
    return {"cost": graph.cost, **graph.edges._asdict()}


def test_loops_over_tables_run_without_the_interpreter_s_lock() -> None:
    modules = [
        importlib.import_module(f"{room.__name__}.{module.name}")
        for room in (quoting, commands)
        for module in pkgutil.iter_modules(room.__path__)
    ]
    loops = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, Dispatcher)
    }
    assert len(loops) > 10
    assert [loop.__name__ for loop in loops if not loop.targetoptions["nogil"]] == []
