"""A task of questions as batches for reinforcement learning: prompts to be answered."""

import collections
import dataclasses
import enum
import functools
import itertools
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32

from data_pipelines.example_reader import Features
from data_pipelines.features import SeqioVocabulary
from data_pipelines.task_input import TaskInput
from data_pipelines.task_rows import Packing
from gophercite import evidence, prompts, records
from gophercite.decoding.fault_tracking import FaultTracker
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.quoting.constraint import NoLegalAnswer, QuoteConstraint
from gophercite.quoting.pieces import quotable_pieces
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.table_sizes import TableSizes, usual_sizes
from gophercite.vocabularies import Vocabulary, load_vocabulary

RolloutBatch = dict[str, Any]  # arrays, and one tuple of tables

_SAMPLED = 32  # prompts from which the sizes of a run's tables are estimated
_log = logging.getLogger(__name__)


class Dropped(enum.Enum):
    """Why a question is not asked."""

    LONG_PROMPT = "the prompt has more tokens than prompt_length"
    LONG_QUESTION = "the question has more tokens than question_length"
    NO_QUOTE = "nothing can be quoted from the documents shown"
    NO_ROOM = "every legal answer has more tokens than max_tokens"


@dataclasses.dataclass
class RolloutReport:
    """Counts of what happened to the questions, over all iterators of an input.

    Attributes:
      asked: number of prompts in batches.
      dropped: number of dropped questions, by reason; a question counts each time it is processed.
    """

    asked: int = 0
    dropped: collections.Counter[Dropped] = dataclasses.field(default_factory=collections.Counter)

    def __str__(self) -> str:
        """The counts, with all reasons."""
        reasons = "".join(f"; {count}: {why.value}" for why, count in self.dropped.most_common())
        return f"{self.asked} questions asked, {self.dropped.total()} dropped{reasons}"


@dataclasses.dataclass(frozen=True, eq=False)
class _Prompt:
    """A question's prompt; `dropped` says why it can't be used, if it can't."""

    name: str
    tokens: Int32[np.ndarray, " tokens"]
    question: list[int]
    sources: tuple[Document, ...]
    dropped: Dropped | None


@dataclasses.dataclass(frozen=True)
class RolloutInput(TaskInput):
    """One seqio task or mixture of questions as batches of prompts.

    For the prompts of this process, a batch has `prompts`, `prompt_lengths`, `questions` and
    `question_lengths` (int32), and `weights` (float32), which are 1, or 0 for copies of the first
    prompt that pad the last batch of a single pass. `questions` are the texts that a reward model
    reads before a response (`prompts.encode_judged`). Rows are padded on the right.

    For the prompts of all processes, a batch has `quotes` (`QuoteTables`) if samples are
    constrained, and `fault_tables` (`FaultTables`) otherwise, as numpy arrays. They number the
    prompts consecutively. The tables of nearly all batches have the same size. It is estimated from
    the first prompts of the split, so it depends neither on the first batch of a run nor on the
    number of processes.

    Attributes:
      mixture_or_task_name: as registered with seqio (`data_pipelines.tasks.add_questions`).
      split: a split of the task's source.
      prompt_length: tokens of a padded prompt; questions with a longer prompt are dropped.
      question_length: tokens of a padded question; longer questions are dropped.
      max_tokens: maximum number of tokens in a sample, including its end of sequence.
      batch_size: prompts per batch, over all processes.
      seed: seed for shuffling, mixing and all random draws.
      quotes: the constraint on answers; None samples freely. With a constraint, a question without
        a legal answer is dropped.
      judge_vocabulary: the reward model's vocabulary, or its folder or file; None for the task's.
      table_sizes: number of nodes and edges of the tables; None estimates them.
      shuffle: whether each epoch has a different order.
      limit: one pass takes only this many examples of each task, the first ones; None takes all.
      process_index, process_count: which share of each batch this process gets.
      plan_folder: where to save which questions can be used (see `Input`).
      report: counts what happened to the questions.
    """

    mixture_or_task_name: str
    split: str
    prompt_length: int
    question_length: int
    max_tokens: int
    batch_size: int
    seed: int
    quotes: QuoteSettings | None = None
    judge_vocabulary: Vocabulary | str | Path | None = None
    table_sizes: tuple[int, int] | None = None
    shuffle: bool = True
    limit: int | None = None
    process_index: int = 0
    process_count: int = 1
    plan_folder: str | None = None
    report: RolloutReport = dataclasses.field(
        default_factory=RolloutReport, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        for name in ("prompt_length", "question_length", "max_tokens"):
            value = getattr(self, name)
            if value < 1:
                raise ValueError(f"{name} is {value}; it must be at least 1")
        super().__post_init__()

    def batches(self, start: int = 0) -> Iterator[RolloutBatch]:
        """Yields batch `start`, `start + 1`, … without end; earlier batches are not built.

        Every process builds all prompts of a batch, because the tables go to every device.

        Raises:
          RecordError: no question of a task can be used.
        """
        for rows in self._row_batches(start, range(self.batch_size)):
            asked: list[Any] = [prompt for ((prompt,),) in rows]
            self.report.asked += len(asked)
            yield self._batch(asked)

    def one_pass(self) -> Iterator[RolloutBatch]:
        """Yields each question of the split once; the last batch is padded.

        Random draws are those of epoch 0, so every pass is the same.

        Raises:
          RecordError: no question can be used.
        """
        asked = filter(self._is_asked, map(self._prompt, self._each_once()))
        empty = True
        while batch_prompts := list(itertools.islice(asked, self.batch_size)):
            empty = False
            self.report.asked += len(batch_prompts)
            yield self._batch(batch_prompts)
        if empty:
            raise self._nothing_left(self.mixture_or_task_name)

    @property
    def _example_length(self) -> int:
        return self.prompt_length

    @property
    def trained_length(self) -> int | None:
        """Maximum number of tokens of a prompt and its sample together."""
        return self.prompt_length + self.max_tokens

    def _why_none(self) -> str:
        return f" and can be asked: {self.report}" if self.report.dropped else ""

    # --- From examples to prompts ---

    @property
    def _packing(self) -> Packing:
        judge = SeqioVocabulary(self._judge)
        settings = (self.question_length, self.max_tokens, self.quotes, judge)
        return Packing(self.prompt_length, False, False, self._prompt, self._is_asked, settings)

    def _is_asked(self, prompt: _Prompt) -> bool:
        """Whether a prompt can be used; counts those that can't."""
        if prompt.dropped is None:
            return True
        if not self.report.dropped[prompt.dropped]:
            _log.warning(
                "%s: question %r was dropped (the report counts the others): %s",
                self.mixture_or_task_name,
                prompt.name,
                prompt.dropped.value,
            )
        self.report.dropped[prompt.dropped] += 1
        return False

    def _prompt(self, features: Features) -> _Prompt:
        record = records.from_json(json.loads(features["record"]), records.Question)
        sources = tuple(page for page in record.documents if isinstance(page, Document))
        question = prompts.encode_prompt(self._judge, record.question, [])
        dropped = None
        if len(features["tokens"]) > self.prompt_length:
            dropped = Dropped.LONG_PROMPT
        elif len(question) > self.question_length:
            dropped = Dropped.LONG_QUESTION
        elif self.quotes is not None:
            dropped = self._illegal(self.quotes, sources)
        return _Prompt(record.id, features["tokens"], question, sources, dropped)

    def _illegal(self, quotes: QuoteSettings, sources: Sequence[Document]) -> Dropped | None:
        """The reason to drop a question for which no answer is legal; None if one is."""
        omissions = quotes.maximum_omissions > 0
        pieces = quotable_pieces(
            sources, self.vocabulary, quotes.minimum_quote, omissions, quotes.boundaries
        )
        if not pieces:
            return Dropped.NO_QUOTE
        # Building the graph takes as long as everything else, and the graph isn't needed if this
        # batch is skipped. A short answer nearly always shows that a legal one exists.
        for title, texts in pieces.items():
            quote = texts[0].shortest_run(quotes.minimum_quote)
            if quotes.maximum_quote is not None and len(quote) > quotes.maximum_quote:
                continue
            triple = Evidence("a" * quotes.minimum_claim, title, quote)
            response = prompts.encode_response(self.vocabulary, triple)
            if len(response) <= self.max_tokens and not evidence.faults(
                evidence.format(triple), sources, minimum_quote_length=quotes.minimum_quote
            ):
                return None
        try:
            shortest = self._constraint.graph(sources).shortest_answer
        except NoLegalAnswer:
            return Dropped.NO_QUOTE
        return Dropped.NO_ROOM if shortest > self.max_tokens else None

    @functools.cached_property
    def _judge(self) -> Vocabulary:
        judge = self.judge_vocabulary
        if judge is None:
            return self.vocabulary
        return judge if isinstance(judge, Vocabulary) else load_vocabulary(str(judge))

    # --- From prompts to batches ---

    def _batch(self, asked: list[_Prompt]) -> RolloutBatch:
        weights = np.zeros(self.batch_size, np.float32)
        weights[: len(asked)] = 1
        padded = asked + asked[:1] * (self.batch_size - len(asked))
        own = self._share(padded)
        tokens = [prompt.tokens for prompt in own]
        questions = [prompt.question for prompt in own]
        return {
            "prompts": _padded(tokens, self.prompt_length, self.vocabulary.pad_id),
            "prompt_lengths": np.array(list(map(len, tokens)), np.int32),
            "questions": _padded(questions, self.question_length, self._judge.pad_id),
            "question_lengths": np.array(list(map(len, questions)), np.int32),
            "weights": np.array(self._share(weights.tolist()), np.float32),
            **self._tables([prompt.sources for prompt in asked]),
        }

    def _tables(self, shown: Sequence[Sequence[Document]]) -> Mapping[str, Any]:
        """The tables of a whole batch, including the copies that pad it."""
        copies = self.batch_size - len(shown)
        if self.quotes is None:
            tracked = [self._fault_tracker.graph(sources) for sources in shown]
            tracked += tracked[:1] * copies
            return {"fault_tables": self._fault_tracker.host_tables(tracked, self._sizes)}
        graphs = [self._constraint.graph(sources) for sources in shown]
        graphs += graphs[:1] * copies
        return {"quotes": self._constraint.host_tables(graphs, self.max_tokens, self._sizes)}

    @functools.cached_property
    def _sizes(self) -> TableSizes:
        if self.table_sizes is not None:
            return TableSizes(*self.table_sizes)
        first: list[_Prompt] = []
        for task, rate in zip(self.tasks, self._rates, strict=True):
            examples = map(self._prompt, self._epoch(task, 0, self.shuffle))
            asked = (each for each in examples if each.dropped is None)
            first += itertools.islice(asked, math.ceil(_SAMPLED * rate))
        maker = self._fault_tracker if self.quotes is None else self._constraint
        return usual_sizes([maker.graph(each.sources).sizes for each in first], self.batch_size)

    @functools.cached_property
    def _constraint(self) -> QuoteConstraint:
        return QuoteConstraint(self.vocabulary, self.quotes)

    @functools.cached_property
    def _fault_tracker(self) -> FaultTracker:
        return FaultTracker(self.vocabulary)


def _padded(
    rows: Sequence[Sequence[int] | np.ndarray], length: int, pad_id: int
) -> Int32[np.ndarray, "rows length"]:
    padded = np.full((len(rows), length), pad_id, np.int32)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    return padded
