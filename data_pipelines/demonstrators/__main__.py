"""Writes scripted demonstrations of questions whose proof is known, in a recorded world.

    python -m data_pipelines.demonstrators WORLD QUESTIONS.jsonl OUT.jsonl.gz
    python -m data_pipelines.demonstrators worlds/own questions.jsonl episodes.jsonl --noise 0

WORLD is a folder that `data_pipelines.record_web` or `data_pipelines.sample_web` has written.
Questions are records (docs/records.md) with `evidence`. Their `documents` come in the order in
which to open them, and their ids are those of the world's pages or the pages' addresses. Each
question is demonstrated once, and the styles take turns. `gophercite validate --kind episodes`
checks OUT.
"""

import argparse
import sys
from collections.abc import Sequence

from data_pipelines.demonstrators.many import DemonstrationReport, demonstrations
from data_pipelines.demonstrators.options import add_options, progress_of, settings_of, styles_of
from data_pipelines.disk_paths import path_on_disk
from gophercite import records
from gophercite.browser.episodes import write_episodes
from gophercite.browser.recorded import RecordedWorld
from gophercite.storage.overwriting import refuse_overwriting
from gophercite.text.counting import counted


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.demonstrators",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("world", metavar="WORLD", help="folder of the world")
    parser.add_argument(
        "questions", type=path_on_disk, metavar="QUESTIONS", help="questions, .jsonl or .jsonl.gz"
    )
    parser.add_argument(
        "out",
        type=path_on_disk,
        metavar="OUT",
        help="file to write the episodes to, .jsonl or .jsonl.gz",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the random decisions (default 0)"
    )
    add_options(parser)
    options = parser.parse_args(arguments)
    report, reading = DemonstrationReport(), records.Report()
    try:
        refuse_overwriting([options.out], [options.questions, options.world])
        styles, settings = styles_of(options), settings_of(options)
        questions = list(records.read(options.questions, records.Question, report=reading))
        with RecordedWorld(options.world) as world:
            addresses = {page.id: page.url for page in world.documents() if page.url}
            episodes = demonstrations(
                world,
                questions,
                styles,
                report,
                settings=settings,
                seed=options.seed,
                addresses=addresses,
                progress=progress_of("demonstrations", len(questions)),
            )
            number = write_episodes(options.out, episodes)
    except (OSError, ValueError) as error:
        print(f"demonstrators: {error}", file=sys.stderr)
        return 1
    for problem in (*reading.errors, *report.problems):
        print(problem, file=sys.stderr)
    if number:
        print(report)
    print(f"{counted(number, 'episode')} of {counted(len(questions), 'question')} in {options.out}")
    return 0 if number else 1


if __name__ == "__main__":
    sys.exit(main())
