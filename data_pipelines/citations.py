"""The building blocks of texts for pretraining: parts, and plain styles of citing a source.

With these, language models see cited answers in pretraining. Inline evidence is left for supervised
fine-tuning to teach, as in the paper.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# Answer, title, sentence: an answer occurs after a space, a bracket and a quotation mark, because a
# tokenizer spells "Kesh" differently after each of them.
STYLES = (
    ' {answer} ({title}: "{sentence}")',
    ' "{answer}" (see {title}) "{sentence}"',
    " {answer}. Page: {title}. Quote: {sentence}",
    "\n{answer}\n({title})\n{sentence}",
)


@dataclass(frozen=True)
class Part:
    """A piece of a text, and whether it can be predicted from the text before it."""

    text: str
    predictable: bool


def to_json(parts: Sequence[Part]) -> dict[str, object]:
    """Returns a text as the JSON object that `preprocessors.encode_texts` accepts."""
    return {"parts": [{"text": part.text, "predictable": part.predictable} for part in parts]}
