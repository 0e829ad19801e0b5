"""Lets a model answer questions and scores its answers beside the sentence baselines.

    python launch/eval.py --model runs/sft --questions questions_test.jsonl --output runs/sft/test

Prints a table of percentages with 90 % intervals and some answers with their evidence, and writes
both as PREFIX.md, and all answers as PREFIX.jsonl; where a question has several samples, all of
them as PREFIX_samples.jsonl. The model is a model folder or the folder of a training run, whose
best checkpoint is taken.
"""

import argparse
import functools
import json
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from gophercite import evidence
from gophercite.decoding.constraint import QuoteConstraint
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.evaluation.answers import JudgedSample, answer_questions
from gophercite.evaluation.baselines import BASELINES
from gophercite.evaluation.metrics import Judgement, judge
from gophercite.evaluation.question_prompts import PromptReport, PromptSettings
from gophercite.evaluation.report import describe, metrics_table, samples_table
from gophercite.few_shot.prompting import FewShotSettings, Style
from gophercite.models.checkpoint_files import CheckpointError
from gophercite.models.folder import Model, load_model
from gophercite.records import Question, Report, read
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.index_file import IndexFileError
from gophercite.search_results import with_pages
from gophercite.training.progress import Progress

_SHOWN = 100  # answers in the Markdown report


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    systems: dict[str, list[Judgement]] = {}
    answers: list[tuple[JudgedSample, ...]] = []
    report = PromptReport()
    provenance: dict[str, Any] = {}
    try:
        questions = _read_questions(flags)
        asked = questions
        if flags.model is not None:
            model = load_model(flags.model)
            provenance = model.provenance
            answers = _answer(model, questions, flags, report)
            asked = [samples[0].question for samples in answers]
            name = "model, constrained" if flags.constrained else "model"
            systems[name] = [samples[0].judgement for samples in answers]
            print(report, file=sys.stderr)
            if not answers:
                raise ValueError("every question was declined: there is nothing to score")
    except (OSError, ValueError, CheckpointError, IndexFileError) as error:
        print(f"eval: {error}", file=sys.stderr)
        return 1

    if flags.baselines:
        systems |= _judge_baselines(asked)
    table = metrics_table(systems)
    print(f"\n{table}")
    for samples in answers[: flags.examples]:
        print(f"{describe(samples[0])}\n")
    if flags.output is not None:
        declined = [(questions[index], reason) for index, reason in report.declined.items()]
        _write(flags, provenance, table, answers, declined)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="eval.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--model",
        metavar="FOLDER",
        help="model folder, or folder of a run; without, baselines only",
    )
    add("--questions", type=pathlib.Path, required=True, metavar="FILE", help="questions.jsonl")
    add("--limit", type=int, help="ask only the first so many questions (default: all)")
    add("--batch-size", type=int, default=16, help="questions asked at once (default: 16)")
    add("--max-tokens", type=int, default=256, help="longest answer (default: 256)")
    add(
        "--max-prompt-tokens",
        type=int,
        default=3840,
        help="longest prompt; longer pages are cut to windows (default: 3840)",
    )
    add("--index", metavar="FILE", help="has the pages of questions that hold search results")
    add(
        "--pages",
        choices=("together", "each"),
        default="together",
        help="a question's pages in one prompt, or each in one of its own, of whose answers the "
        "likeliest is scored (default: together)",
    )
    add("--samples", type=int, default=1, help="answers to each prompt (default: 1)")
    add(
        "--few-shot",
        choices=[style.value for style in Style],
        help="put examples before, for a base model (docs/bootstrapping.md)",
    )
    add("--temperature", type=float, default=0.0, help="0 takes the likeliest token (default: 0)")
    add("--top-p", type=float, default=1.0, help="nucleus to sample from (default: 1, everything)")
    add(
        "--constrained",
        action="store_true",
        help="allow only answers that are well formed and quote the pages verbatim",
    )
    add("--seed", type=int, default=0, help="of the sampling (default: 0)")
    add("--examples", type=int, default=5, help="answers to print (default: 5)")
    add("--strict", action="store_true", help="stop at the first bad line of the questions")
    add(
        "--baselines",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="score the sentence baselines on the same questions",
    )
    add(
        "--output",
        type=pathlib.Path,
        metavar="PREFIX",
        help="write the report to PREFIX.md and the answers to PREFIX.jsonl",
    )
    flags = parser.parse_args(arguments)
    for name in ("limit", "batch_size", "max_prompt_tokens", "samples"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} is {value}: must be at least 1")
    if flags.model is None and not flags.baselines:
        parser.error("--no-baselines without --model leaves nothing to score")
    return flags


def _read_questions(flags: argparse.Namespace) -> list[Question]:
    """Returns the questions with their pages.

    Raises:
      ValueError: when there is none, or the index lacks a page.
    """
    report = Report()
    questions = list(read(flags.questions, Question, strict=flags.strict, report=report))
    if report.skipped or report.unknown_fields:
        print(f"{flags.questions}: {report}", file=sys.stderr)
    questions = questions[: flags.limit]
    if not questions:
        raise ValueError(f"{flags.questions} has no question that could be asked")
    if flags.index is None:
        return questions
    with DocumentIndex(flags.index) as index:
        page = functools.cache(index.document)
        return [with_pages(question, page) for question in questions]


def _answer(
    model: Model, questions: Sequence[Question], flags: argparse.Namespace, report: PromptReport
) -> list[tuple[JudgedSample, ...]]:
    """Returns the model's answers in the questions' order, the best first, showing progress."""
    progress = Progress(sys.stderr, len(questions), unit="question")
    few_shot = FewShotSettings(Style(flags.few_shot)) if flags.few_shot else None
    answers: dict[int, tuple[JudgedSample, ...]] = {}
    right = 0
    for index, samples in answer_questions(
        model.transformer,
        model.params,
        model.vocabulary,
        questions,
        SamplingSettings(flags.max_tokens, flags.temperature, top_p=flags.top_p),
        jax.random.key(flags.seed),
        batch_size=flags.batch_size,
        constraint=QuoteConstraint(model.vocabulary) if flags.constrained else None,
        prompts=PromptSettings(
            flags.max_prompt_tokens, flags.pages, few_shot=few_shot, seed=flags.seed
        ),
        samples=flags.samples,
        report=report,
    ):
        answers[index] = samples
        right += bool(samples[0].judgement.claim_correct)
        if len(answers) % flags.batch_size == 0 or len(answers) == len(questions):
            progress.step(len(answers), {"claim correct": right / len(answers)})
    progress.note("")
    return [answers[index] for index in sorted(answers)]


def _judge_baselines(questions: Sequence[Question]) -> dict[str, list[Judgement]]:
    """Judges each baseline on the questions; what it cannot answer counts as malformed."""
    systems: dict[str, list[Judgement]] = {}
    for name, baseline in BASELINES.items():
        chosen = ((question, baseline(question)) for question in questions)
        systems[name] = [
            judge("" if triple is None else evidence.format(triple), question)
            for question, triple in chosen
        ]
    return systems


def _write(
    flags: argparse.Namespace,
    provenance: Mapping[str, Any],
    table: str,
    answers: Sequence[tuple[JudgedSample, ...]],
    declined: Sequence[tuple[Question, str]],
) -> None:
    prefix: pathlib.Path = flags.output
    prefix.parent.mkdir(parents=True, exist_ok=True)
    text = f"# {flags.model or 'Baselines'} on {flags.questions}\n\n"
    if answers:
        text += f"Temperature {flags.temperature}, top-p {flags.top_p}, seed {flags.seed}; "
    text += f"percentages with 90 % intervals.\n\n{table}"
    files = [f"{prefix}.md"]
    if answers:
        if declined:
            text += f"\nDeclined, and in no row: {len(declined)} questions.\n"
        best = [samples[0] for samples in answers]
        text += f"\n## Answers\n\n{samples_table(best[:_SHOWN])}"
        lines = [_line(flags, provenance, sample) | {"declined": False} for sample in best]
        lines += [
            {"question_id": q.id, "question": q.question, "declined": True, "reason": reason}
            for q, reason in declined
        ]
        files.append(_write_lines(f"{prefix}.jsonl", lines))
        if any(len(samples) > 1 for samples in answers):
            every = [_line(flags, provenance, each) for samples in answers for each in samples]
            files.append(_write_lines(f"{prefix}_samples.jsonl", every))
    pathlib.Path(files[0]).write_text(text, "utf-8")
    print(f"Written: {', '.join(files)}")


def _write_lines(path: str, lines: Iterable[Mapping[str, Any]]) -> str:
    with open(path, "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return path


def _line(
    flags: argparse.Namespace, provenance: Mapping[str, Any], sample: JudgedSample
) -> dict[str, Any]:
    judgement = sample.judgement
    return {
        "question_id": sample.question.id,
        "question": sample.question.question,
        "document": sample.document,
        "text": sample.text,
        "tokens": sample.tokens,
        "log_prob": sample.log_prob,
        "faults": sorted(fault.value for fault in judgement.faults),
        "well_formed": judgement.well_formed,
        "verbatim": judgement.verbatim,
        "claim_correct": judgement.claim_correct,
        "claim_f1": judgement.claim_f1,
        "quote_contains_answer": judgement.quote_contains_answer,
        "supported": judgement.supported,
        "seed": flags.seed,
        "model": provenance.get("id", str(flags.model)),
    }


if __name__ == "__main__":
    sys.exit(main())
