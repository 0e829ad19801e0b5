"""Answers a file of questions with quotes that prove the answers: one JSON line per question.

    python launch/infer.py --model runs/sft --questions questions.jsonl --output answers.jsonl
    python launch/infer.py --model runs/sft --questions questions.jsonl --index corpus.db \\
      --output answers.jsonl

Questions include their pages, or hits of an index, or an index is searched for them. A line is what
`gophercite ask --json` prints, with the question's id; `gophercite verify` checks its quotes.
If it is interrupted, the same command resumes: batches that have all their answers are not
asked again, and each answer is the same as in an uninterrupted run. A question that can't be
answered is declined, with the reason. Ctrl-C ends it at once (exit status 130) and leaves the file
intact.

A model that is larger than one host is spread over several. Each runs the same command, all answer
together, and the first writes:

    python launch/infer.py --distributed --model-parallel 16 --model gs://… --questions gs://… \\
      --output gs://…/answers.jsonl
"""

import sys

from gophercite import importing, interruption

if __name__ == "__main__":  # before the imports that take seconds
    interruption.end_at_once()

import argparse
from collections.abc import Sequence

import refusals

from gophercite.cli import processes
from gophercite.cli.answering_flags import add_answering
from gophercite.storage.json_fields import in_one_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    try:
        refusals.refuse_missing(
            files=[flags.questions, flags.index], folders=[flags.model, flags.reward_model]
        )
    except OSError as error:
        print(f"infer: {in_one_line(error)}", file=sys.stderr)
        return 1
    with importing.libraries():
        # Imported here because it loads JAX, for which --help and a wrong name need not wait.
        import inference_run
    try:
        processes.join(flags, "infer")
        inference_run.run(flags)
    except (processes.JoinError, *inference_run.REFUSALS) as error:
        if processes.is_of_exchange(error):
            raise
        print(f"infer: {in_one_line(error)}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="infer.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--model",
        required=True,
        metavar="FOLDER",
        help="model folder, or folder of a training run",
    )
    add("--questions", required=True, metavar="FILE", help="questions.jsonl")
    add("--output", required=True, metavar="FILE", help="answers.jsonl; a path, or gs://…")
    add(
        "--index",
        metavar="FILE",
        help="index with the pages, for questions without pages or with only search results",
    )
    add("--pages", type=int, default=5, help="highest number of pages per question (default: 5)")
    add_answering(parser)
    add("--top-k", type=int, help="sample from the k most likely tokens (default: all)")
    add(
        "--top-p",
        type=float,
        default=1.0,
        help="sample from the nucleus with this probability (default: 1, all tokens)",
    )
    add(
        "--batch-size",
        type=int,
        metavar="N",
        help="number of questions answered at the same time; it does not change the answers, "
        "except for rounding (default: as many as have 512 answers together, on an "
        "accelerator 2048, and at most 256 pages; on a CPU one, if a model of 34 million "
        "parameters or more draws 16 answers or more)",
    )
    add(
        "--model-parallel",
        type=int,
        default=1,
        metavar="N",
        help="number of devices to split each model over, if one can't hold it (default: 1); of "
        "all processes, if there are several",
    )
    add(
        "--data-parallel",
        type=int,
        default=1,
        metavar="N",
        help="number of copies of the models, each for a share of the answers (default: 1)",
    )
    add("--all-samples", action="store_true", help="also write all samples of each question")
    add("--strict", action="store_true", help="stop at the first bad line of the questions")
    processes.add_flags(parser)
    flags = parser.parse_args(arguments)
    processes.check(parser, flags)
    if problem := processes.nowhere(flags):
        parser.error(problem)
    for name in ("pages", "batch_size"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} is {value}: must be at least 1")
    return flags


if __name__ == "__main__":
    status = processes.status_of(main, "infer")
    interruption.over()
    sys.exit(status)
