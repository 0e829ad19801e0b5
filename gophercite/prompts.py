"""The prompt of GopherCite (table 12): one place for training and inference.

A causal model reads these pages without knowing what is asked. A model that was trained with the
question at both ends (`Vocabulary.question_first`) does know.

Prompt and response are tokenised separately, so that a response's tokens don't depend on the
prompt: the prompt ends with `Answer:`, and the response begins with the space after it.
"""

from collections.abc import Sequence

from gophercite import evidence
from gophercite.documents import Document, Window
from gophercite.evidence import Evidence
from gophercite.vocabularies import Vocabulary

PAPERS_PROMPT_TOKENS = 4096 - 256  # section 2.7


def prompt(
    question: str, sources: Sequence[Window | Document], *, question_first: bool = False
) -> str:
    r"""Returns `Page: {title}\n{text}\n\n` for each source, then `Question: …\nAnswer:`.

    Args:
      question: its text.
      sources: what the prompt shows, in this order.
      question_first: whether the question also stands before the pages, as `Question: …\n\n`.
    """
    before, end = frame(question, sources, question_first=question_first)
    texts = (source.text for source in sources)
    return "".join(part for pair in zip(before, texts, strict=True) for part in pair) + end


def frame(
    question: str, sources: Sequence[Window | Document], *, question_first: bool = False
) -> tuple[list[str], str]:
    """Returns a prompt's text before each source's text, and its end; arguments as in `prompt`."""
    titles = [f"Page: {source.title}\n" for source in sources]
    before = [f"\n\n{title}" if place else title for place, title in enumerate(titles)]
    if before and question_first:
        before[0] = f"Question: {question}\n\n{before[0]}"
    asked = f"Question: {question}\nAnswer:"
    return before, f"\n\n{asked}" if sources else asked


def response(*triples: Evidence) -> str:
    """Returns the response that follows a prompt: a space and the evidence.

    Raises:
      ValueError: as `evidence.format` does.
    """
    return " " + evidence.format(*triples)


def encode_prompt(
    vocabulary: Vocabulary, question: str, sources: Sequence[Window | Document]
) -> list[int]:
    """Returns the ids of a prompt, including what the model expects at the start of a text.

    That is a beginning-of-sequence token if the vocabulary has one, and the space of a dummy prefix
    if the model was trained with it, so that the ids equal those of the model's own tokenizer.
    """
    text = prompt(question, sources, question_first=vocabulary.question_first)
    return encode_text(vocabulary, text)


def usual_max_tokens(trained_length: int | None, most: int, claims: int = 1) -> int:
    """Returns how long a model's answers may be if nobody says so.

    Now and then a sample goes on and on in a claim, and all others wait for it.

    Args:
      trained_length: as for `usual_prompt_tokens`.
      most: the limit for any model.
      claims: maximum number of claims, each with its quote.

    Returns:
      For each claim an eighth of the length in training, which is what the longest prompt leaves,
      and 128 tokens at least, enough for a long sentence; `most` in all, and where that length
      isn't known.
    """
    if trained_length is None:
        return most
    return min(most, claims * max(128, trained_length // 8))


def usual_prompt_tokens(
    trained_length: int | None, max_tokens: int, positions: int | None = None
) -> int:
    """Returns how long a model's prompts may be if nobody says so.

    Pages that are longer are cut to windows. Longer prompts than in training take longer, and what
    a model makes of them is hardly known.

    Args:
      trained_length: `Vocabulary.trained_length`; None if it isn't known, or if there are examples
        before the question, which training knew nothing of.
      max_tokens: maximum length of an answer.
      positions: number of learned positions; None for a model with other positions.

    Returns:
      What the answer leaves of the length in training. Answers are mostly shorter than they may be,
      so that is seven eighths of it at least; and never more than the paper's, or than the longest
      answer leaves of the learned positions.

    Raises:
      ValueError: it leaves none of them.
    """
    most = PAPERS_PROMPT_TOKENS
    if positions is not None:
        most = min(most, positions - max_tokens)
    if most < 1:
        raise ValueError(
            f"max_tokens = {max_tokens}: such an answer leaves no room for a prompt, because the "
            f"model has only {positions} learned positions"
        )
    if trained_length is None:
        return most
    return min(most, trained_length - min(max_tokens, trained_length // 8))


def encode_text(vocabulary: Vocabulary, text: str) -> list[int]:
    """Returns the ids of any text at the start of a model's input, as in `encode_prompt`."""
    prefix = " " if vocabulary.dummy_prefix else ""
    return beginning(vocabulary) + vocabulary.encode(prefix + text)


def beginning(vocabulary: Vocabulary) -> list[int]:
    """Returns the ids that every sequence begins with: one, or none."""
    return [] if vocabulary.bos_id is None else [vocabulary.bos_id]


def encode_response(vocabulary: Vocabulary, *triples: Evidence) -> list[int]:
    """Returns the ids of a response, including the end of sequence.

    Raises:
      ValueError: as `evidence.format` does.
    """
    return [*vocabulary.encode(response(*triples)), vocabulary.eos_id]


def encode_response_text(vocabulary: Vocabulary, text: str) -> list[int]:
    """Returns the ids of any response after one space, without an end of sequence."""
    return vocabulary.encode(f" {text.lstrip(' ')}")


def encode_judged(
    vocabulary: Vocabulary, question: str, answer: tuple[Evidence, ...] | str
) -> list[int]:
    """Returns the ids of a reward model's input: the question and a response, without documents.

    Args:
      vocabulary: the model's vocabulary.
      question: the question's text.
      answer: claims with their evidence, or the text of an answer in another form. Both are encoded
        like a response to a prompt, including the end of sequence.

    Raises:
      ValueError: as `evidence.format` does.
    """
    asked = encode_prompt(vocabulary, question, [])
    if isinstance(answer, str):
        return [*asked, *encode_response_text(vocabulary, answer), vocabulary.eos_id]
    return [*asked, *encode_response(vocabulary, *answer)]
