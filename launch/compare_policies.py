"""What reinforcement learning changed in a model: table 1, figures 4 and 5, diversity, faults.

    python launch/compare_policies.py SFT=runs/sft/test RL=runs/rl/test --output runs/report

    # several chains of training runs, each with its seed: the gain, with an interval over chains
    python launch/compare_policies.py "SFT 0=answers/sft_0" "RL 0=answers/rl_0" \\
      "SFT 1=answers/sft_1" "RL 1=answers/rl_1" --trained "RL 0=runs/rl_0" --output runs/report

Each NAME=PREFIX was written by launch/eval.py --output PREFIX with a --reward-model and
several --samples. They come in pairs: a model before reinforcement learning, and the one after it.
PREFIX_free, if it exists, has samples without the constraint, for their faults. How far a model has
moved is read from its run's metrics at the checkpoint that answered. Writes OUTPUT.md, .html, .json
and figures. Exit
status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage.
"""

import argparse
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from etils import epath
from named_paths import named_path, refuse_own_results

from gophercite.evaluation.policies import Chain, Policy, PolicyStudy
from gophercite.model_folders.checkpoint_files import best_step
from gophercite.reports.figure_sections import SavedSystem
from gophercite.reports.policy_report import quality_table, scored_questions, sections, summary
from gophercite.reports.report_files import Section, write_files, write_report
from gophercite.reports.saved_results import (
    SavedResultsError,
    read_system,
    require_same_questions,
)
from gophercite.reports.tables import Table
from gophercite.storage.json_fields import JsonFields, RecordError, in_one_line
from gophercite.storage.json_lines import read_json_lines, read_one

_SET = "eval/validation/"
# What the report shows of a training run, with the names that people read.
_SHOWN = {
    "loss": "loss",
    "preference_accuracy": "preference accuracy",
    "supported_and_plausible_auc": "area under ROC of S&P",
    "reward": "reward",
    "kl": "KL",
}
_EXPLAINED = "critic/vf_explained_var"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    try:
        systems = [read_system(name, prefix) for name, prefix in flags.policy]
        require_same_questions(systems)
        prefixes = [prefix for _, prefix in flags.policy]
        policies = [_policy(*each) for each in zip(systems, prefixes, strict=True)]
        pairs = zip(policies[::2], policies[1::2], strict=True)
        study = PolicyStudy([Chain(*pair) for pair in pairs])
        parts = sections(study)
        if flags.trained:
            parts.append(_trainings(flags.trained))
        files = write_report(flags.output, flags.title, parts)
        numbers = json.dumps(summary(study), indent=2, ensure_ascii=False) + "\n"
        files += write_files(flags.output, {".json": numbers})
    except (OSError, ValueError) as error:
        print(f"compare_policies: {in_one_line(error)}", file=sys.stderr)
        return 1
    print(f"{quality_table(study).markdown()}\n{scored_questions(study)}")
    print(f"Written: {', '.join(files)}")
    return 0


def _policy(system: SavedSystem, prefix: str) -> Policy:
    """Returns a policy, with its free samples and how far it has moved according to its run.

    Raises:
      RecordError, SavedResultsError: a file is missing or does not come from an evaluation.
    """
    free = f"{prefix}_free"
    has_free = epath.Path(f"{free}.jsonl").exists()
    freely = read_system(system.name, free).samples if has_free else ()
    return Policy(system.name, system.samples, freely, _kl(prefix))


def _kl(prefix: str) -> float | None:
    """The divergence at the checkpoint that answered; None if no metrics record it."""

    def parse(value: object) -> tuple[str, object]:
        fields = JsonFields(value, None, Counter())
        run = fields.optional_object("run", None)
        if run is None:
            raise fields.error("run", "is missing: expected what launch/eval.py writes")
        provenance = run.optional_object("provenance", None)
        return run.text("model", raw=True), provenance and provenance.values.get("step")

    path = epath.Path(f"{prefix}.json")
    try:
        folder, step = read_one(path, parse)
    except FileNotFoundError:
        raise SavedResultsError(
            f"{path}: there is no such file; launch/eval.py --output writes it"
        ) from None
    return _evaluated(_measured(folder), step).get("kl")


class _Measured(NamedTuple):
    """A line of a run's metrics: what the report shows of it."""

    step: float | None
    split: object
    shown: Mapping[str, float]  # by the names in `_SHOWN`
    explained: float | None


def _measured(folder: str) -> list[_Measured]:
    """A run's metrics; lines that can't be read are left out, since a kill may have cut them.

    Raises:
      RecordError: a line has something else in the place of a number.
    """
    path, found = f"{epath.Path(folder)}/metrics.jsonl", []
    with contextlib.suppress(FileNotFoundError):
        for number, value in read_json_lines(path):
            if isinstance(value, RecordError):
                continue
            try:
                fields = JsonFields(value, None, Counter())
                shown = {name: fields.optional_number(_SET + name) for name in _SHOWN}
                found.append(
                    _Measured(
                        fields.optional_number("step"),
                        fields.values.get("split"),
                        {name: each for name, each in shown.items() if each is not None},
                        fields.optional_number(_EXPLAINED),
                    )
                )
            except RecordError as error:
                raise RecordError(error.problem, error.field, path, number) from None
    return found


def _evaluated(measured: Sequence[_Measured], step: object) -> Mapping[str, float]:
    """A run's validation metrics at a step; empty if there are none."""
    lines = (line for line in measured if line.step == step and line.split == "validation")
    return next((line.shown for line in lines), {})


def _trainings(runs: Sequence[tuple[str, str]]) -> Section:
    """The checkpoints that training runs have chosen, and their validation metrics.

    Raises:
      SavedResultsError: there is no such folder.
    """
    rows = []
    for name, folder in runs:
        if not epath.Path(folder).is_dir():
            raise SavedResultsError(f"--trained {name}={folder}: there is no such folder")
        step, measured = best_step(folder), _measured(folder)
        found = _evaluated(measured, step)
        said = [f"{_SHOWN[metric]} {value:.4g}" for metric, value in found.items()]
        explained = _explained(measured)
        if explained is not None:
            said.append(
                f"the critic explains {100 * explained:.0f} % of the rewards' variance in the last "
                "third of the steps"
            )
        rows.append([name, "–" if step is None else str(step), ", ".join(said) or "–"])
    return Section("Trainings", tables=[Table(["training", "best step", "on validation"], rows)])


def _explained(measured: Sequence[_Measured]) -> float | None:
    """The share of the rewards' variance that a run's critic explains, averaged over the logged
    steps of the run's last third; None for a run without a critic."""
    known = [(line.step or 0, line.explained) for line in measured if line.explained is not None]
    last = max((step for step, _ in known), default=0)
    found = [explained for step, explained in known if 3 * step > 2 * last]
    return sum(found) / len(found) if found else None


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="compare_policies.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "policy", nargs="+", type=named_path, metavar="NAME=PREFIX", help="results of an evaluation"
    )
    add("--output", required=True, metavar="PREFIX", help="of the report: PREFIX.md, .html …")
    add("--title", default="Before and after reinforcement learning", help="of the report")
    add(
        "--trained",
        nargs="+",
        type=named_path,
        metavar="NAME=FOLDER",
        default=[],
        help="training runs whose best checkpoints the report lists",
    )
    flags = parser.parse_args(arguments)
    if len(flags.policy) % 2:
        parser.error(
            f"{len(flags.policy)} results were given, but they must come in pairs, BEFORE=PREFIX "
            "AFTER=PREFIX"
        )
    prefixes = [prefix for _, prefix in flags.policy]
    refuse_own_results(parser, flags.output, [*prefixes, *(f"{each}_free" for each in prefixes)])
    return flags


if __name__ == "__main__":
    sys.exit(main())
