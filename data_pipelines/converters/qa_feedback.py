"""QA-Feedback's preferences (Wu et al. 2023, Apache-2.0) as comparisons: answers without quotes."""

import itertools
from collections.abc import Iterator
from pathlib import Path

from data_pipelines.converters import gold
from data_pipelines.converters.gold import BadRecord, ConversionReport, list_field, text_field
from gophercite.records import Comparison

_ANSWERS = 4
_PAIRS = tuple(itertools.combinations(range(_ANSWERS), 2))  # in the file's order
_PREFERRED = {0: 0.5, 1: 0.0, 2: 1.0}


def convert_qa_feedback(path: Path, report: ConversionReport) -> Iterator[Comparison]:
    """Yields the six comparisons of each question's four answers.

    Pairs of identical texts teach nothing; they are counted and left out.

    Args:
      path: JSON lines with `question`, `prediction 1` to `prediction 4`, and `preference`, a list
        for the pairs 1-2, 1-3, 1-4, 2-3, 2-4, 3-4: 1 if the first is better, 2 if the second is, 0
        if neither is.
      report: counts what was left out.
    """
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            question = text_field(value, "question")
            answers = [text_field(value, f"prediction {n + 1}") for n in range(_ANSWERS)]
            choices = list_field(value, "preference")
            known = [type(choice) is int and choice in _PREFERRED for choice in choices]
            if len(known) != len(_PAIRS) or not all(known):
                raise BadRecord(
                    f"field 'preference': expected {len(_PAIRS)} numbers 0, 1 or 2, got {choices}"
                )
            for (first, second), choice in zip(_PAIRS, choices, strict=True):
                if answers[first].split() == answers[second].split():
                    report.counts["pairs of identical answers"] += 1
                    continue
                yield Comparison(
                    id=f"qa_feedback-{number}-{first + 1}-{second + 1}",
                    question=question,
                    source="qa_feedback",
                    responses=(answers[first], answers[second]),
                    preferred=_PREFERRED[choice],
                )
