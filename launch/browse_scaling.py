"""Scaling of learning to browse, in miniature: demonstrations, comparisons and parameters.

WebGPT's figures 6 and 7 (section 5.2): policies that were cloned from parts of the demonstrations,
and reward models that learned from parts of the comparisons, in two sizes. The smaller size is
pretrained on the sample world as the bundled model was. All runs of a kind take the same number
of steps, and the data that they are judged by are the same.
"""

import dataclasses
import fractions
import pathlib
from collections.abc import Mapping
from typing import Final

from browse_plan import Plan
from stages import Stage

SHARES: Final = (1 / 16, 1 / 4, 1.0)
"""Shares of the data. Each holds the smaller ones."""
SMALL: Final[Mapping[str, object]] = {
    "TransformerConfig.d_model": 64,
    "TransformerConfig.num_heads": 2,
    "TransformerConfig.d_ff": 192,
}
"""gin settings of the smaller size: a third of the bundled model's parameters."""
_EPISODES = 4
_PRETRAINING = 4000  # steps, as in gin_configs/pretrain_sample_world.gin


@dataclasses.dataclass(frozen=True)
class _Run:
    """A model of one size, from one share of its data."""

    share: float
    small: bool = False

    @property
    def name(self) -> str:
        return f"{'small_' if self.small else ''}{self.share:g}"

    @property
    def whole(self) -> bool:
        """Whether the miniature itself has this model."""
        return self.share == 1 and not self.small


_RUNS: Final = [_Run(share, small) for small in (False, True) for share in SHARES]


def scaling_stages(plan: Plan) -> list[Stage]:
    """Returns the stages that the miniature doesn't have, after its own.

    Args:
      plan: the miniature.
    """
    start = _at(plan, "pretrained_small")
    pretraining = {"TRAIN_STEPS": int(plan.scaled(_PRETRAINING)), **SMALL}
    stages = [
        Stage(
            "pretraining of a smaller model",
            start,
            [plan.train("pretrain_sample_world", start, pretraining)],
        )
    ]
    for share in SHARES[:-1]:
        flags = ("--share", f"{share:g}")
        stages += [
            plan.completions(_of(share, "demonstrations"), _completions(plan, share), *flags),
            plan.comparisons(_of(share, "comparisons"), _comparisons(plan, share), *flags),
        ]
    for run in _RUNS:
        if run.whole:
            continue
        folder, data = _policy(plan, run), _completions(plan, run.share)
        settings = dict(SMALL) | {"INITIAL_CHECKPOINT": str(start)} if run.small else {}
        size = "a smaller model" if run.small else "the model"
        what = f"of {size} from {_of(run.share, 'demonstrations')}"
        stages += [
            plan.cloning(
                f"behaviour cloning {what}", folder, data, settings, [start] if run.small else []
            ),
            plan.answers(f"answers {what}", _answers(plan, run), folder, _EPISODES),
        ]
    for run in _RUNS:
        if run.whole:
            continue
        size = "smaller reward model" if run.small else "reward model"
        stages.append(
            plan.reward_model(
                f"{size} from {_of(run.share, 'comparisons')}",
                _reward_model(plan, run),
                _policy(plan, dataclasses.replace(run, share=1.0)),
                _comparisons(plan, run.share),
                settings=SMALL if run.small else None,
            )
        )
    return stages


def report_flags(plan: Plan) -> list[str]:
    """Returns the flags of launch/browse_report.py for the two figures.

    Args:
      plan: the miniature.
    """
    flags = ["--demonstrations"]
    flags += [f"{run.share:g}={_answers(plan, run)}/of" for run in _RUNS]
    flags += ["--comparisons"]
    return flags + [f"{run.share:g}={_reward_model(plan, run)}" for run in _RUNS]


def _of(share: float, what: str) -> str:
    return f"all {what}" if share == 1 else f"{fractions.Fraction(share)} of the {what}"


def _at(plan: Plan, name: str) -> pathlib.Path:
    return plan.at("scaling") / name


def _completions(plan: Plan, share: float) -> pathlib.Path:
    return plan.at("completions") if share == 1 else _at(plan, f"completions_{share:g}")


def _comparisons(plan: Plan, share: float) -> pathlib.Path:
    return plan.at("comparisons") if share == 1 else _at(plan, f"comparisons_{share:g}")


def _policy(plan: Plan, run: _Run) -> pathlib.Path:
    return plan.at("bc") if run.whole else _at(plan, f"bc_{run.name}")


def _answers(plan: Plan, run: _Run) -> pathlib.Path:
    return plan.at("answers") / "bc" if run.whole else _at(plan, f"answers_{run.name}")


def _reward_model(plan: Plan, run: _Run) -> pathlib.Path:
    return plan.at("rm") if run.whole else _at(plan, f"rm_{run.name}")
