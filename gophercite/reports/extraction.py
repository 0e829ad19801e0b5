"""Short answers extracted from browsed ones, scored by exact match (WebGPT, appendix G).

Scores are SQuAD's: both sides are normalised, and any accepted answer counts. They are split by
what part of a question was in the training data (table 9).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gophercite.evaluation.intervals import estimate
from gophercite.records import Question
from gophercite.reports import overlap
from gophercite.reports.report_files import Section
from gophercite.reports.tables import Table
from gophercite.text.answer_matching import exact_match, f1

Line = Mapping[str, Any]

SPLITS = (
    overlap.TOTAL,
    overlap.QUESTION,
    overlap.NO_QUESTION,
    overlap.ANSWER,
    overlap.ANSWER_ONLY,
    overlap.NONE,
)


def extraction_lines(
    questions: Sequence[Question],
    predictions: Mapping[str, str],
    train: Iterable[Question] | None = None,
) -> list[dict[str, Any]]:
    """Returns a line for each question with accepted answers: the prediction and its scores.

    Args:
      questions: with `answers`, including aliases.
      predictions: short answers by question id; a missing one counts as wrong.
      train: the training data's questions, which decide the splits that a question is in; without
        them there is only `overlap.TOTAL`.
    """
    known = [each for each in questions if each.answers]
    splits = {overlap.TOTAL: frozenset(each.id for each in known)}
    if train is not None:
        splits = overlap.overlap_splits(known, train)
    return [
        {
            "question_id": each.id,
            "question": each.question,
            "prediction": (said := predictions.get(each.id, "")),
            "exact_match": exact_match(said, each.answers),
            "f1": f1(said, each.answers),
            "splits": [name for name, ids in splits.items() if each.id in ids],
        }
        for each in known
    ]


def extraction_section(systems: Mapping[str, Sequence[Line]]) -> Section:
    """Returns exact match by system and split, in percent with 90 % intervals (table 9).

    Args:
      systems: `extraction_lines` of each system.
    """
    if not systems:
        return Section()
    there = [
        split
        for split in SPLITS
        if any(split in line["splits"] for lines in systems.values() for line in lines)
    ]
    rows = []
    for name, lines in systems.items():
        cells = [_share(lines, split) for split in there]
        f1s = [float(line["f1"]) for line in lines]
        rows.append([name, str(len(lines)), *cells, str(estimate(f1s)) if f1s else "–"])
    table = Table(["system", "questions", *(f"{split} %" for split in there), "F1 %"], rows)
    text = [
        "Exact match with any accepted answer after SQuAD's normalisation, by the overlap of "
        "questions and answers with the training data. 90 % intervals (Wilson's)."
    ]
    return Section("Short answers (table 9)", text, [table])


def _share(lines: Sequence[Line], split: str) -> str:
    inside = [float(line["exact_match"]) for line in lines if split in line["splits"]]
    return str(estimate(inside)) if inside else "–"
