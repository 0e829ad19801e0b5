"""Answers to many questions: while the device samples one, a thread makes the next ones ready.

What the host does for a question (finding and reading its pages, cutting them, tokens, the tables
of what may be quoted) takes tens of milliseconds for each page, in which a device would stand idle.
"""

import collections
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from gophercite.answering.answerer import Answerer, Prepared
from gophercite.answering.pages import FoundPages
from gophercite.answers import Answer

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


class Asked(NamedTuple):
    """One question of many.

    Attributes:
      question: as it was asked; filters in it are taken out.
      find: gives its pages; called once, in a thread of its own, and in the questions' order.
      seed: of its draws.
    """

    question: str
    find: Callable[[], FoundPages]
    seed: int = 0


def answer_each(
    answerer: Answerer, questions: Iterable[Asked], *, keep_samples: bool = False, ahead: int = 2
) -> Generator[Answer, None, None]:
    """Answers questions in their order, each as `Answerer.answer` would by itself.

    Args:
      answerer: what answers.
      questions: taken as they are needed.
      keep_samples: whether answers carry all samples.
      ahead: questions that are made ready while one is answered, whose pages and tables are then in
        memory; 0 makes each ready when its turn comes, without a thread.

    Yields:
      An answer to each question. A ValueError over a question is its answer's `reason`.

    Raises:
      ValueError: `ahead` is negative.
      SearchError, OSError: or whatever else `find` raises ends the answers, at its question's turn.
    """
    if ahead < 0:
        raise ValueError(f"ahead = {ahead}: must be 0 (nothing is done ahead) or more")

    def prepare(asked: Asked) -> Prepared | ValueError:
        try:
            return answerer.prepare(asked.question, asked.find())
        except ValueError as error:
            return error

    def answer(asked: Asked, prepared: Prepared | ValueError) -> Answer:
        try:
            if isinstance(prepared, ValueError):
                raise prepared
            return answerer.answer_prepared(prepared, seed=asked.seed, keep_samples=keep_samples)
        except ValueError as error:
            return Answer(question=asked.question, model=answerer.name, reason=str(error))

    for asked, prepared in _made_ahead(prepare, questions, ahead):
        yield answer(asked, prepared)


def _made_ahead(
    make: Callable[[_Item], _Made], items: Iterable[_Item], ahead: int
) -> Iterator[tuple[_Item, _Made]]:
    """Yields each item with what is made of it, by a thread that is at most so many ahead."""
    if not ahead:
        for item in items:
            yield item, make(item)
        return
    waiting: collections.deque[tuple[_Item, Future[_Made]]] = collections.deque()
    pool = ThreadPoolExecutor(1, thread_name_prefix="prepare")
    try:
        for item in items:
            waiting.append((item, pool.submit(make, item)))
            if len(waiting) > ahead:
                first, made = waiting.popleft()
                yield first, made.result()
        while waiting:
            first, made = waiting.popleft()
            yield first, made.result()
    finally:
        pool.shutdown(cancel_futures=True)
