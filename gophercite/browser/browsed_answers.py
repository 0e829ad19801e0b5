"""The answer of an episode in the form that `gophercite verify` takes: claims and references."""

import re

from gophercite.browser.state import Reference, State
from gophercite.records.answers import Answer, Citation
from gophercite.text.sentences import sentence_spans
from gophercite.vocabularies import Vocabulary

NUMBERS = re.compile(r"\[(\d{1,4}(?:\s*,\s*\d{1,4})*)\]")

_CITED = re.compile(rf"(?<![ \t])[ \t]*{NUMBERS.pattern}")  # from the first of many blanks only
_CITED_FIRST = re.compile(rf"^{NUMBERS.pattern}[ \t]*", re.MULTILINE)
_NESTED = 10  # citations within citations that are looked for


def cited(answer: str) -> tuple[int, ...]:
    """Returns the numbers that an answer cites, `[1]` or `[1, 3]`, in order of first appearance."""
    found = (number for match in NUMBERS.finditer(answer) for number in match[1].split(","))
    # `int` rejects some of the white space that the pattern and `strip` accept.
    return tuple(dict.fromkeys(int(number.strip()) for number in found))


def without_citations(answer: str) -> str:
    """Returns an answer without its citation numbers and the blanks before them.

    WebGPT's answers were compared like this with Reddit's, which have no citations (section 4.1).
    """
    for _ in range(_NESTED):  # the rest may form a new citation: `[[1]2]`
        answer = _CITED.sub("", _CITED_FIRST.sub("", answer))
    return answer.strip()


def shortened(text: str, vocabulary: Vocabulary, longest: int) -> str:
    """Returns a text cut to a number of tokens; a partial last sentence is removed.

    WebGPT's answers were cut like this for TruthfulQA (section 4.2). A text that fits stays as it
    is. Nothing is left if even the first sentence is too long.

    Args:
      text: the text to cut.
      vocabulary: tokenizer by which tokens are counted.
      longest: maximum number of tokens.
    """
    tokens = vocabulary.encode(text)
    if len(tokens) <= longest:
        return text
    cut = vocabulary.decode(tokens[:longest]).rstrip("\ufffd")  # half a character
    ends = [end for _, end in sentence_spans(text) if end <= len(cut)]
    return text[: max(ends, default=0)]


def answer_of(state: State, by: str) -> Answer:
    """Returns the answer with a citation for each reference that it cites.

    The claim of a reference is the sentences that cite it. If none cites any, the whole answer is
    the claim of all references.

    Args:
      state: the final state of an episode.
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
    """The sentences that cite each number, by number."""
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
        return f"the question was judged to be {state.end}"
    return "nothing was quoted" if not state.references else "the answer is blank"
