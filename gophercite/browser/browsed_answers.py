"""The answer of an episode as `gophercite verify` takes it: what is claimed, and its references."""

import re

from gophercite.browser.state import Reference, State
from gophercite.records.answers import Answer, Citation
from gophercite.text.sentences import sentence_spans
from gophercite.vocabularies import Vocabulary

NUMBERS = re.compile(r"\[(\d{1,4}(?:\s*,\s*\d{1,4})*)\]")

_CITED = re.compile(rf"[ \t]*{NUMBERS.pattern}")
_CITED_FIRST = re.compile(rf"^{NUMBERS.pattern}[ \t]*", re.MULTILINE)


def cited(answer: str) -> tuple[int, ...]:
    """Returns the numbers that an answer cites, `[1]` or `[1, 3]`, in the order of their first."""
    found = (number for match in NUMBERS.finditer(answer) for number in match[1].split(","))
    # `int` refuses some of the white space that the pattern and `strip` know.
    return tuple(dict.fromkeys(int(number.strip()) for number in found))


def without_citations(answer: str) -> str:
    """Returns an answer without the numbers that it cites, and the blanks before them.

    So WebGPT's answers were compared with answers of Reddit, which have none (its section 4.1).
    """
    while True:
        stripped = _CITED.sub("", _CITED_FIRST.sub("", answer))
        if stripped == answer:
            return answer.strip()
        answer = stripped  # what is left may have come together: `[[1]2]`


def shortened(text: str, vocabulary: Vocabulary, longest: int) -> str:
    """Returns a text cut to a number of tokens; a partial last sentence is removed.

    As WebGPT's answers were for TruthfulQA (its section 4.2). What fits whole stays as it is. Where
    even the first sentence is too long nothing is left.

    Args:
      text: to be cut.
      vocabulary: whose tokens are counted.
      longest: how many.
    """
    tokens = vocabulary.encode(text)
    if len(tokens) <= longest:
        return text
    cut = vocabulary.decode(tokens[:longest]).rstrip("\ufffd")  # half a character
    ends = [end for _, end in sentence_spans(text) if end <= len(cut)]
    return text[: max(ends, default=0)]


def answer_of(state: State, by: str) -> Answer:
    """Returns the answer with a citation for each reference that it cites.

    The claim of a reference is the sentences that cite it. Where none cites any, the whole answer
    is the claim of all references.

    Args:
      state: of an episode that is over.
      by: who browsed.

    Raises:
      ValueError: when the episode is not over.
    """
    if not state.done:
        raise ValueError("the episode is not over: there is no answer yet")
    answer = (state.answer or "").strip()
    if not answer:
        return Answer(state.question or "(none)", by, reason=_reason(state))
    claims = _claims(answer)
    citations = tuple(
        _citation(claims[number], reference)
        for number, reference in enumerate(state.references, 1)
        if number in claims
    )
    if not citations:
        citations = tuple(_citation(answer, reference) for reference in state.references)
    return Answer(state.question or "(none)", by, citations=citations, text=answer)


def _claims(answer: str) -> dict[int, str]:
    """By each number that is cited, the sentences that cite it."""
    claims: dict[int, list[str]] = {}
    for start, end in sentence_spans(answer):
        sentence = answer[start:end].strip()
        claim = " ".join(NUMBERS.sub("", sentence).split())
        for number in cited(sentence):
            claims.setdefault(number, []).append(claim or sentence)
    return {number: " ".join(said) for number, said in claims.items()}


def _citation(claim: str, reference: Reference) -> Citation:
    return Citation(
        claim=claim,
        title=reference.title,
        quote=reference.extract,
        document=reference.document,
        url=reference.url or None,
        retrieved_at=reference.retrieved_at,
        sha256=reference.sha256,
        spans=((reference.start, reference.end),),
        pages=reference.pages,
    )


def _reason(state: State) -> str:
    if state.end in ("nonsense", "controversial"):
        return f"the question was held to be {state.end}"
    return "nothing was quoted" if not state.references else "the answer is blank"
