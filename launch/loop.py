"""The loop of figure 3: sample, have people rate, train on all ratings, evaluate, and repeat.

    launch/loop.sh runs/loop --gin_file=gin_configs/loop/sample_world.gin
    launch/loop.sh runs/loop --gin_file=gin_configs/loop/sample_world.gin --seeds 3
    launch/loop.sh runs/loop --gin_file=mine.gin --gin.Loop.rounds=2

Each round samples answers from the best model so far, in the first round from the base model with a
few-shot prompt. It chooses pairs that are worth rating, and waits until they are rated, by people
in the app or by simulated raters. It trains a supervised model and a reward model on the ratings of
all rounds, and a policy that learns from that reward, and evaluates both on questions that no round
uses. The model that is best on the validation questions is sampled from in the next round.

For each seed FOLDER gets seed_0/round_0/ … with the folders of its stages, and seed_0/study,
which `gophercite rate serve` serves to raters. It also gets report.md, .html, .json: growth of the
data and quality, round by round (figure 3). A finished stage is skipped and an interrupted one
resumes: start the same command again, even after a week of rating. Each stage is a separate
process, so nothing holds a device while people rate.

Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage; otherwise that
of the stage that failed, 75 if it was asked to stop and saved.
"""

import argparse
import gzip
import hashlib
import json
import pathlib
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Sequence

import gin
import gin_files
import loop_settings  # noqa: F401 (makes `Loop` known to gin)
from loop_report import best_policy, write_loop_report
from loop_settings import Loop, Place
from refusals import local_folder, refuse_large_seeds
from stages import StageError, hold_folder, run_python, run_stages

from gophercite.cli.arguments import seed
from gophercite.storage import write_whole
from gophercite.storage.json_fields import JsonFields, in_one_line
from gophercite.storage.json_lines import read_one
from gophercite.storage.paths import open_bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags, bindings = _parse(arguments)
    try:
        files = gin_files.load(flags.gin_file, bindings, flags.gin_search_paths)
        with gin_files.one_line(files, bindings):
            loop = gin.get_configurable(Loop)()
        places = [
            Place(loop, flags.folder / f"seed_{seed}", seed)
            for seed in range(flags.seed, flags.seed + flags.seeds)
        ]
        with hold_folder(flags.folder, _say):
            for place in places:
                status = run_loop(place)
                if status:
                    return status
            for line in write_loop_report(places, flags.folder / "report"):
                print(line)
    except (gin_files.ConfigurationError, StageError, OSError, ValueError) as error:
        print(f"loop: {in_one_line(error)}", file=sys.stderr)
        return 1
    return 0


def run_loop(place: Place, run: Callable[[Sequence[str]], int] = run_python) -> int:
    """Runs those rounds of one seed that are not done yet.

    Args:
      place: the loop's folder and settings.
      run: runs a Python command and returns its exit status.

    Returns:
      0, or the status of the first command that failed.

    Raises:
      StageError: a stage's folder holds the results of something else.
      OSError, ValueError: questions or results can't be read.
    """
    _say(f"seed {place.seed}, in {place.folder}")
    status = run_stages(place.first_stages(), run, _say)
    best, reward = None, None
    for number in range(place.loop.rounds):
        if status:
            return status
        take_questions(place, number)
        status = run_stages(place.stages(number, best, reward), run, _say)
        if not status:
            best, reward = best_policy(place, number)
            _say(f"round {number}: the best model so far is {best}")
    return status


def take_questions(place: Place, number: int) -> None:
    """Draws a round's questions among those that no earlier round has used.

    Raises:
      OSError: the file is missing.
      StageError: the round's questions were drawn with other settings.
      ValueError: the file can't be read, or has no more questions.
    """
    path, named = place.questions(number), pathlib.Path(place.named(place.loop.questions))
    each, used = place.loop.questions_per_round, set[str]()
    record = path.with_name(f"{path.stem}_drawn.json")
    if path.exists():
        if record.exists():  # loops that were begun by earlier versions have none
            _check_drawn(place, path, named, record)
        return
    for earlier in range(number):
        used.update(_lines(place.questions(earlier)))
    lines = _lines(named)
    # In the files, questions about the same page are adjacent.
    left = sorted({*lines} - used, key=_shuffled(place.seed))
    if not left:
        raise ValueError(
            f"{named}: has no questions left for round {number}: {number} rounds of {each} were "
            "used (Loop.questions_per_round)"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {"questions": str(named), "digest": _digest(lines), **_settings(place)}
    with write_whole(record) as unfinished:
        unfinished.write_text(json.dumps(settings, indent=2) + "\n", "utf-8")
    with write_whole(path) as unfinished:
        unfinished.write_text("".join(f"{line}\n" for line in left[:each]), "utf-8")


def _check_drawn(
    place: Place, path: pathlib.Path, named: pathlib.Path, record: pathlib.Path
) -> None:
    """Refuses questions that were drawn with other settings."""
    drawn = read_one(record, lambda value: JsonFields(value, None, Counter()).values)
    hint = f"undo the change, or start a new folder ({path})"
    for name, value in _settings(place).items():
        if drawn.get(name) != value:
            raise StageError(
                f"{name} = {value}: {path.stem} was drawn with {drawn.get(name)}; {hint}"
            )
    lines = _lines(named)
    # A file that only grew is no other: a loop that ran out of questions goes on with more.
    if drawn.get("digest") != _digest(lines) and not {*_lines(path)} <= {*lines}:
        raise StageError(
            f"Loop.questions = {str(named)!r}: {path.stem} was drawn from "
            f"{drawn.get('questions')!r}, which had other questions; {hint}"
        )


def _settings(place: Place) -> dict[str, int]:
    return {"Loop.questions_per_round": place.loop.questions_per_round, "seed": place.seed}


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _lines(path: pathlib.Path) -> list[str]:
    try:
        with open_bytes(path) as file:
            text = file.read().decode("utf-8")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: the compressed file is damaged ({error})") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: byte {error.start + 1} is not UTF-8") from None
    return [line for line in text.split("\n") if line.strip()]


def _shuffled(seed: int) -> Callable[[str], bytes]:
    """Sort keys that shuffle lines; a line's key does not depend on the other lines."""
    return lambda line: hashlib.sha256(f"{seed} {line}".encode()).digest()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, dict[str, str]]:
    parser = argparse.ArgumentParser(
        prog="launch/loop.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder for everything that is made")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the first loop (default: 0)")
    parser.add_argument(
        "--seeds", type=int, default=1, help="number of loops, each with its own seed (default: 1)"
    )
    gin_files.add_flags(parser)
    flags, rest = parser.parse_known_args(arguments)
    if flags.seeds < 1:
        parser.error(f"--seeds is {flags.seeds}: must be at least 1")
    refuse_large_seeds(parser, flags.seed, flags.seeds)
    flags.folder = local_folder(parser, "FOLDER", flags.folder)
    return flags, gin_files.read_bindings(parser, rest)


if __name__ == "__main__":
    sys.exit(main())
