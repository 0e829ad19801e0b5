"""The prompt of GopherCite (table 12): one place for training and inference.

Prompt and response are tokenised apart, so that a response has the same tokens whatever stands
before it: the prompt up to and including `Answer:`, the response from the space after it on.
"""

from collections.abc import Sequence

from gophercite import evidence
from gophercite.documents import Document, Window
from gophercite.evidence import Evidence
from gophercite.vocabularies import Vocabulary


def prompt(question: str, sources: Sequence[Window | Document]) -> str:
    r"""Returns `Page: {title}\n{text}\n\n` for each source, then `Question: …\nAnswer:`."""
    before, end = frame(question, sources)
    texts = (source.text for source in sources)
    return "".join(part for pair in zip(before, texts, strict=True) for part in pair) + end


def frame(question: str, sources: Sequence[Window | Document]) -> tuple[list[str], str]:
    """Returns what a prompt has before the text of each source, and what it ends with."""
    titles = [f"Page: {source.title}\n" for source in sources]
    before = [f"\n\n{title}" if place else title for place, title in enumerate(titles)]
    asked = f"Question: {question}\nAnswer:"
    return before, f"\n\n{asked}" if sources else asked


def response(*triples: Evidence) -> str:
    """Returns what follows a prompt: a space and the evidence.

    Raises:
      ValueError: as `evidence.format` does.
    """
    return " " + evidence.format(*triples)


def encode_prompt(
    vocabulary: Vocabulary, question: str, sources: Sequence[Window | Document]
) -> list[int]:
    """Returns the ids of a prompt, with what the model expects at the start of a text.

    That is a beginning of sequence where the vocabulary has one, and the space of a dummy prefix
    where the model was trained with it: the ids are then the model's own tokenizer's.
    """
    return encode_text(vocabulary, prompt(question, sources))


def encode_text(vocabulary: Vocabulary, text: str) -> list[int]:
    """Returns the ids of any text that a model reads from its start, as `encode_prompt` does."""
    prefix = " " if vocabulary.dummy_prefix else ""
    return beginning(vocabulary) + vocabulary.encode(prefix + text)


def beginning(vocabulary: Vocabulary) -> list[int]:
    """Returns what every sequence of tokens begins with: one id, or none."""
    return [] if vocabulary.bos_id is None else [vocabulary.bos_id]


def encode_response(vocabulary: Vocabulary, *triples: Evidence) -> list[int]:
    """Returns the ids of a response, end of sequence included.

    Raises:
      ValueError: as `evidence.format` does.
    """
    return [*vocabulary.encode(response(*triples)), vocabulary.eos_id]


def encode_response_text(vocabulary: Vocabulary, text: str) -> list[int]:
    """Returns the ids of a response of any form, after one space, without an end of sequence."""
    return vocabulary.encode(f" {text.lstrip(' ')}")


def encode_judged(
    vocabulary: Vocabulary, question: str, answer: tuple[Evidence, ...] | str
) -> list[int]:
    """Returns the ids of what a reward model reads: the question and a response, no documents.

    Args:
      vocabulary: the model's.
      question: its text.
      answer: claims with their evidence, or the text of an answer that has another form. Both give
        the tokens of a response to a prompt, end of sequence included.

    Raises:
      ValueError: as `evidence.format` does.
    """
    asked = encode_prompt(vocabulary, question, [])
    if isinstance(answer, str):
        return [*asked, *encode_response_text(vocabulary, answer), vocabulary.eos_id]
    return [*asked, *encode_response(vocabulary, *answer)]
