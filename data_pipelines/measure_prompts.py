"""Makes the training prompts of appendix D.2 from rated answers, and says what they hold.

    python -m data_pipelines.measure_prompts RATED.jsonl … --vocabulary FOLDER [--index corpus.db]

The prompts are those that a training run would see in its first epochs. Prints how many hold the
quote, how many documents they show, why pages were left out of them and why examples have none;
exit status 1 when a prompt was made that does not hold its quote.
"""

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from data_pipelines.document_choice import ContextReport, context_of, page_reader
from data_pipelines.randomness import draws
from gophercite import evidence, records
from gophercite.contexts import Context, ContextError, ContextSettings, Reason
from gophercite.documents import Document
from gophercite.records import RatedAnswer
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.retrieval.tokenised_pages import TokenisedPages
from gophercite.vocabularies import Vocabulary, load_vocabulary


@dataclasses.dataclass
class PromptStatistics:
    """What the prompts of some rated answers hold.

    Attributes:
      report: counts prompts, documents and reasons.
      with_quote: prompts with a window of the quoted page that holds the quote.
      others: windows in prompts beside those of the quoted pages.
      tokens: of each prompt.
      seconds: processor time of making them.
    """

    report: ContextReport = dataclasses.field(default_factory=ContextReport)
    with_quote: int = 0
    others: int = 0
    tokens: list[int] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    def add(self, answer: RatedAnswer, context: Context) -> None:
        """Counts one prompt."""
        self.report.add(context)
        self.with_quote += any(
            window.document.id == answer.document
            and evidence.is_verbatim(answer.quote, window.text)
            for window in context.windows
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
        lines += [
            f"window holds the quote: {self.with_quote / made:.2%}",
            f"documents shown: {', '.join(shares)}",
            f"other pages dropped as their snippet was not found: {lost} of {considered}",
            f"tokens: mean {statistics.mean(self.tokens):.0f}, largest {max(self.tokens)}",
            f"prompts a second: {made / max(self.seconds, 1e-9):.0f}",
        ]
        return "\n".join(lines)


def measure_prompts(
    answers: Sequence[RatedAnswer],
    prompt_tokens: int,
    vocabulary: Vocabulary,
    settings: ContextSettings,
    *,
    page: Callable[[str], Document] | None = None,
    epochs: int = 1,
    seed: int = 0,
) -> PromptStatistics:
    """Makes the prompts of rated answers and returns what they hold.

    Args:
      answers: Rated-Good ones.
      prompt_tokens: how many tokens a prompt may have.
      vocabulary: of the model.
      settings: of the choice of documents.
      page: gives the pages of answers that hold hits.
      epochs: how often each answer gets a prompt, drawn anew.
      seed: of the draws.
    """
    measured = PromptStatistics()
    pages = TokenisedPages(vocabulary) if vocabulary.splits_words else None
    for number, (epoch, answer) in enumerate((e, a) for e in range(epochs) for a in answers):
        begun = time.process_time()
        draw = draws(seed, "documents", f"{epoch}/{number}")
        try:
            context = context_of(answer, prompt_tokens, vocabulary, draw, settings, page, pages)
        except ContextError as error:
            measured.report.drop(f"question {answer.question_id!r}", error)
        else:
            measured.seconds += time.process_time() - begun
            measured.add(answer, context)
    return measured


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what the command line says; returns 1 when a prompt lacks its quote."""
    flags = _parse(arguments)
    read = records.Report()
    try:
        answers = list(_rated_good(flags.input, read))[: flags.limit]
        found = measure_prompts(
            answers,
            flags.length - flags.response_tokens,
            load_vocabulary(flags.vocabulary),
            ContextSettings(response_tokens=flags.response_tokens),
            page=page_reader(DocumentIndex(flags.index)) if flags.index else None,
            epochs=flags.epochs,
            seed=flags.seed,
        )
    except (OSError, ValueError, IndexFileError) as error:
        print(f"measure_prompts: {error}", file=sys.stderr)
        return 1
    if read.skipped:
        print(read, file=sys.stderr)
    for problem in found.report.errors:
        print(problem, file=sys.stderr)
    print(found)
    return 0 if found.report.made == found.with_quote else 1


def _rated_good(paths: Sequence[Path], report: records.Report) -> Iterator[RatedAnswer]:
    for path in paths:
        for answer in records.read(path, RatedAnswer, report=report):
            if answer.plausible and answer.supported:
                yield answer


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.measure_prompts",
        description="Makes the training prompts of rated answers and says what they hold.",
    )
    add = parser.add_argument
    add("input", type=Path, nargs="+", metavar="RATED", help="rated answers, JSON lines")
    add("--vocabulary", required=True, metavar="FOLDER", help="of the model")
    add("--index", metavar="FILE", help="has the pages of answers that hold search results")
    add("--length", type=int, default=4096, help="tokens of a row (default 4096)")
    add("--response-tokens", type=int, default=256, help="kept for the response (default 256)")
    add("--epochs", type=int, default=1, help="prompts of each answer (default 1)")
    add("--limit", type=int, help="take only the first so many answers (default: all)")
    add("--seed", type=int, default=0, help="of the draws (default 0)")
    flags = parser.parse_args(arguments)
    if flags.response_tokens >= flags.length:
        parser.error("--response-tokens leaves nothing of --length for a prompt")
    return flags


if __name__ == "__main__":
    sys.exit(main())
