"""Lets a model answer questions and scores its answers beside the sentence baselines.

    python launch/eval.py --model runs/sft --questions questions_test.jsonl --output runs/sft/test

Prints a table of percentages with 90 % intervals and some answers with their evidence, and writes
both as PREFIX.md, and all answers as PREFIX.jsonl. The model is a model folder or the folder of a
training run, whose best checkpoint is taken.
"""

import argparse
import json
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from gophercite import evidence
from gophercite.decoding.constraint import QuoteConstraint
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.evaluation.answers import JudgedSample, answer_questions, encode_question
from gophercite.evaluation.baselines import BASELINES
from gophercite.evaluation.metrics import Judgement, judge
from gophercite.evaluation.report import describe, metrics_table, samples_table
from gophercite.models.checkpoint_files import CheckpointError
from gophercite.models.folder import Model, load_model
from gophercite.records import Question, Report, read
from gophercite.training.progress import Progress

_SHOWN = 100  # answers in the Markdown report


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    systems: dict[str, list[Judgement]] = {}
    samples: list[JudgedSample] = []
    provenance: dict[str, Any] = {}
    try:
        settings = SamplingSettings(flags.max_tokens, flags.temperature, flags.top_p)
        questions = _read_questions(flags)
        if flags.model is not None:
            model = load_model(flags.model)
            provenance = model.provenance
            questions = _fitting(model, questions, flags.max_prompt_tokens)
        questions = questions[: flags.limit]
        if not questions:
            raise ValueError(f"{flags.questions} has no question that could be asked")
        if flags.model is not None:
            samples = _answer(model, questions, settings, flags)
            name = "model, constrained" if flags.constrained else "model"
            systems[name] = [sample.judgement for sample in samples]
    except (OSError, ValueError, CheckpointError) as error:
        print(f"eval: {error}", file=sys.stderr)
        return 1

    if flags.baselines:
        systems |= _judge_baselines(questions)
    table = metrics_table(systems)
    print(f"\n{table}")
    for sample in samples[: flags.examples]:
        print(f"{describe(sample)}\n")
    if flags.output is not None:
        _write(flags, provenance, table, samples)
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
        help="leave out questions whose pages are longer (default: 3840)",
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
    for name in ("limit", "batch_size", "max_prompt_tokens"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} is {value}: must be at least 1")
    if flags.model is None and not flags.baselines:
        parser.error("--no-baselines without --model leaves nothing to score")
    return flags


def _read_questions(flags: argparse.Namespace) -> list[Question]:
    report = Report()
    questions = list(read(flags.questions, Question, strict=flags.strict, report=report))
    if report.skipped or report.unknown_fields:
        print(f"{flags.questions}: {report}", file=sys.stderr)
    return questions


def _fitting(model: Model, questions: Sequence[Question], max_tokens: int) -> list[Question]:
    """Leaves out, and counts, the questions whose prompt is too long."""
    kept = [q for q in questions if len(encode_question(model.vocabulary, q)) <= max_tokens]
    if left_out := len(questions) - len(kept):
        print(
            f"{left_out} of {len(questions)} questions left out: prompt over {max_tokens} tokens",
            file=sys.stderr,
        )
    return kept


def _answer(
    model: Model,
    questions: Sequence[Question],
    settings: SamplingSettings,
    flags: argparse.Namespace,
) -> list[JudgedSample]:
    """Returns the model's answers in the questions' order, showing progress."""
    progress = Progress(sys.stderr, len(questions), unit="question")
    answers: dict[int, JudgedSample] = {}
    for index, sample in answer_questions(
        model.transformer,
        model.params,
        model.vocabulary,
        questions,
        settings,
        jax.random.key(flags.seed),
        batch_size=flags.batch_size,
        constraint=QuoteConstraint(model.vocabulary) if flags.constrained else None,
    ):
        answers[index] = sample
        if len(answers) % flags.batch_size == 0 or len(answers) == len(questions):
            right = sum(bool(s.judgement.claim_correct) for s in answers.values())
            progress.step(len(answers), {"claim correct": right / len(answers)})
    progress.note("")
    return [answers[index] for index in range(len(questions))]


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
    samples: Sequence[JudgedSample],
) -> None:
    prefix: pathlib.Path = flags.output
    prefix.parent.mkdir(parents=True, exist_ok=True)
    report, answers = (prefix.with_name(prefix.name + end) for end in (".md", ".jsonl"))
    text = f"# {flags.model or 'Baselines'} on {flags.questions}\n\n"
    if samples:
        text += f"Temperature {flags.temperature}, top-p {flags.top_p}, seed {flags.seed}; "
    text += f"percentages with 90 % intervals.\n\n{table}"
    if samples:
        text += f"\n## Answers\n\n{samples_table(samples[:_SHOWN])}"
        with answers.open("w", encoding="utf-8") as file:
            for line in _json_lines(flags, provenance, samples):
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
    report.write_text(text, "utf-8")
    print(f"Written: {report}" + (f", {answers}" if samples else ""))


def _json_lines(
    flags: argparse.Namespace, provenance: Mapping[str, Any], samples: Sequence[JudgedSample]
) -> Iterator[dict[str, Any]]:
    for sample in samples:
        judgement = sample.judgement
        yield {
            "question_id": sample.question.id,
            "question": sample.question.question,
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
