"""What `launch/eval.py` does once its settings are known: sample, judge, report."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gin
import jax
from etils import epath
from evaluation_settings import Evaluation
from question_files import training_questions

from gophercite.answering.loading import inference_partitioner, load_models, spans_processes
from gophercite.cli.sources import keep_compiled_programs
from gophercite.decoding.rerank import Scorer
from gophercite.evaluation.answer_log import (
    AnswerLog,
    AskingSettings,
    describe_asking,
    read_answer,
    shared_questions,
)
from gophercite.evaluation.baselines import judge_baselines
from gophercite.evaluation.citations import (
    CitationQuality,
    EntailmentModel,
    EntailmentServer,
    citation_quality,
)
from gophercite.evaluation.question_prompts import PromptReport
from gophercite.model_folders.checkpoint_errors import CheckpointError
from gophercite.model_folders.folder import Model
from gophercite.model_folders.tensors import TensorFileError
from gophercite.monitoring.progress import Progress
from gophercite.records import Question, Report
from gophercite.reports.overlap import overlap_splits, overlap_table
from gophercite.reports.report import describe
from gophercite.reports.report_files import Section
from gophercite.reports.results import Outcome, Results, choose, json_lines
from gophercite.reports.truthfulqa import rating_line, truthfulqa_section
from gophercite.retrieval.index_file import IndexFileError
from gophercite.text.counting import counted

# Errors that users cause, reported in one line.
REFUSALS = (OSError, ValueError, CheckpointError, TensorFileError, IndexFileError)


def configured(given: Mapping[str, Any]) -> Evaluation:
    """The evaluation that gin files describe.

    Args:
      given: settings that override the files'.

    Raises:
      ValueError: a setting is out of range.
    """
    return gin.get_configurable(Evaluation)(**given)


def run(evaluation: Evaluation, process: int = 0, count: int = 1) -> None:
    """Samples, scores, prints the table and some answers, and writes the report.

    Args:
      evaluation: the questions and settings.
      process, count: index and number of processes; this process answers its share of questions.

    Raises:
      ValueError: there are no questions, or every one was declined.
      OSError: a file can't be read or written.
    """
    results = _evaluate(evaluation, process, count)
    if results is None:
        return
    print(f"\n{results.table().markdown()}")
    if results.citations:  # which the first table has no room for
        print(results.details().markdown())
    for sample in results.best[: evaluation.examples]:
        print(f"{describe(sample)}\n")
    if evaluation.output is not None:
        print(f"Written: {', '.join(results.write(evaluation.output))}")


def _evaluate(evaluation: Evaluation, process: int, count: int) -> Results | None:
    """Answers this process's share of the questions; None if others have not finished theirs.

    Raises:
      ValueError: there are no questions, or every one was declined.
    """
    report = Report()
    try:
        questions = evaluation.read_questions(report)
    finally:
        if report.skipped or report.unknown_fields:
            print(f"{evaluation.questions}: {report}", file=sys.stderr)
    # Read before anything is sampled, which may take hours: they may be refused.
    train = training_questions(evaluation.train)
    splits = overlap_splits(questions, train) if evaluation.train else {}
    if evaluation.model is None:
        systems = judge_baselines(questions, evaluation.claims)
        title = f"Baselines on {evaluation.questions}"
        return Results(title, systems, claims=evaluation.claims)
    keep_compiled_programs()
    partitioner = inference_partitioner(evaluation.model_parallel)
    together = spans_processes(partitioner)
    writes = not together or jax.process_index() == 0
    entails = None
    if evaluation.nli is not None and writes:
        entails = EntailmentServer(evaluation.nli)
        entails.check()
    model, judge = load_models(evaluation.model, evaluation.reward_model or None, partitioner)
    settings = evaluation.asking(model)
    run = describe_asking(model, str(evaluation.model), settings, questions, judge)
    if together:
        process, count = 0, 1
    with _log(evaluation, run) as log:
        with partitioner.activate() if partitioner else contextlib.nullcontext():
            _ask(settings, model, judge, questions, log, process, count, together)
        if not writes:
            return None
        lines = log.read()
    left = sum(question.id not in lines for question in questions)
    if left:
        print(
            f"This process is done; {counted(left, 'question')} left to the other processes.",
            file=sys.stderr,
        )
        return None
    rules = evaluation.omissions, evaluation.claims
    outcomes = [Outcome(q, read_answer(q, lines[q.id], *rules)) for q in questions]
    if not any(outcome.samples for outcome in outcomes):
        raise ValueError("every question was declined: there is nothing to score")
    return _results(evaluation, model, run, outcomes, splits, entails)


def _results(
    evaluation: Evaluation,
    model: Model,
    run: dict[str, Any],
    outcomes: Sequence[Outcome],
    splits: Mapping[str, frozenset[str]],
    entails: EntailmentModel | None,
) -> Results:
    """Judges the answers that count, and the baselines on the same questions."""
    answered = [outcome.question for outcome in outcomes if outcome.samples]
    best = [choose(outcome.samples, evaluation.choice) for outcome in outcomes if outcome.samples]
    name = "model, constrained" if evaluation.constrained else "model"
    systems = {name: [sample.judgement for sample in best]}
    if evaluation.baselines:
        systems |= judge_baselines(answered, evaluation.claims)
    citations: list[CitationQuality | None] = []
    if entails is not None:
        triples = [sample.judgement.triples for sample in best]
        citations = citation_quality(triples, entails)
    sections = []
    if splits:
        judged = [(sample.question.id, sample.judgement) for sample in best]
        text = ["By the overlap of the question and its answers with the training data."]
        sections.append(Section("Overlap", text, [overlap_table(splits, judged)]))
    files = {}
    if any(question.incorrect_answers for question in answered):
        lines = [rating_line(sample, model.vocabulary) for sample in best]
        files["_claims.jsonl"] = json_lines(lines)
        sections.append(truthfulqa_section(lines))
    return Results(
        title=f"{evaluation.model} on {evaluation.questions}",
        systems=systems,
        run=run,
        outcomes=outcomes,
        best=best,
        model=str(model.provenance.get("id", evaluation.model)),
        citations=citations,
        sections=sections,
        files=files,
        claims=evaluation.claims,
    )


@contextlib.contextmanager
def _log(evaluation: Evaluation, run: dict[str, Any]) -> Iterator[AnswerLog]:
    """Where answers are saved as they arrive; temporary if there is no output."""
    if evaluation.output is not None:
        epath.Path(evaluation.output).parent.mkdir(parents=True, exist_ok=True)
        yield AnswerLog(evaluation.output, run)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield AnswerLog(epath.Path(folder) / "answers", run)


def _ask(
    settings: AskingSettings,
    model: Model,
    judge: Model | None,
    questions: Sequence[Question],
    log: AnswerLog,
    process: int,
    count: int,
    together: bool,
) -> None:
    """Samples the answers, showing progress, and reports what happened to the prompts."""
    total = shared_questions(questions, settings, process, count)
    stream = sys.stderr if not together or jax.process_index() == 0 else None
    progress = Progress(stream, total, unit="question")
    report = PromptReport()
    scorer = None if judge is None else Scorer(judge)
    counts = log.ask(
        model,
        questions,
        settings,
        report,
        scorer,
        process,
        count,
        together=together,
    )
    begun = shown = next(counts)
    if begun:
        progress.note(f"{counted(total, 'question')}, {begun} already answered")
    for answered in counts:
        if answered - shown >= settings.batch_size or answered == total:
            progress.step(answered, {})
            shown = answered
    progress.note(str(report))
