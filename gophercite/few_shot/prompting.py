"""Few-shot prompts, and the answer within a base model's continuation (appendix H)."""

import contextlib
import dataclasses
import enum
import random
import re
from collections.abc import Sequence

from gophercite import evidence, prompts
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.few_shot.examples import (
    CITED_PREAMBLE,
    LONG,
    LONG_PREAMBLE,
    SHORT,
    SHORT_PREAMBLE,
    Example,
)
from gophercite.few_shot.plain_citations import as_citation
from gophercite.few_shot.splices import restore
from gophercite.retrieval.contexts import (
    Context,
    ContextError,
    ContextSettings,
    Reason,
    SearchResult,
)
from gophercite.retrieval.contexts import joint_context as plain_context
from gophercite.text.sentences import sentence_spans
from gophercite.vocabularies import Vocabulary

# A base model goes on with an example of its own; anything from there on is not the answer.
_NEXT_EXAMPLE = re.compile(r"\n\s*(?:Page|Question|Answer):")


class Style(enum.Enum):
    """The form of the examples' answers.

    SHORT: inline evidence, as for Natural Questions (table 14). LONG: claims, as for ELI5 (table
    15), for which `evidence_search` finds the evidence. CITED: the SHORT examples with their
    sources in plain words, which `plain_citations` reads; for models that are too small to learn a
    syntax from examples.
    """

    SHORT = "short"
    LONG = "long"
    CITED = "cited"


@dataclasses.dataclass(frozen=True)
class FewShotSettings:
    """How a prompt is built.

    Attributes:
      style: style of the examples.
      examples: number of examples drawn from the five; table 14 shows three, table 15 four. With 0,
        the prompt is the question's alone.
    """

    style: Style = Style.SHORT
    examples: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.examples <= len(_EXAMPLES[self.style]):
            most = len(_EXAMPLES[self.style])
            raise ValueError(f"examples is {self.examples}; it must be from 0 to {most}")


def _cited(example: Example) -> Example:
    """The example with its source in plain words: the full sentences that its quote is from."""
    (triple,) = evidence.parse(example.answer)
    start, end = restore(triple.quote, example.text) or (0, 0)
    spans = [span for span in sentence_spans(example.text) if span[0] < end and start < span[1]]
    sentences = example.text[spans[0][0] : spans[-1][1]]
    answer = as_citation(Evidence(triple.claim, triple.title, sentences))
    return dataclasses.replace(example, answer=answer)


_CITED = tuple(map(_cited, SHORT))
_EXAMPLES = {Style.SHORT: SHORT, Style.LONG: LONG, Style.CITED: _CITED}
_PREAMBLES = {
    Style.SHORT: SHORT_PREAMBLE,
    Style.LONG: LONG_PREAMBLE,
    Style.CITED: CITED_PREAMBLE,
}


def preamble(settings: FewShotSettings, draw: random.Random) -> str:
    """Returns the instruction and some examples in random order, each in the form of a prompt.

    Args:
      settings: which examples, and how many.
      draw: random numbers for this prompt.
    """
    if not settings.examples:
        return ""
    chosen = draw.sample(_EXAMPLES[settings.style], settings.examples)
    return "".join([f"{_PREAMBLES[settings.style]}\n\n", *map(_written, chosen)])


def few_shot_context(
    question: str,
    results: Sequence[SearchResult],
    prompt_tokens: int,
    vocabulary: Vocabulary,
    settings: FewShotSettings,
    draw: random.Random,
    contexts: ContextSettings | None = None,
) -> Context:
    """Returns the few-shot prompt, with search results cut to the room that the examples leave.

    Args:
      question: the question to answer.
      results: what the prompt shows, in rank order, with equal shares.
      prompt_tokens: maximum number of tokens in the prompt, including the examples.
      vocabulary: the model's.
      settings: which examples.
      draw: random numbers for this prompt.
      contexts: how pages are cut; the paper's by default.

    Raises:
      ContextError: when no result can be shown, or the examples leave no room.
    """
    before = preamble(settings, draw)
    left = prompt_tokens - len(prompts.encode_text(vocabulary, before))
    while left > 0:
        shown = plain_context(question, results, left, vocabulary, contexts)
        text = before + prompts.prompt(question, shown.windows)
        tokens = prompts.encode_text(vocabulary, text)
        excess = len(tokens) - prompt_tokens
        if excess <= 0:
            return dataclasses.replace(shown, tokens=tuple(tokens))
        left = min(left, len(shown.tokens)) - excess  # tokens at the seam
    raise ContextError(Reason.NO_ROOM, f"the examples fill a prompt of {prompt_tokens} tokens")


def first_answer(continuation: str) -> str:
    """Returns what a base model wrote up to the beginning of another example.

    Text that is evidence from its first to its last character is one answer, even if a line of a
    claim begins like another example: under the quote constraint nothing else can be written.
    """
    with contextlib.suppress(evidence.SyntaxFault):
        evidence.parse(continuation)
        if continuation.rstrip().endswith(evidence.END_MARK):
            return continuation.strip()
    following = _NEXT_EXAMPLE.search(continuation)
    return (continuation[: following.start()] if following else continuation).strip()


def _written(example: Example) -> str:
    page = Document("", example.title, example.text)
    return f"{prompts.prompt(example.question, [page])} {example.answer}\n\n"
