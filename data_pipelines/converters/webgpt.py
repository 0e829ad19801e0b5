"""WebGPT's released comparisons (its appendix K; MIT licence) as comparisons of the schema."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_pipelines.converters import gold
from data_pipelines.converters.gold import BadRecord, ConversionReport, text_field
from gophercite.records import Comparison


def convert_webgpt_comparisons(path: Path, report: ConversionReport) -> Iterator[Comparison]:
    """Yields the comparisons: two answers with their numbered references, and which is better.

    A response is the answer, an empty line, and its references as `[1] title` with the extract on
    the next line. The preference is the sign of the scores, a tie where they are equal: WebGPT's
    reward model, too, merges "much better" into "better" (its section 3.2).

    Args:
      path: JSON lines with `question`, `quotes_0`, `answer_0`, `score_0` and the same of `_1`.
      report: is told what was left out.
    """
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            responses = (_response(value, 0), _response(value, 1))
            scores = [_score(value, f"score_{side}") for side in (0, 1)]
            question = value.get("question")
            yield Comparison(
                id=f"{path.name.split('.')[0]}-{number}",
                question=text_field(question, "full_text"),
                source=f"webgpt_{question.get('dataset') or 'comparisons'}",
                responses=responses,
                preferred=0.5 if scores[0] == scores[1] else float(scores[1] > scores[0]),
            )


def _score(value: dict[str, Any], name: str) -> float:
    score = value.get(name)
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise BadRecord(f"field {name!r}: expected a number, got {score!r:.40}")
    return score


def _response(value: dict[str, Any], side: int) -> str:
    answer = text_field(value, f"answer_{side}")
    quotes = value.get(f"quotes_{side}")
    names, extracts = (gold.list_field(quotes, name) for name in ("title", "extract"))
    if len(names) != len(extracts) or not all(isinstance(t, str) for t in (*names, *extracts)):
        raise BadRecord(f"field 'quotes_{side}': expected as many titles as extracts, all strings")
    references = [
        f"[{number}] {name}\n{extract}"
        for number, (name, extract) in enumerate(zip(names, extracts, strict=True), 1)
    ]
    return "\n\n".join([answer, *references])
