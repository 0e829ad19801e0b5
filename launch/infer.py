"""Answers a file of questions with quotes that prove the answers: one JSON line each.

    python launch/infer.py --model runs/sft --questions questions.jsonl --output answers.jsonl
    python launch/infer.py --model runs/sft --questions questions.jsonl --index corpus.db \\
      --output answers.jsonl

Questions bring their pages, or hits of an index, or an index is searched for them. A line is what
`gophercite ask --json` prints, with the question's id; `gophercite verify` checks its quotes. What
was ended goes on where it was when it is started again: batches that have all their answers are not
asked again, and each answer is the same as in one run. A question that can't be answered is
declined, with the reason. Ctrl-C ends it at once (exit status 130): what is written stays whole.
"""

import sys

from gophercite import interruption

if __name__ == "__main__":  # before the imports that take seconds
    interruption.end_at_once()

import argparse
import collections
import contextlib
import functools
import pathlib
import zlib
from collections.abc import Container, Sequence
from typing import Any

from gophercite.answering.answerer import Answerer, AnsweringSettings
from gophercite.answering.declining import answering_settings
from gophercite.answering.loading import inference_partitioner, load_answerer
from gophercite.answering.many_questions import Asked, answer_each
from gophercite.answering.pages import FoundPages, IndexedPages
from gophercite.answers import answer_to_json
from gophercite.contexts import SearchResult
from gophercite.decoding.quote_settings import QuoteSettings
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.models.checkpoint_files import CheckpointError
from gophercite.models.tensors import TensorFileError
from gophercite.records import Document, FoundDocument, Question, Report, read
from gophercite.result_file import ResultFile
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.search_results import with_pages
from gophercite.training.progress import Progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    try:
        with contextlib.ExitStack() as stack:
            questions = _read_questions(flags)
            index = stack.enter_context(DocumentIndex(flags.index)) if flags.index else None
            answerer = _answerer(flags)
            answers = stack.enter_context(ResultFile(flags.output, _run(flags, answerer)))
            _answer_all(questions, answerer, index, answers, flags)
    except (OSError, ValueError, CheckpointError, TensorFileError, IndexFileError) as error:
        print(f"infer: {error}", file=sys.stderr)
        return 1
    return 0


def _answer_all(
    questions: list[Question],
    answerer: Answerer,
    index: DocumentIndex | None,
    answers: ResultFile,
    flags: argparse.Namespace,
) -> None:
    size = flags.batch_size or answerer.usual_batch_size(flags.pages)
    done = frozenset(answers.done)
    left = _left(questions, done, size)
    had = sum(question.id in done for question in questions)
    progress = Progress(sys.stderr, len(questions) - had, unit="question")
    progress.note(f"{len(questions)} questions, {had} answered already; {size} at a time")
    declined: collections.Counter[str] = collections.Counter()
    asked = (_asked(question, index, flags) for question in left)
    made = answer_each(answerer, asked, keep_samples=flags.all_samples, batch_size=size)
    number = 0
    with contextlib.closing(made):
        for question, answer in zip(left, made, strict=True):
            if question.id in done:
                continue
            answers.append({"question_id": question.id, **answer_to_json(answer)})
            number += 1
            if answer.reason is not None:
                declined[answer.reason] += 1
            progress.step(number, {"declined": declined.total()})
    for reason, count in declined.most_common():
        progress.note(f"{count} declined: {reason}")


def _left(questions: list[Question], done: Container[str], size: int) -> list[Question]:
    """The batches in which a question has no answer yet, whole.

    Answers depend on what is in their batch, though by rounding alone: so it stays together.
    """
    batches = (questions[first : first + size] for first in range(0, len(questions), size))
    return [
        question
        for batch in batches
        if not all(each.id in done for each in batch)
        for question in batch
    ]


def _asked(question: Question, index: DocumentIndex | None, flags: argparse.Namespace) -> Asked:
    # By the question, not by its place: an answer does not depend on what was asked before.
    seed = zlib.crc32(f"{flags.seed}/{question.id}".encode())
    return Asked(question.question, functools.partial(_pages, question, index, flags.pages), seed)


def _pages(question: Question, index: DocumentIndex | None, k: int) -> FoundPages:
    if not question.documents:
        if index is None:
            raise ValueError("the question has no pages, and no --index was given")
        return IndexedPages(index).find(question.question, k)
    if index is not None:
        question = with_pages(question, index.document)
    results = []
    for page in question.documents[:k]:
        if not isinstance(page, Document):
            raise ValueError(
                f"page {page.id!r} has a snippet and no text, and no --index was given"
            )
        snippet = page.snippet if isinstance(page, FoundDocument) else None
        results.append(SearchResult(page, snippet))
    return FoundPages(tuple(results))


def _read_questions(flags: argparse.Namespace) -> list[Question]:
    report = Report()
    questions = list(read(flags.questions, Question, strict=flags.strict, report=report))
    if report.skipped:
        print(report, file=sys.stderr)
    if not questions:
        raise ValueError(f"{flags.questions}: has no questions")
    return questions


def _answerer(flags: argparse.Namespace) -> Answerer:
    settings = AnsweringSettings(
        samples=flags.samples,
        prompt_tokens=flags.prompt_tokens,
        joint=flags.joint,
        likelihood=flags.likelihood,
        max_num_seqs=flags.max_num_seqs,
        sampling=SamplingSettings(
            flags.max_tokens,
            flags.temperature,
            flags.top_k,
            flags.top_p,
            draft_tokens=flags.draft_tokens,
        ),
        quotes=QuoteSettings(maximum_triples=flags.claims, maximum_omissions=flags.omissions),
    )
    return load_answerer(
        flags.model,
        settings,
        reward_model=flags.reward_model,
        partitioner=inference_partitioner(flags.model_parallel, flags.data_parallel),
    )


def _run(flags: argparse.Namespace, answerer: Answerer) -> dict[str, Any]:
    """What decides an answer, beside the question: a file holds answers of one kind."""
    return {
        "model": answerer.name,
        "reward_model": answerer.reward_name,
        "index": flags.index,
        "seed": flags.seed,
        "all_samples": flags.all_samples,
        **answering_settings(answerer, flags.pages),
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="infer.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, metavar="FOLDER", help="model folder, or folder of a run")
    add("--questions", type=pathlib.Path, required=True, metavar="FILE", help="questions.jsonl")
    add("--output", required=True, metavar="FILE", help="answers.jsonl; a path, or gs://…")
    add("--index", metavar="FILE", help="has the pages of questions that bring hits, or none")
    add("--pages", type=int, default=5, help="most pages to a question (default: 5)")
    add("--samples", type=int, default=16, help="answers to choose from (default: 16)")
    add("--reward-model", metavar="FOLDER", help="chooses among the samples")
    add(
        "--likelihood",
        choices=("mean", "sum"),
        default="mean",
        help="without one, of the tokens' log-probabilities what chooses (default: mean)",
    )
    add("--joint", action="store_true", help="all pages in one prompt, not one in each")
    add("--claims", type=int, default=1, help="most claims in an answer (default: 1)")
    add("--omissions", type=int, default=0, help="of words in a quote, by ' [...] ' (default: 0)")
    add("--max-tokens", type=int, default=256, help="longest answer (default: 256)")
    add("--prompt-tokens", type=int, default=3840, help="longest prompt (default: 3840)")
    add("--temperature", type=float, default=1.0, help="0 takes the likeliest (default: 1)")
    add("--top-k", type=int, help="draw from the likeliest k tokens (default: all)")
    add("--top-p", type=float, default=1.0, help="nucleus to sample from (default: 1, everything)")
    add("--seed", type=int, default=0, help="of the sampling (default: 0)")
    add(
        "--draft-tokens",
        type=int,
        default=0,
        help="tokens of the page read ahead: the same answers in fewer, larger steps (default: 0)",
    )
    add(
        "--batch-size",
        type=int,
        metavar="N",
        help="questions that are answered at a time: the same answers, up to rounding (default: as "
        "many as have 512 answers together, on an accelerator 2048, and 256 pages at most)",
    )
    add(
        "--max-num-seqs",
        type=int,
        metavar="N",
        help="answers drawn at a time, which bounds the memory: the same answers (default: 64, on "
        "an accelerator 256, if half of the model's own bytes, or 1 GiB, have room for them)",
    )
    add(
        "--model-parallel",
        type=int,
        default=1,
        metavar="N",
        help="devices that each model is cut over, where one can't hold it (default: 1)",
    )
    add(
        "--data-parallel",
        type=int,
        default=1,
        metavar="N",
        help="copies of the models, each with a share of a question's answers (default: 1)",
    )
    add("--all-samples", action="store_true", help="write all samples of each answer")
    add("--strict", action="store_true", help="stop at the first bad line of the questions")
    flags = parser.parse_args(arguments)
    for name in ("pages", "batch_size"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} is {value}: must be at least 1")
    return flags


if __name__ == "__main__":
    status = main()
    interruption.over()
    sys.exit(status)
