"""What texts for pretraining are made of: parts, and plain styles of citing a source.

Language models meet answers with citations here before they see inline evidence, which is left for
supervised fine-tuning to teach, as in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# Answer, title, sentence: an answer occurs after a space, a bracket and a quotation mark, since a
# tokenizer spells "Kesh" after each of them differently.
STYLES = (
    ' {answer} ({title}: "{sentence}")',
    ' "{answer}" (see {title}) "{sentence}"',
    " {answer}. Page: {title}. Quote: {sentence}",
    "\n{answer}\n({title})\n{sentence}",
)


@dataclass(frozen=True)
class Part:
    """A piece of a text, and whether it can be known from what stands before it."""

    text: str
    predictable: bool


def to_json(parts: Sequence[Part]) -> dict[str, object]:
    """Returns a text as the JSON object that `preprocessors.encode_texts` takes."""
    return {"parts": [{"text": part.text, "predictable": part.predictable} for part in parts]}
