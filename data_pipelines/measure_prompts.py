"""Builds the training prompts of rated answers or of questions, and reports their contents.

    python -m data_pipelines.measure_prompts RATED.jsonl … --vocabulary FOLDER [--index corpus.db]
    python -m data_pipelines.measure_prompts QUESTIONS.jsonl … --questions --vocabulary FOLDER …

The prompts are those that a run would see in its first epochs of supervised fine-tuning (appendix
D.2), or with --questions of reinforcement learning (appendix F.2). The command prints how many
prompts contain the quote (or the gold evidence, if it is known), how many documents they show, why
pages were left out, and why some examples have no prompt. It exits with status 1 if an answer's
prompt does not contain its quote.
"""

import argparse
import dataclasses
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from data_pipelines.disk_paths import path_on_disk
from data_pipelines.document_choice import (
    ContextReport,
    context_of,
    page_reader,
    rollout_context_of,
)
from data_pipelines.randomness import draws
from gophercite import evidence, records
from gophercite.documents import Document
from gophercite.records import Question, RatedAnswer
from gophercite.retrieval.contexts import Context, ContextError, ContextSettings, Reason
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.retrieval.tokenised_pages import TokenisedPages
from gophercite.storage.json_fields import in_one_line
from gophercite.vocabularies import Vocabulary, load_vocabulary


@dataclasses.dataclass
class PromptStatistics:
    """The contents of the prompts of some rated answers or questions.

    Attributes:
      report: counts prompts, documents and reasons.
      to_hold: number of prompts with known evidence: a quote or gold evidence.
      with_quote: number of these with a window of its page that contains the evidence.
      others: number of windows besides those of the page with the evidence, or of all windows if no
        evidence is known.
      tokens: number of tokens of each prompt.
      seconds: processor time for building them.
    """

    report: ContextReport = dataclasses.field(default_factory=ContextReport)
    to_hold: int = 0
    with_quote: int = 0
    others: int = 0
    tokens: list[int] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def add(self, record: RatedAnswer | Question, context: Context) -> None:
        """Counts one prompt."""
        self.report.add(context)
        if isinstance(record, RatedAnswer):
            self.to_hold += 1
            self.with_quote += any(
                window.document.id == record.document
                and evidence.is_verbatim(record.quote, window.text)
                for window in context.windows
            )
        elif record.evidence:
            self.to_hold += 1
            self.with_quote += any(
                window.document.id == span.document
                and window.start <= span.start
                and span.end <= window.end
                for window in context.windows
                for span in record.evidence
            )
        self.others += len(context.windows) - 1
        self.tokens.append(len(context.tokens))

    def __str__(self) -> str:
        """Returns the table that the command prints."""
        made, dropped = self.report.made, self.report.dropped
        lines = [f"{made} prompts, {dropped.total()} examples without one"]
        lines += [f"  {count} {reason.value}" for reason, count in dropped.most_common()]
        if not made:
            return "\n".join(lines)
        lost = self.report.left_out[Reason.SNIPPET_NOT_FOUND]
        considered = self.others + self.report.left_out.total()
        shares = (
            f"{n}: {self.report.documents[n] / made:.1%}" for n in sorted(self.report.documents)
        )
        if self.to_hold:
            lines.append(f"window holds the quote: {self.with_quote / self.to_hold:.2%}")
        lines += [
            f"documents shown: {', '.join(shares)}",
            f"other pages dropped because their snippet was not found: {lost} of {considered}",
            f"tokens: mean {statistics.mean(self.tokens):.0f}, largest {max(self.tokens)}",
            f"prompts a second: {made / max(self.seconds, 1e-9):.0f}",
        ]
        return "\n".join(lines)


def measure_prompts(
    asked: Sequence[RatedAnswer | Question],
    prompt_tokens: int,
    vocabulary: Vocabulary,
    settings: ContextSettings,
    *,
    page: Callable[[str], Document] | None = None,
    epochs: int = 1,
    seed: int = 0,
) -> PromptStatistics:
    """Builds the prompts of rated answers or questions and returns their statistics.

    Args:
      asked: Rated-Good answers, or questions.
      prompt_tokens: maximum tokens of a prompt.
      vocabulary: the model's.
      settings: how documents are chosen.
      page: returns the pages of records that contain hits.
      epochs: number of prompts per record, each with new draws.
      seed: seed for the draws.
    """
    measured = PromptStatistics()
    pages = TokenisedPages(vocabulary) if vocabulary.splits_words else None
    for number, (epoch, record) in enumerate((e, r) for e in range(epochs) for r in asked):
        begun = time.process_time()
        draw = draws(seed, "documents", f"{epoch}/{number}")
        arguments = (prompt_tokens, vocabulary, draw, settings, page, pages)
        try:
            context = (
                context_of(record, *arguments)
                if isinstance(record, RatedAnswer)
                else rollout_context_of(record, *arguments)
            )
        except ContextError as error:
            name = record.question_id if isinstance(record, RatedAnswer) else record.id
            measured.report.drop(f"question {name!r}", error)
        else:
            measured.seconds += time.process_time() - begun
            measured.add(record, context)
    return measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the given records; returns 1 if an answer's prompt lacks its quote."""
    flags = _parse(arguments)
    reading = records.Report()
    asked: Iterator[RatedAnswer | Question] = (
        _questions(flags.input, reading) if flags.questions else _rated_good(flags.input, reading)
    )
    try:
        found = measure_prompts(
            list(itertools.islice(asked, flags.limit)),
            flags.length - flags.response_tokens,
            load_vocabulary(flags.vocabulary),
            ContextSettings(response_tokens=flags.response_tokens),
            page=page_reader(DocumentIndex(flags.index)) if flags.index else None,
            epochs=flags.epochs,
            seed=flags.seed,
        )
    except (OSError, ValueError, IndexFileError) as error:
        print(f"measure_prompts: {in_one_line(error)}", file=sys.stderr)
        return 1
    if reading.skipped:
        print(reading, file=sys.stderr)
    for problem in found.report.errors:
        print(problem, file=sys.stderr)
    print(found)
    return 0 if flags.questions or found.report.made == found.with_quote else 1


def _questions(paths: Sequence[Path], report: records.Report) -> Iterator[Question]:
    for path in paths:
        yield from records.read(path, Question, report=report)


def _rated_good(paths: Sequence[Path], report: records.Report) -> Iterator[RatedAnswer]:
    for path in paths:
        for answer in records.read(path, RatedAnswer, report=report):
            if answer.plausible and answer.supported:
                yield answer


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.measure_prompts",
        description="Builds the training prompts of records and reports what they contain.",
    )
    add = parser.add_argument
    add("input", type=path_on_disk, nargs="+", metavar="RECORDS", help="rated answers, JSON lines")
    add("--questions", action="store_true", help="the records are questions")
    add("--vocabulary", required=True, metavar="FOLDER", help="folder of the model's vocabulary")
    add("--index", metavar="FILE", help="index with the pages of search results")
    add("--length", type=int, default=4096, help="tokens of a row (default 4096)")
    add(
        "--response-tokens",
        type=int,
        default=256,
        help="tokens reserved for the response (default 256)",
    )
    add("--epochs", type=int, default=1, help="prompts per record (default 1)")
    add("--limit", type=int, help="read only this many records (default: all)")
    add("--seed", type=int, default=0, help="seed of the random choices (default 0)")
    flags = parser.parse_args(arguments)
    for name in ("length", "response_tokens", "epochs", "limit"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} is {value}: must be at least 1")
    if flags.response_tokens >= flags.length:
        parser.error(
            f"--response-tokens is {flags.response_tokens}: must be below --length ({flags.length})"
        )
    return flags


if __name__ == "__main__":
    sys.exit(main())
