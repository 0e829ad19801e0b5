"""What `launch/infer.py` does once its flags are read: a file of questions, answered one by one."""

import argparse
import collections
import contextlib
import functools
import sys
import zlib
from collections.abc import Container, Mapping, Sequence
from typing import Any

import jax

from gophercite.answering.answerer import Answerer
from gophercite.answering.declining import answering_settings
from gophercite.answering.loading import (
    inference_partitioner,
    load_answerer,
    spans_processes,
)
from gophercite.answering.many_questions import Asked, answer_each
from gophercite.answering.pages import FoundPages, IndexedPages, given_pages
from gophercite.cli.answering_flags import settings_of
from gophercite.cli.sources import keep_compiled_programs
from gophercite.decoding.across_processes import gather_json
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.model_folders.checkpoint_errors import CheckpointError
from gophercite.model_folders.tensors import TensorFileError
from gophercite.monitoring.progress import Progress
from gophercite.records import Document, FoundDocument, Question, Report, read
from gophercite.records.answers import answer_to_json
from gophercite.retrieval.contexts import SearchResult
from gophercite.retrieval.engine import parse_query
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.retrieval.search_results import with_pages
from gophercite.storage.json_fields import in_one_line
from gophercite.storage.result_file import ResultFile, ResultFileError, read_results
from gophercite.text.counting import counted

# Errors that users cause, reported in one line.
REFUSALS = (OSError, ValueError, CheckpointError, TensorFileError, IndexFileError)


def run(flags: argparse.Namespace) -> None:
    """Answers the questions that have no answer yet.

    Args:
      flags: the command's flags.

    Raises:
      ValueError: there are no questions, or the model or its settings can't be used.
      OSError: a file can't be read or written.
    """
    with contextlib.ExitStack() as stack:
        questions = _read_questions(flags)
        index = stack.enter_context(DocumentIndex(flags.index)) if flags.index else None
        keep_compiled_programs()
        answerer = _answerer(flags)
        answers, done = _opened(stack, flags, answerer, index, questions)
        _answer_all(questions, answerer, index, answers, done, flags)


def _opened(
    stack: contextlib.ExitStack,
    flags: argparse.Namespace,
    answerer: Answerer,
    index: DocumentIndex | None,
    questions: Sequence[Question],
) -> tuple[ResultFile | None, frozenset[str]]:
    """The file of answers, which only the first process has, and the ids that are in it.

    Raises:
      ValueError, OSError: it can't be used; in all processes.
    """
    answers: ResultFile | None = None
    problem: Exception | None = None
    if jax.process_index() == 0:
        try:
            run = _describe(flags, answerer, index)
            answers = stack.enter_context(ResultFile(flags.output, run))
            _refuse_other_questions(flags.output, questions)
        except REFUSALS as error:
            problem = error
    had = [] if answers is None else sorted(answers.done)
    refused, done = gather_json([None if problem is None else in_one_line(problem), had])[0]
    if refused is not None:
        raise problem or ValueError(f"process 0: {refused}")
    return answers, frozenset(done)


def _refuse_other_questions(output: str, questions: Sequence[Question]) -> None:
    """Raises for an answer that is in the file, but to another question with the same id.

    What can be compared is what an answer holds: its question, and the pages that it quotes.

    Raises:
      ResultFileError: it is to another question, or quotes what isn't in the question's pages; or
        a question has two answers.
    """
    asked = {question.id: question for question in questions}
    answered: set[str] = set()
    for line in read_results(output):
        id = line["question_id"]
        if id in answered:
            raise ResultFileError(
                f"{output}: has two answers to question {id!r}; remove one of the two lines"
            )
        answered.add(id)
        question = asked.get(id)
        problem = None if question is None else _other_question(line, question)
        if problem is not None:
            raise ResultFileError(
                f"{output}: the answer to question {id!r} {problem}; write to another file"
            )


def _other_question(line: Mapping[str, Any], question: Question) -> str | None:
    """Why a line is not an answer to a question; None if it may be."""
    answered = line.get("question")
    # A model gets a question without filters; a question that could not be asked is as it was.
    if answered not in (question.question, parse_query(question.question).text):
        return f"is to {_beginning(answered)}, not {_beginning(question.question)}"
    given = {page.id: page for page in question.documents}
    citations = line.get("answer")
    for citation in citations if given and isinstance(citations, list) else []:
        id = citation.get("document") if isinstance(citation, dict) else None
        page = given.get(id) if isinstance(id, str) else None
        if page is None:
            return f"quotes a page {_beginning(id)}, which isn't one of its pages"
        if isinstance(page, Document) and citation.get("sha256") != page.sha256:
            return f"quotes a page {_beginning(id)} with another text"
    return None


def _beginning(text: object) -> str:
    return repr(text if not isinstance(text, str) or len(text) <= 60 else f"{text[:60]}…")


def _answer_all(
    questions: list[Question],
    answerer: Answerer,
    index: DocumentIndex | None,
    answers: ResultFile | None,
    done: frozenset[str],
    flags: argparse.Namespace,
) -> None:
    size = flags.batch_size or answerer.usual_batch_size(flags.pages)
    left = _left(questions, done, size)
    had = sum(question.id in done for question in questions)
    shown = sys.stderr if answers is not None else None
    progress = Progress(shown, len(questions) - had, unit="question")
    progress.note(
        f"{counted(len(questions), 'question')}, {had} already answered; {size} at the same time"
    )
    declined: collections.Counter[str] = collections.Counter()
    questions_asked = (_asked(question, index, flags) for question in left)
    answered = answer_each(
        answerer, questions_asked, keep_samples=flags.all_samples, batch_size=size
    )
    number = 0
    with contextlib.closing(answered):
        for place, (question, answer) in enumerate(zip(left, answered, strict=True), 1):
            if question.id not in done and answers is not None:
                answers.append({"question_id": question.id, **answer_to_json(answer)})
                number += 1
                if answer.reason is not None:
                    declined[answer.reason] += 1
            if place % size == 0 or place == len(left):  # a batch's answers come all at once
                progress.step(number, {"declined": declined.total()})
    for reason, count in declined.most_common():
        progress.note(f"{count} declined: {reason}")


def _left(questions: list[Question], done: Container[str], size: int) -> list[Question]:
    """The batches in which some question has no answer yet, complete.

    Rounding makes answers depend slightly on their batch, so batches stay together.
    """
    batches = (questions[first : first + size] for first in range(0, len(questions), size))
    return [
        question
        for batch in batches
        if not all(each.id in done for each in batch)
        for question in batch
    ]


def _asked(question: Question, index: DocumentIndex | None, flags: argparse.Namespace) -> Asked:
    # Keyed by the question, not its position: an answer does not depend on earlier questions.
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
                f"page {page.id!r} has a snippet but no text, and no --index was given"
            )
        snippet = page.snippet if isinstance(page, FoundDocument) else None
        results.append(SearchResult(page, snippet))
    return given_pages(results)


def _read_questions(flags: argparse.Namespace) -> list[Question]:
    report = Report()
    questions = list(read(flags.questions, Question, strict=flags.strict, report=report))
    if report.skipped:
        print(report, file=sys.stderr)
    if not questions:
        raise ValueError(f"{flags.questions}: has no questions")
    return questions


def _answerer(flags: argparse.Namespace) -> Answerer:
    sampling = SamplingSettings(temperature=flags.temperature, top_k=flags.top_k, top_p=flags.top_p)
    settings = settings_of(flags, sampling)
    partitioner = inference_partitioner(flags.model_parallel, flags.data_parallel)
    if jax.process_count() > 1 and not spans_processes(partitioner):
        raise ValueError(
            f"several processes answer together with a model that is spread over all of their "
            f"{jax.device_count()} devices: --model-parallel times --data-parallel must be that"
        )
    return load_answerer(
        flags.model, settings, reward_model=flags.reward_model, partitioner=partitioner
    )


def _describe(
    flags: argparse.Namespace, answerer: Answerer, index: DocumentIndex | None
) -> dict[str, Any]:
    """Everything but the question that determines an answer: a file has one set of settings."""
    return {
        "model": answerer.name,
        "reward_model": answerer.reward_name,
        "index": flags.index,
        "index_sha256": None if index is None else index.digest(),
        "seed": flags.seed,
        "all_samples": flags.all_samples,
        **answering_settings(answerer, flags.pages),
    }
