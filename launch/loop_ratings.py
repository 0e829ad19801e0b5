"""Has the items of a round rated, by people or by simulated raters, and waits until they are done.

    python launch/loop_ratings.py STUDY EXPERIMENT ITEMS --simulated 3 --accuracy 0.9
    python launch/loop_ratings.py STUDY EXPERIMENT ITEMS --pool super

ITEMS is a folder that `python -m data_pipelines.rating_items` has written. The experiment and the
study are created if they don't exist. People need a server, `gophercite rate serve STUDY`;
this command checks once a minute whether they are done, and needs only a little memory. It
can be stopped at any time and started again. Exit status: 0 everything is rated; 1 refused or
failed, with one line that says why; 130 Ctrl-C.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

from data_pipelines.disk_paths import path_on_disk
from gophercite import interruption
from gophercite.ratings import reports
from gophercite.ratings.assignment import Role
from gophercite.ratings.experiments import (
    Experiment,
    Settings,
    create_experiment,
    experiments,
)
from gophercite.ratings.forms import FORMS
from gophercite.ratings.items import add_items
from gophercite.ratings.loading import MATERIAL, read_items, read_written_items
from gophercite.ratings.simulated import SimulatedRater, simulate
from gophercite.ratings.store import StudyError
from gophercite.ratings.study import Study
from gophercite.storage.json_fields import RecordError, in_one_line
from gophercite.storage.json_lines import read_json_lines

_FORM = FORMS["comparison"]
_POLL = 60.0  # seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    try:
        study = _study(flags.study)
        experiment = _experiment(study, flags)
        if flags.simulated:
            raters = {
                f"simulated {number}": SimulatedRater(flags.accuracy)
                for number in range(flags.simulated)
            }
            truth = _truth(flags.items / "truth.jsonl")
            votes = simulate(study.store, experiment, truth, raters, flags.seed)
            print(f"{votes} votes of {flags.simulated} simulated raters", flush=True)
        return _wait(study, experiment, flags)
    except (OSError, StudyError, RecordError) as error:
        print(f"loop_ratings: {in_one_line(error)}", file=sys.stderr)
        return 1


def _study(folder: pathlib.Path) -> Study:
    return Study(folder) if (folder / "study.json").exists() else Study.create(folder)


def _experiment(study: Study, flags: argparse.Namespace) -> Experiment:
    """The round's experiment with all its items; creates whatever is missing."""
    with study.store.reading() as connection:
        existing = {each.name: each for each in experiments(connection)}
    experiment = existing.get(flags.experiment)
    if experiment is None:
        # Simulated raters write no comments, and people's settings are the paper's.
        settings = Settings(raters=flags.simulated, comment_words=0) if flags.simulated else None
        experiment = create_experiment(
            study.store, flags.experiment, _FORM.name, flags.pool, settings or Settings()
        )
    loaded = read_items([flags.items / "items.jsonl"], _FORM)
    for error in loaded.errors[:3]:
        print(error, file=sys.stderr)
    if not loaded.items:
        raise StudyError(f"{flags.items}/items.jsonl: it contains nothing to rate")
    written = []
    if not flags.simulated:
        for role, name in ((Role.CHECK, "checks"), (Role.EXAMPLE, "examples")):
            path = MATERIAL / f"{_FORM.name}_{name}.jsonl"
            written += list(read_written_items(path, role, _FORM, experiment.settings))
    add_items(study.store, experiment, [*loaded.items, *written])
    return experiment


def _truth(path: pathlib.Path) -> dict[str, Any]:
    """The true labels of each item.

    Raises:
      RecordError: no item has any.
    """
    found: dict[str, Any] = {}
    for number, line in read_json_lines(path):
        if not isinstance(line, dict) or not {"item", "values"} <= line.keys():
            raise RecordError("expected an object with item and values", None, path, number)
        found[line["item"]] = line["values"]
    if not found:
        raise RecordError("simulated raters need samples that were judged", None, path)
    return found


def _wait(study: Study, experiment: Experiment, flags: argparse.Namespace) -> int:
    """Reports the raters' progress until everything is rated."""
    last_line = ""
    while True:
        with study.store.reading() as connection:
            progress = reports.report(connection, experiment)
        if progress.complete == progress.items:
            print(f"{experiment.name}: all {progress.items} items are rated")
            return 0
        if flags.simulated:
            raise StudyError(
                f"only {progress.complete} of {progress.items} items have "
                f"{experiment.settings.raters} votes; the others have no known right answer, so "
                "simulated raters can't rate them"
            )
        line = (
            f"waiting for people: {progress.complete} of {progress.items} items are rated; "
            f"they rate with `gophercite rate serve {flags.study}`"
        )
        if line != last_line:
            print(line, flush=True)
        last_line = line
        time.sleep(flags.poll)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="loop_ratings.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("study", type=path_on_disk, metavar="STUDY", help="the study's folder")
    add("experiment", metavar="EXPERIMENT", help="name of the round in the study")
    add("items", type=path_on_disk, metavar="ITEMS", help="folder with items.jsonl")
    add("--pool", default="super", help="pool of raters (default: super)")
    add(
        "--simulated",
        type=int,
        default=0,
        metavar="N",
        help="number of simulated raters, instead of people",
    )
    add("--accuracy", type=float, default=0.9, help="accuracy of simulated raters (default: 0.9)")
    add(
        "--seed",
        type=int,
        default=0,
        help="seed for the simulated raters' random draws (default: 0)",
    )
    add("--poll", type=float, default=_POLL, metavar="SECONDS", help="(default: 60)")
    flags = parser.parse_args(arguments)
    if not 0 <= flags.accuracy <= 1:
        parser.error(f"--accuracy is {flags.accuracy}: must be from 0 to 1")
    if flags.simulated < 0:
        parser.error(f"--simulated is {flags.simulated}: must be at least 0")
    if not 0 <= flags.poll <= 3600:
        parser.error(f"--poll is {flags.poll}: must be from 0 to 3600 seconds")
    return flags


if __name__ == "__main__":
    interruption.end_at_once()
    sys.exit(main())
