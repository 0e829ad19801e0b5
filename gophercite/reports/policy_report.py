"""The report on a `PolicyStudy`: table 1, figures 4 and 5, diversity and faults."""

import dataclasses
import importlib.util
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gophercite.evaluation.differences import Difference
from gophercite.evaluation.intervals import Estimate
from gophercite.evaluation.policies import Policy, PolicyStudy, fault_shares, faulty
from gophercite.reports.human import both_intervals
from gophercite.reports.report_files import Image, Section
from gophercite.reports.tables import Table
from gophercite.text.counting import counted

_BEFORE, _AFTER = "SFT", "RL"  # names of several models together, before and after


def sections(study: PolicyStudy) -> list[Section]:
    """Returns the report's sections.

    Args:
      study: the models to report on.
    """
    return [
        Section("Answers (table 1)", [_said(study)], [quality_table(study)]),
        Section("What reinforcement learning gained", _gained(study), [gains_table(study)]),
        *_each_chain(study),
        _figures(study),
        Section("Diversity and faults", _about_faults(study), [variety_table(study)]),
    ]


def scored_questions(study: PolicyStudy) -> str:
    """Says how many questions are scored, and how many are left out of what."""
    said = [
        f"{counted(len(study.questions), 'question')}, {counted(study.samples, 'sample')} each."
    ]
    fewer, unshared = len(study.questions) - len(study.complete), study.unshared
    if fewer:
        said.append(f"Only in first answers, with fewer samples: {counted(fewer, 'question')}.")
    if unshared:
        said.append(f"Left out, without samples of some model: {counted(unshared, 'question')}.")
    return " ".join(said)


def quality_table(study: PolicyStudy) -> Table:
    """Returns table 1: first answers and the best of all samples, before and after.

    It also has the sample that the policy's own likelihood chooses.
    """
    rows = []
    for name, policies in _groups(study).items():
        shares = study.quality(policies)
        for answer, share in (
            ("first answer", shares[1]),
            (f"top@{study.samples}", shares[study.samples]),
            (f"likeliest of {study.samples}", study.likeliest(policies)),
        ):
            rows.append([f"{name}, {answer}", both_intervals(share), _kl(policies)])
    return Table(["answer", "supported and plausible %", "KL, nats per answer"], rows)


def gains_table(study: PolicyStudy) -> Table:
    """Returns by how many percentage points answers improved."""
    chains = len(study.chains)
    headings = ["best of", "over questions"] + [f"over {chains} chains"] * (chains > 1)
    rows = []
    for size in study.sizes:
        gains = [study.gain(size)] + [study.gain_over_chains(size)] * (chains > 1)
        rows.append([str(size), *map(str, gains)])
    return Table(headings, rows)


def chains_table(study: PolicyStudy) -> Table:
    """Returns a row for each policy, chain by chain."""
    rows = []
    for policy in (policy for chain in study.chains for policy in chain):
        shares = study.quality([policy])
        rows.append(
            [
                policy.name,
                str(shares[1]),
                str(shares[study.samples]),
                str(study.likeliest([policy])),
                f"{study.distinct([policy]):.2f}",
                _kl([policy]),
            ]
        )
    chosen = [f"top@{study.samples} %", f"likeliest of {study.samples} %"]
    headings = ["policy", "first answer %", *chosen, "distinct answers", "KL, nats per answer"]
    return Table(headings, rows)


def variety_table(study: PolicyStudy) -> Table:
    """Returns how diverse a question's samples are, and how many have faults."""
    rows = []
    for name, policies in _groups(study).items():
        constrained = [line for policy in policies for line in policy.samples]
        free = [line for policy in policies for line in policy.free]
        kinds = ", ".join(f"{fault} {100 * share:.1f}" for fault, share in _kinds(free).items())
        rows.append(
            [
                name,
                f"{study.distinct(policies):.2f}",
                str(faulty(constrained)),
                str(faulty(free)) if free else "–",
                kinds or "–",
            ]
        )
    return Table(
        [
            "model",
            f"distinct answers of {study.samples}",
            "faulty %, constrained",
            "faulty %, free",
            "each fault %",
        ],
        rows,
    )


def summary(study: PolicyStudy) -> dict[str, Any]:
    """Returns all numbers as JSON: shares in [0, 1], divergences in nats."""
    return {
        "questions": len(study.questions),
        "complete_questions": len(study.complete),
        "unshared_questions": study.unshared,
        "samples": study.samples,
        "policies": {
            policy.name: {
                "quality": {size: _plain(e) for size, e in study.quality([policy]).items()},
                "likeliest": _plain(study.likeliest([policy])),
                "coverage_area": study.coverage(policy).area,
                "distinct": study.distinct([policy]),
                "faulty": _plain(faulty(policy.samples)),
                "faulty_free": _plain(faulty(policy.free)) if policy.free else None,
                "faults_free": dict(_kinds(policy.free)),
                "kl": policy.kl,
            }
            for policy in study.policies
        },
        "gain": {
            size: {
                "over_questions": _plain(study.gain(size)),
                "over_chains": _plain(study.gain_over_chains(size)),
            }
            for size in study.sizes
        },
    }


def _groups(study: PolicyStudy) -> dict[str, Sequence[Policy]]:
    """The policies of each row or line: one, or with several chains the mean before and after."""
    if len(study.chains) > 1:
        return {_BEFORE: study.before, _AFTER: study.after}
    return {policy.name: [policy] for policy in study.policies}


def _said(study: PolicyStudy) -> str:
    chains = len(study.chains)
    means = f" {_BEFORE} and {_AFTER} are means of {chains} chains." if chains > 1 else ""
    return (
        f"{scored_questions(study)} A first answer is any one sample; top@{study.samples} is the "
        "sample with the highest reward; the likeliest is the one to which the model gives the "
        "highest probability. ± as in the paper, z √(p(1 − p)/n), and in brackets Wilson's "
        f"interval; both are 90 % intervals over questions.{means}"
    )


def _gained(study: PolicyStudy) -> list[str]:
    said = [
        "How many percentage points more often the best of N is supported and plausible after "
        "reinforcement learning than before, with 90 % intervals (Student's t) of the "
        "differences per question."
    ]
    if len(study.chains) > 1:
        said.append(
            "The interval over chains shows what other seeds might give on these questions. "
            "Where each chain has trained its own supervised model, reward model and policy, it "
            "covers the variation of all three."
        )
    return said


def _each_chain(study: PolicyStudy) -> list[Section]:
    if len(study.chains) == 1:
        return []
    return [Section("Each chain", tables=[chains_table(study)])]


def _figures(study: PolicyStudy) -> Section:
    if importlib.util.find_spec("matplotlib") is None:
        return Section("Figures", ["Figures need matplotlib: pip install gophercite[report]"])
    from gophercite.reports import figures  # here: without matplotlib reports have no figures

    groups = _groups(study)
    best_of = figures.best_of_figure({n: study.quality(each) for n, each in groups.items()})
    # Several chains' answers to a question are not independent: their band would be too narrow.
    shown = study.chains[0]
    curves = {f"{p.name}, top@{study.samples} by reward": study.coverage(p) for p in shown}
    quality = "supported and plausible, of those given"
    return Section(
        "Figures",
        images={
            "best_of": Image(
                figures.png(best_of),
                "The sample with the highest reward of N: share supported and plausible, by N "
                "(figure 5)",
            ),
            "coverage": Image(
                figures.png(figures.coverage_figure(curves, quality)),
                "Declining to answer below a reward: share supported and plausible of the answers "
                f"given, by coverage (figure 4); {shown.after.name}, with exact 90 % bands",
            ),
        },
    )


def _about_faults(study: PolicyStudy) -> list[str]:
    said = [
        "Distinct answers are a question's samples with different texts. The constraint rules "
        "out most faults; free samples show which ones the model makes by itself."
    ]
    if not any(policy.free for policy in study.before):
        said.append("No free samples were drawn.")
    return said


def _kl(policies: Sequence[Policy]) -> str:
    known = [policy.kl for policy in policies if policy.kl is not None]
    return f"{np.mean(known):.3g}" if len(known) == len(policies) else "–"


def _kinds(lines: Sequence[Any]) -> dict[str, float]:
    return dict(fault_shares(lines)) if lines else {}


def _plain(value: Estimate | Difference) -> dict[str, Any]:
    """As JSON, which has no infinity."""
    fields = dataclasses.asdict(value)
    return {name: each if math.isfinite(each) else None for name, each in fields.items()}
