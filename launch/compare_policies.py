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
import json
import sys
from collections.abc import Sequence
from typing import Any

from etils import epath
from named_paths import named_path

from gophercite.evaluation.policies import Chain, Policy, PolicyStudy
from gophercite.model_folders.checkpoint_files import best_step
from gophercite.monitoring.metrics import read_metrics
from gophercite.reports.policy_report import quality_table, sections, summary
from gophercite.reports.report_files import Section, write_files, write_report
from gophercite.reports.saved_results import SavedResultsError, read_system
from gophercite.reports.tables import Table
from gophercite.storage.json_fields import in_one_line

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
        policies = [_policy(name, prefix) for name, prefix in flags.policy]
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
    print(f"{quality_table(study).markdown()}\nWritten: {', '.join(files)}")
    return 0


def _policy(name: str, prefix: str) -> Policy:
    """Reads one policy's samples, and how far it has moved according to its run.

    Raises:
      SavedResultsError: a file is missing or does not come from an evaluation.
    """
    samples = read_system(name, prefix).samples
    free = f"{prefix}_free"
    has_free = epath.Path(f"{free}.jsonl").exists()
    return Policy(name, samples, read_system(name, free).samples if has_free else (), _kl(prefix))


def _kl(prefix: str) -> float | None:
    """The divergence at the checkpoint that answered; None if no metrics record it."""
    path = epath.Path(f"{prefix}.json")
    try:
        run = json.loads(path.read_text())["run"]
        folder, step = run["model"], run["provenance"].get("step")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise SavedResultsError(
            f"{path}: is not the summary of an evaluation; launch/eval.py --output writes one"
        ) from None
    value = _evaluated(folder, step).get(f"{_SET}kl")
    return None if value is None else float(value)


def _evaluated(folder: str, step: int | None) -> dict[str, Any]:
    """A run's validation metrics at a step; empty if there are none."""
    lines = (line for line in read_metrics(folder) if line["step"] == step)
    return next((line for line in lines if line["split"] == "validation"), {})


def _trainings(runs: Sequence[tuple[str, str]]) -> Section:
    """The checkpoints that training runs have chosen, and their validation metrics."""
    rows = []
    for name, folder in runs:
        step = best_step(folder)
        found = _evaluated(folder, step)
        said = [
            f"{words} {found[_SET + metric]:.4g}"
            for metric, words in _SHOWN.items()
            if found.get(_SET + metric) is not None
        ]
        explained = _explained(folder)
        if explained is not None:
            said.append(
                f"the critic explains {100 * explained:.0f} % of the rewards' variance in the last "
                "third of the steps"
            )
        rows.append([name, "–" if step is None else str(step), ", ".join(said) or "–"])
    return Section("Trainings", tables=[Table(["training", "best step", "on validation"], rows)])


def _explained(folder: str) -> float | None:
    """The share of the rewards' variance that a run's critic explains, averaged over the logged
    steps of the run's last third; None for a run without a critic."""
    lines = [line for line in read_metrics(folder) if line.get(_EXPLAINED) is not None]
    last = max((line["step"] for line in lines), default=0)
    found = [float(line[_EXPLAINED]) for line in lines if 3 * line["step"] > 2 * last]
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
    return flags


if __name__ == "__main__":
    sys.exit(main())
