"""Answers to many questions, some at a time: meanwhile a thread makes the next ones ready.

What the host does for a question (finding and reading its pages, cutting them, tokens, the tables
of what may be quoted) takes tens of milliseconds for each page, in which a device would stand idle.
And a device draws the samples of several questions in little more time than those of one.
"""

import collections
import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from gophercite.answering.answerer import Answerer, Batch, Prepared
from gophercite.answering.pages import FoundPages
from gophercite.records.answers import Answer

_SHORT = 256  # tokens of a prompt, up to which padding costs next to nothing

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


class _Block(NamedTuple):
    """Questions that follow each other, made ready.

    Attributes:
      batches: those that can be asked: with the places of the batch's questions among the block's.
      refused: what is wrong with the others, by their places.
      error: what happened at the question after the last of them and ends the answers; None where
        the block is whole.
    """

    batches: tuple[tuple[tuple[int, ...], Batch], ...]
    refused: dict[int, ValueError]
    error: Exception | None


def answer_each(
    answerer: Answerer,
    questions: Iterable[Asked],
    *,
    keep_samples: bool = False,
    batch_size: int = 1,
    ahead: int = 1,
) -> Generator[Answer, None, None]:
    """Answers questions in their order, each as `Answerer.answer` would by itself.

    Args:
      answerer: what answers.
      questions: taken as they are needed.
      keep_samples: whether answers carry all samples.
      batch_size: questions that follow each other and are answered at a time, those together that
        have as many prompts of about one length. An answer depends on the others by rounding alone,
        and not at all on those of other batches: the same questions in the same order have the same
        answers.
      ahead: batches that are made ready while one is answered, whose pages and tables are then in
        memory; 0 makes each ready when its turn comes, without a thread.

    Yields:
      An answer to each question. A ValueError over a question is its answer's `reason`.

    Raises:
      ValueError: `batch_size` is less than 1, or `ahead` is negative.
      SearchError, OSError: or whatever else `find` raises ends the answers, at its question's turn.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size = {batch_size}: must be at least 1")
    if ahead < 0:
        raise ValueError(f"ahead = {ahead}: must be 0 (nothing is done ahead) or more")

    make_ready = functools.partial(_made_ready, answerer)
    for block, made in _made_ahead(make_ready, _blocks(questions, batch_size), ahead):
        answers = {
            place: Answer(question=block[place].question, model=answerer.name, reason=str(refusal))
            for place, refusal in made.refused.items()
        }
        for places, batch in made.batches:
            seeds = [block[place].seed for place in places]
            answers |= zip(places, _answers(answerer, batch, seeds, keep_samples), strict=True)
        for place in sorted(answers):
            yield answers[place]
        if made.error is not None:
            raise made.error


def _made_ready(answerer: Answerer, block: Sequence[Asked]) -> _Block:
    ready: dict[int, Prepared] = {}
    refused: dict[int, ValueError] = {}
    error = None
    for place, asked in enumerate(block):
        try:
            ready[place] = answerer.prepare(asked.question, asked.find())
        except ValueError as refusal:
            refused[place] = refusal
        except Exception as other:  # raised when the questions before it have been answered
            error = other
            break
    batches = []
    for kind in sorted(set(map(_kind, ready.values()))):
        places = tuple(place for place, each in ready.items() if _kind(each) == kind)
        batches.append((places, answerer.batch([ready[place] for place in places])))
    return _Block(tuple(batches), refused, error)


def _kind(question: Prepared) -> tuple[int, int]:
    """Questions of one kind are cheap to ask at once: with as many prompts, of about one length.

    All prompts of a batch are padded to the longest, and reading them is most of the work where
    answers are short. Up to 256 tokens, or twice as many, and so forth, count as one length.
    """
    longest = max((len(context.tokens) for context in question.contexts), default=0)
    return len(question.contexts), (max(longest, _SHORT) - 1).bit_length()


def _answers(
    answerer: Answerer, batch: Batch, seeds: Sequence[int], keep_samples: bool
) -> list[Answer]:
    try:
        return answerer.answer_batch(batch, seeds, keep_samples=keep_samples)
    except ValueError as error:
        if len(batch.questions) == 1:
            (asked,) = batch.questions
            return [Answer(question=asked.question, model=answerer.name, reason=str(error))]
    answers = []  # only some of them may be at fault
    for asked, seed in zip(batch.questions, seeds, strict=True):
        answers += _answers(answerer, answerer.batch([asked]), [seed], keep_samples)
    return answers


def _blocks(items: Iterable[_Item], size: int) -> Iterator[tuple[_Item, ...]]:
    left = iter(items)
    while block := tuple(itertools.islice(left, size)):
        yield block


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
