"""Reads, writes and converts WebGPT's released comparisons (its appendix K; MIT licence).

They come in two forms. As released, each line is a list of two records. Flattened, each line is one
object, with the fields of the first record in `…_0` and of the second in `…_1`. `quotes` is a list
of objects or an object of lists.
"""

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from data_pipelines.converters import gold
from data_pipelines.converters.gold import BadRecord, ConversionReport, text_field
from gophercite.records import Comparison

_FIELDS = ("quotes", "answer", "tokens", "score")


@dataclasses.dataclass(frozen=True)
class ReleasedAnswer:
    """One of two answers.

    Attributes:
      answer: its text, based on the quotes.
      quotes: title (with domain) and extract of each, in the order of their numbers.
      score: how strongly it is preferred, from -1 to 1; the two of a pair sum to zero.
      prefix: GPT-2 tokens of the model's input: question and quotes, truncated.
      completion: tokens of the answer.
    """

    answer: str
    quotes: tuple[tuple[str, str], ...]
    score: float
    prefix: tuple[int, ...] = ()
    completion: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class ReleasedComparison:
    """Two answers to a question.

    Attributes:
      question: its text.
      dataset: the data set that it comes from.
      id: its id there.
      answers: the two.
    """

    question: str
    dataset: str
    id: str
    answers: tuple[ReleasedAnswer, ReleasedAnswer]

    @property
    def preferred(self) -> float:
        """The probability that the second is better: a hard label by the sign, 0.5 for a tie."""
        first, second = self.answers
        return 0.5 if first.score == second.score else float(second.score > first.score)


def read_webgpt_comparisons(
    path: Path, report: ConversionReport
) -> Iterator[tuple[int, ReleasedComparison]]:
    """Yields the comparisons of a file in either form, each with its line number.

    Args:
      path: JSON lines.
      report: counts what was left out.
    """
    for number, value in gold.read_lines(path, report):
        with report.skipping(f"{path}:{number}"):
            yield number, _comparison(value)


def write_webgpt_comparisons(
    path: Path, comparisons: Iterable[ReleasedComparison], *, flat: bool = False
) -> int:
    """Writes comparisons as released, or flattened; returns their number."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for comparison in comparisons:
            question = {
                "dataset": comparison.dataset,
                "id": comparison.id,
                "full_text": comparison.question,
            }
            sides = [_side_to_json(answer, flat=flat) for answer in comparison.answers]
            value: object = [{"question": question, **side} for side in sides]
            if flat:
                value = {"question": question} | {
                    f"{name}_{number}": side[name]
                    for name in _FIELDS
                    for number, side in enumerate(sides)
                }
            file.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


def convert_webgpt_comparisons(path: Path, report: ConversionReport) -> Iterator[Comparison]:
    """Yields the comparisons: two answers with their numbered references, and which is better.

    A response is the answer, an empty line, and its references, each as `[1] title` with the
    extract on the next line. The answer with the higher score is preferred; equal scores are a tie.
    WebGPT's reward model also merges "much better" into "better" (its section 3.2).

    Args:
      path: JSON lines, in either form.
      report: counts what was left out.
    """
    for number, released in read_webgpt_comparisons(path, report):
        first, second = released.answers
        yield Comparison(
            id=f"{path.name.split('.')[0]}-{number}",
            question=released.question,
            source=f"webgpt_{released.dataset or 'comparisons'}",
            responses=(_response(first), _response(second)),
            preferred=released.preferred,
        )


def _comparison(value: Any) -> ReleasedComparison:
    if isinstance(value, list):
        if len(value) != 2 or not all(isinstance(side, dict) for side in value):
            raise BadRecord("expected a list of two objects")
        questions, sides = [side.get("question") for side in value], value
        if questions[0] != questions[1]:
            raise BadRecord("field 'question': the two records have different ones")
        question = questions[0]
    else:
        question = value.get("question") if isinstance(value, dict) else None
        sides = [
            {name: value.get(f"{name}_{number}") for name in _FIELDS}
            if isinstance(value, dict)
            else {}
            for number in (0, 1)
        ]
    text = text_field(question, "full_text")
    named = [question.get(name) for name in ("dataset", "id")]
    dataset, id = ("" if name is None else str(name) for name in named)
    first, second = (_side(side) for side in sides)
    return ReleasedComparison(text, dataset, id, (first, second))


def _side(side: dict[str, Any]) -> ReleasedAnswer:
    score = side.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise BadRecord(f"field 'score': expected a number, got {score!r:.40}")
    tokens = side.get("tokens")
    if tokens is not None and not isinstance(tokens, dict):
        raise BadRecord(f"field 'tokens': expected an object, got {tokens!r:.40}")
    prefix, completion = (_tokens(tokens or {}, name) for name in ("prefix", "completion"))
    answer = text_field(side, "answer")
    return ReleasedAnswer(answer, _quotes(side.get("quotes")), score, prefix, completion)


def _tokens(tokens: dict[str, Any], name: str) -> tuple[int, ...]:
    found = tokens.get(name, [])
    if not isinstance(found, list) or not all(type(token) is int for token in found):
        raise BadRecord(f"field 'tokens.{name}': expected a list of whole numbers")
    return tuple(found)


def _quotes(quotes: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(quotes, list):
        if not all(isinstance(quote, dict) for quote in quotes):
            raise BadRecord("field 'quotes': expected a list of objects")
        pairs = [(quote.get("title"), quote.get("extract")) for quote in quotes]
    else:
        names, extracts = (gold.list_field(quotes, name) for name in ("title", "extract"))
        if len(names) != len(extracts):
            raise BadRecord("field 'quotes': expected as many titles as extracts")
        pairs = list(zip(names, extracts, strict=True))
    if not all(isinstance(text, str) for pair in pairs for text in pair):
        raise BadRecord("field 'quotes': titles and extracts must be strings")
    return tuple((str(title), str(extract)) for title, extract in pairs)


def _side_to_json(answer: ReleasedAnswer, *, flat: bool) -> dict[str, Any]:
    quotes: object = [{"title": title, "extract": extract} for title, extract in answer.quotes]
    if flat:
        quotes = {
            "title": [title for title, _ in answer.quotes],
            "extract": [extract for _, extract in answer.quotes],
        }
    tokens = {"prefix": list(answer.prefix), "completion": list(answer.completion)}
    return {"quotes": quotes, "answer": answer.answer, "tokens": tokens, "score": answer.score}


def _response(answer: ReleasedAnswer) -> str:
    references = [
        f"[{number}] {title}\n{extract}" for number, (title, extract) in enumerate(answer.quotes, 1)
    ]
    return "\n\n".join([answer.answer, *references])
