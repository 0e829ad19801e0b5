"""Lets a model answer questions and scores its answers next to the baselines.

examples:
  python launch/eval.py --model runs/sft --questions questions_test.jsonl --output runs/sft/test

  # settings from a file; flags are applied after it and win
  python launch/eval.py --gin_file=gin_configs/evaluation/paper.gin --gin.MODEL=runs/sft \\
    --gin.QUESTIONS=questions_test.jsonl --gin.OUTPUT=runs/sft/test --batch-size 64

  # one of four processes that share the questions, on one machine or on four
  python launch/eval.py --gin_file=… --gin.OUTPUT=gs://bucket/sft/test \\
    --num_processes=4 --process_id=0

Prints a table of percentages with 90 % intervals and some answers with their evidence, and writes a
report as PREFIX.md, PREFIX.html and figures, all answers as PREFIX.jsonl, and, if a question has
several samples, all of them as PREFIX_samples.jsonl. If it is interrupted, the same command resumes
with the questions that have no answer yet. Exit status: 0 done; 1 refused or failed, with one
line that says why; 2 wrong usage; 130 Ctrl-C, which ends it at once.
"""

import sys

from gophercite import importing, interruption

if __name__ == "__main__":  # before the imports that take seconds
    interruption.end_at_once()

import argparse
from collections.abc import Sequence
from typing import Any

import gin_files
import refusals
import setting_checks

from gophercite.cli import processes
from gophercite.storage.json_fields import in_one_line

SETTINGS = gin_files.ROOT / "launch" / "evaluation_settings.py"
STYLES = ("short", "long", "cited")
CHOICES = ("consensus", "mean", "likelihood", "reward", "rouge")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags, given, bindings = _parse(arguments)
    try:
        setting_checks.check(flags.gin_file, bindings, flags.gin_search_paths, SETTINGS)
        refusals.refuse_missing(
            files=[given.get("questions"), given.get("index"), *given.get("train", ())],
            folders=[given.get("model"), given.get("reward_model")],
        )
    except (gin_files.ConfigurationError, OSError) as error:
        print(f"eval: {in_one_line(error)}", file=sys.stderr)
        return 1
    with importing.libraries():
        # Imported here because it loads JAX, for which --help and a wrong name need not wait.
        import evaluation_run
    try:
        processes.join(flags, "eval")
        gin_files.load(flags.gin_file, bindings, flags.gin_search_paths)
        with gin_files.one_line():
            evaluation = evaluation_run.configured(given)
        evaluation_run.run(evaluation, *_place(flags))
    except (processes.JoinError, *evaluation_run.REFUSALS) as error:
        if processes.is_of_exchange(error):
            raise
        print(f"eval: {in_one_line(error)}", file=sys.stderr)
        return 1
    return 0


def _place(flags: argparse.Namespace) -> tuple[int, int]:
    """Returns this process's index and the number of processes."""
    if flags.distributed or flags.coordinator_address:
        import jax

        return jax.process_index(), jax.process_count()
    return flags.process_id or 0, flags.num_processes or 1


def _parse(
    arguments: Sequence[str] | None,
) -> tuple[argparse.Namespace, dict[str, Any], dict[str, str]]:
    """Returns the command's own flags, the settings that were given, and gin's bindings."""
    parser = argparse.ArgumentParser(
        prog="eval.py",
        description=__doc__,
        usage="eval.py [--gin_file=FILE …] [--gin.NAME=VALUE …] [settings]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    gin_files.add_flags(parser, required=False)
    processes.add_flags(parser)
    settings = parser.add_argument_group("settings", argument_default=argparse.SUPPRESS)
    _add_settings(settings)
    flags, rest = parser.parse_known_args(arguments)
    bindings = gin_files.read_bindings(parser, rest)
    names = {action.dest for action in settings._group_actions}
    given = {name: value for name, value in vars(flags).items() if name in names}
    for name in ("limit", "batch_size", "max_prompt_tokens", "samples", "model_parallel"):
        if given.get(name) is not None and given[name] < 1:
            parser.error(f"--{name.replace('_', '-')} is {given[name]}: must be at least 1")
    if not flags.gin_file and "questions" not in given:
        parser.error("the following arguments are required: --questions")
    processes.check(parser, flags)
    if (flags.process_id or 0) >= (flags.num_processes or 1):
        parser.error(
            f"--process_id is {flags.process_id}: also give the number of processes with "
            "--num_processes"
        )
    return flags, given, bindings


def _add_settings(group: argparse._ArgumentGroup) -> None:
    """Adds a flag for each setting of `Evaluation`; settings that are not given keep gin's
    value."""
    _add_questions_and_prompts(group)
    _add_sampling(group)
    _add_judging(group)
    _add_report(group)


def _add_questions_and_prompts(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--model",
        metavar="FOLDER",
        help="model folder, or folder of a training run; without it, only baselines are scored",
    )
    add("--questions", metavar="FILE", help="questions.jsonl")
    add(
        "--limit",
        type=int,
        help="ask only this many questions, evenly spread over the file (default: all)",
    )
    add("--batch-size", type=int, help="prompts answered at the same time (default: 16)")
    add("--max-tokens", type=int, help="length of the longest answer, in tokens (default: 256)")
    add(
        "--max-prompt-tokens",
        type=int,
        help="length of the longest prompt, in tokens; longer pages are cut to windows (default: "
        "what an answer leaves of the length that the model was trained with, seven eighths of it "
        "at least; 3840 at most, and if that isn't known)",
    )
    add(
        "--index",
        metavar="FILE",
        help="index with the pages of questions that hold only search results",
    )
    add(
        "--pages",
        choices=("together", "each"),
        help="put a question's pages into one prompt, or one page into each prompt (default: "
        "together)",
    )
    add("--samples", type=int, help="answers sampled for each prompt (default: 1)")
    add(
        "--model-parallel",
        type=int,
        metavar="N",
        help="number of devices to split each model over, if one can't hold it (default: 1); if "
        "that is all devices of several processes, they answer all questions together",
    )
    add(
        "--few-shot",
        choices=STYLES,
        help="put examples before the question, for a base model (docs/bootstrapping.md)",
    )
    add("--shots", type=int, help="how many examples, from 0 to 5 (default: 3)")


def _add_sampling(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    yes_or_no = argparse.BooleanOptionalAction
    add(
        "--temperature",
        type=float,
        help="sampling temperature; 0 takes the most likely token (default: 0)",
    )
    add(
        "--top-p",
        type=float,
        help="sample from the nucleus with this probability (default: 1, all tokens)",
    )
    add(
        "--constrained",
        action=yes_or_no,
        help="constrain the sampling to well-formed answers with verbatim quotes",
    )
    add(
        "--omissions",
        type=int,
        help="how often a constrained quote may leave words out, marked by ` [...] ` (default: 0)",
    )
    add(
        "--boundaries",
        choices=("words", "sentences", "characters"),
        help="where a constrained quote may begin and end (default: words)",
    )
    add(
        "--claim-in-quote",
        action=yes_or_no,
        help="the quote of a constrained answer must contain its claim if that is in the pages "
        "(default: yes)",
    )


def _add_judging(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--claims",
        choices=("equal", "contain"),
        help="a claim is correct if it equals an accepted answer, or if it contains one "
        "(default: equal)",
    )
    add("--seed", type=int, help="seed of the sampling (default: 0)")
    add(
        "--choose",
        choices=CHOICES,
        help="which of a question's samples counts: the one that agrees most with all and "
        "is likely, too (consensus), the one whose tokens are the most likely on average (mean) or "
        "together (likelihood), the one with the highest reward, or, of a few-shot model's claims, "
        "the one with the second best evidence (rouge); default: by reward if there is a reward "
        "model, otherwise by consensus",
    )
    add(
        "--reward-model",
        metavar="FOLDER",
        help="reward model that scores all samples: its folder or its run's",
    )
    add("--nli", metavar="URL", help="URL of a language-inference server (docs/evaluation.md)")
    add(
        "--train",
        nargs="+",
        metavar="FILE",
        help="training questions, to score questions by their overlap with them",
    )


def _add_report(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    yes_or_no = argparse.BooleanOptionalAction
    add("--examples", type=int, help="number of answers to print (default: 5)")
    add("--strict", action=yes_or_no, help="stop at the first bad line of the questions")
    add("--baselines", action=yes_or_no, help="also score the baselines on the same questions")
    add(
        "--output",
        metavar="PREFIX",
        help="write results to PREFIX.md, .html, .jsonl …; a path, or a URL as gs://bucket/name",
    )


if __name__ == "__main__":
    status = processes.status_of(main, "eval")
    interruption.over()
    sys.exit(status)
