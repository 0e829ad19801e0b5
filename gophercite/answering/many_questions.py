"""Answers many questions in batches, while a thread prepares the next ones.

The host's work for a question (finding, reading, cutting and tokenising its pages, and the tables
of what may be quoted) takes tens of milliseconds per page, during which a device would be idle. And
a device draws the samples of several questions in little more time than those of one.
"""

import functools
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from gophercite.answering.answerer import Answerer, Batch
from gophercite.answering.pages import FoundPages
from gophercite.answering.preparing import Prepared
from gophercite.decoding.look_ahead import made_ahead
from gophercite.records.answers import Answer

_SHORT = 256  # tokens of a prompt, up to which padding costs almost nothing

_Item = TypeVar("_Item")


class Asked(NamedTuple):
    """One question of many.

    Attributes:
      question: as the user typed it; filters in it are taken out.
      find: returns its pages; called once, in a separate thread, in the order of the questions.
      seed: seed of its sampling.
    """

    question: str
    find: Callable[[], FoundPages]
    seed: int = 0


class _Block(NamedTuple):
    """Consecutive questions, prepared.

    Attributes:
      batches: those that can be answered, each batch with its questions' positions in the block.
      refused: what is wrong with the other questions, by position.
      error: what was raised at the question after the last of these, and ends the answers; None
        where the block is complete.
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
    """Answers questions in order, each as `Answerer.answer` would by itself.

    Args:
      answerer: the answerer.
      questions: consumed as they are needed.
      keep_samples: whether answers carry all samples.
      batch_size: number of consecutive questions to answer at a time. Those with the same number of
        prompts, of about the same length, are batched. An answer depends on the other questions of
        its batch only through rounding, and not at all on other batches: the same questions in the
        same order get the same answers.
      ahead: number of batches to prepare while one is answered; their pages and tables are then in
        memory. 0 prepares each batch when it is needed, without a thread.

    Yields:
      An answer to each question. If a question raises a ValueError, that is its answer's `reason`.

    Raises:
      ValueError: `batch_size` is less than 1, or `ahead` is negative.
      SearchError, OSError: or whatever else `find` raises, once the earlier questions are answered.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size = {batch_size}: must be at least 1")
    if ahead < 0:
        raise ValueError(f"ahead = {ahead}: must be 0 (nothing is done ahead) or more")

    make_ready = functools.partial(_made_ready, answerer)
    for block, prepared in made_ahead(make_ready, _blocks(questions, batch_size), ahead):
        answers = {
            place: Answer(question=block[place].question, model=answerer.name, reason=str(refusal))
            for place, refusal in prepared.refused.items()
        }
        for places, batch in prepared.batches:
            seeds = [block[place].seed for place in places]
            answers |= zip(places, _answers(answerer, batch, seeds, keep_samples), strict=True)
        for place in sorted(answers):
            yield answers[place]
        if prepared.error is not None:
            raise prepared.error


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
    """The number of prompts, and a bucket of their length: questions with equal ones share a batch.

    All prompts of a batch are padded to the longest, and prefill is most of the work where answers
    are short. Buckets end at 256 tokens, twice that, and so on.
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
    answers = []  # perhaps only some of them are at fault
    for asked, seed in zip(batch.questions, seeds, strict=True):
        answers += _answers(answerer, answerer.batch([asked]), [seed], keep_samples)
    return answers


def _blocks(items: Iterable[_Item], size: int) -> Iterator[tuple[_Item, ...]]:
    left = iter(items)
    while block := tuple(itertools.islice(left, size)):
        yield block
