"""Builds a web to learn on: linked pages, questions with their proof, scripted demonstrations.

    python -m data_pipelines.sample_web --out webs/small
    python -m data_pipelines.sample_web --out webs/large --pages 3000 --questions 20000
    python -m data_pipelines.sample_web --out webs/tiny --pages 100 --questions 200 \\
        --view-lines 12 --results 5 --styles follower,finder --noise 0

The splits train, validation and test have no name in common. For each of them, OUT gets
`world_SPLIT` (a recorded world), `questions_SPLIT.jsonl` (records with answers and evidence, whose
documents are in the order in which to open them) and `demonstrations_SPLIT.jsonl.gz` (episodes).
The same flags give the same bytes. To browse it: gophercite browse "…" --world OUT/world_train
"""

import argparse
import sys
import time
from collections.abc import Sequence

from data_pipelines.demonstrators.options import (
    add_options,
    numbers,
    progress_of,
    settings_of,
    styles_of,
)
from data_pipelines.disk_paths import path_on_disk
from data_pipelines.sample_web.making import Made, make_split
from data_pipelines.sample_web.questions import MOST_STEPS, STEPS
from data_pipelines.sample_world.names import SPLITS
from gophercite.text.counting import counted


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _parse(arguments)
    try:
        settings, styles = settings_of(options), styles_of(options)
        if existing := [split for split in SPLITS if (options.out / f"world_{split}").exists()]:
            raise FileExistsError(
                f"{options.out / f'world_{existing[0]}'}: already exists; name a new folder"
            )
        for split in SPLITS:
            began = time.monotonic()
            held_out = split != "train"
            questions = options.held_out_questions if held_out else options.questions
            made = make_split(
                options.out,
                split,
                seed=options.seed,
                pages=options.pages,
                questions=questions,
                demonstrated=questions if held_out else options.demonstrations,
                steps=options.steps,
                settings=settings,
                styles=styles,
                progress=progress_of,
            )
            print(_said(split, made, time.monotonic() - began), flush=True)
            if sum(made.questions.values()) < questions:
                few = f"{split}: the site allows only {sum(made.questions.values())} such questions"
                print(f"{few}; {questions} were asked for", file=sys.stderr)
    except (OSError, ValueError) as error:
        print(f"sample_web: {error}", file=sys.stderr)
        return 1
    return 0


def _said(split: str, made: Made, seconds: float) -> str:
    by_steps = ", ".join(
        f"{made.questions[n]} need {counted(n, 'page')}" for n in sorted(made.questions)
    )
    number = sum(made.questions.values())
    lines = [
        f"{split}: {made.pages} pages with {made.links} links, {made.hidden} hidden from search; "
        f"{number} questions ({by_steps}); {seconds:.1f} s"
    ]
    if made.demonstrations.episodes:
        lines.append(str(made.demonstrations))
    return "\n".join(lines)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.sample_web",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", type=path_on_disk, required=True, metavar="DIR", help="new folder to write to"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the web (default 0)")
    parser.add_argument("--pages", type=int, default=300, help="pages per split (default 300)")
    parser.add_argument(
        "--questions", type=int, default=1000, help="questions of the training split (default 1000)"
    )
    parser.add_argument(
        "--demonstrations",
        type=int,
        default=1000,
        help="number of training questions to demonstrate; the rest are for reward models "
        "and reinforcement learning, which should see other questions (default 1000)",
    )
    parser.add_argument(
        "--held-out-questions",
        type=int,
        default=200,
        help="questions of the validation and test splits each, all demonstrated (default 200)",
    )
    parser.add_argument(
        "--steps",
        type=numbers,
        default=STEPS,
        metavar="N,N,N,N",
        help="relative frequencies of questions that need 1, 2, 3 and 4 pages (default 4,3,2,1)",
    )
    add_options(parser)
    options = parser.parse_args(arguments)
    if len(options.steps) > MOST_STEPS:
        parser.error(
            f"argument --steps: expected at most {MOST_STEPS} numbers, got {len(options.steps)}"
        )
    for name in ("questions", "held_out_questions"):
        if getattr(options, name) < 1:
            parser.error(f"argument --{name.replace('_', '-')}: must be at least 1")
    if options.demonstrations < 0:
        parser.error("argument --demonstrations: must not be negative")
    return options


if __name__ == "__main__":
    sys.exit(main())
