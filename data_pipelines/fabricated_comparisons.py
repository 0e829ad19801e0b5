"""Comparisons built from fact-checking claims, for reward models (GopherCite, appendix E.2).

A reward model that has only seen answers taken from their quotes learns little about whether a
quote supports a claim. A claim with a sentence that proves or refutes it gives comparisons with
known labels: the right answer with the right quote against the wrong answer (A, B), or against
the same answer with an unrelated quote (A2, B2).
"""

import random
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from data_pipelines.claim_questions import AskModel, inside_sentence, question_for
from data_pipelines.converters.fact_checking import CheckedClaim, as_question
from data_pipelines.converters.gold import ConversionReport
from data_pipelines.converters.sentences import covering
from gophercite.evidence import MINIMUM_QUOTE_LENGTH, Evidence, holds_mark
from gophercite.records import Comparison
from gophercite.text.sentences import sentence_spans

ComparisonType = Literal["A", "B", "A2", "B2"]
TYPES: tuple[ComparisonType, ...] = get_args(ComparisonType)

_TRIES = 20  # draws of other sentences before giving up on a false quote

_AFFIRMATIVE = ("Yes", "Yes, it is", "That is right", "That is true", "True", "Yes, that is so")
_NEGATIVE = ("No", "No, it is not", "That is wrong", "That is not true", "False", "No, it isn't so")
_NEGATIONS = (
    "It is not true that {claim}.",
    "It is not the case that {claim}.",
    "It would be wrong to say that {claim}.",
)


class FabricatedComparison(NamedTuple):
    """A comparison, and the group of its claim, which must stay in one split."""

    comparison: Comparison
    group: str


def fabricate(
    claims: Sequence[CheckedClaim],
    source: str,
    report: ConversionReport,
    *,
    types: Sequence[ComparisonType] = TYPES,
    ask: AskModel | None = None,
    seed: int = 0,
) -> Iterator[FabricatedComparison]:
    """Yields a comparison of each type for each claim.

    A asks whether the claim is true. The better response gives the right answer, yes or no; the
    other response gives the opposite answer. Both have the quote.

    B asks a question that the claim answers. The better response is the claim if it is proven, and
    its negation if it is refuted; the other response is the opposite. Both have the quote.

    A2 and B2 have the question and the better response of A and B. The other response gives the
    same answer with sentences of another page as its quote.

    The better response is labelled as preferred, and as supported and plausible; the other one has
    neither label. The order of the two, and the words of answers, negations and type A's questions,
    are drawn by (seed, claim, type), independently of other claims and types.

    Args:
      claims: claims of one split with their evidence. False quotes are sentences from the other
        claims' pages.
      source: name of the data set; the type is added to it in the comparisons, as in `fever_A2`.
      report: counts the claims without a comparison, by reason.
      types: the types to make.
      ask: a model that makes type B's questions (`claim_questions.question_for`); None uses rules.
      seed: seed for the draws.

    Raises:
      ValueError: there is no such type.
    """
    if unknown := [kind for kind in types if kind not in TYPES]:
        raise ValueError(f"there is no type {unknown[0]!r}; the types are {', '.join(TYPES)}")
    for checked in claims:
        quote = _quote(checked)
        if holds_mark(checked.claim) or holds_mark(quote) or len(quote) < MINIMUM_QUOTE_LENGTH:
            report.counts["claims or quotes that no answer can contain"] += 1
            continue
        asked = question_for(checked.claim, ask) if {"B", "B2"} & set(types) else None
        for kind in types:
            # As bytes: an id may hold half a surrogate pair, which a string as seed must not have.
            seeded = f"{seed}/fabricated/{checked.id}/{kind}".encode("utf-8", "replace")
            draw = random.Random(seeded)
            question = _yes_no_question(checked.claim, draw) if kind in ("A", "A2") else asked
            if question is None:
                report.counts[f"claims that no rule turns into a question ({kind})"] += 1
                continue
            pair = _pair(checked, kind, quote, claims, draw)
            if pair is None:
                report.counts[f"claims without another page to quote from ({kind})"] += 1
                continue
            name = f"{checked.id}-{kind}"
            comparison = _comparison(name, question, f"{source}_{kind}", pair, draw)
            yield FabricatedComparison(comparison, checked.group)


def _pair(
    checked: CheckedClaim,
    kind: ComparisonType,
    quote: str,
    claims: Sequence[CheckedClaim],
    draw: random.Random,
) -> tuple[Evidence, Evidence] | None:
    """Returns the better response and the other, or None if there is no false quote."""
    title = checked.document.title
    if kind in ("A", "A2"):
        style = draw.randrange(len(_AFFIRMATIVE))  # both answers have the same style
        answers = (_AFFIRMATIVE[style], _NEGATIVE[style])
    else:
        negation = draw.choice(_NEGATIONS).format(claim=inside_sentence(checked.claim))
        answers = (f"{checked.claim}.", negation)
    right, wrong = answers if checked.supported else answers[::-1]
    better = Evidence(right, title, quote)
    if kind in ("A", "B"):
        return better, Evidence(wrong, title, quote)
    false_quote = _false_quote(checked, quote, claims, draw)
    return None if false_quote is None else (better, Evidence(right, title, false_quote))


def _comparison(
    name: str, question: str, source: str, pair: tuple[Evidence, Evidence], draw: random.Random
) -> Comparison:
    better, other = ((evidence,) for evidence in pair)
    if draw.random() < 0.5:
        return Comparison(name, question, source, (better, other), 0.0, (True, False))
    return Comparison(name, question, source, (other, better), 1.0, (False, True))


def _yes_no_question(claim: str, draw: random.Random) -> str:
    inside = inside_sentence(claim)
    return draw.choice(
        (
            f"{claim}?",
            as_question(inside),
            f"Is it right that {inside}?",
            f"{claim}. Is that so?",
            f"Would you say that {inside}?",
        )
    )


def _quote(checked: CheckedClaim) -> str:
    """The whole sentences of the evidence, as a model would quote them."""
    first, last = covering(checked.document.text, checked.span)
    return checked.document.text[first:last]


def _false_quote(
    checked: CheckedClaim, quote: str, claims: Sequence[CheckedClaim], draw: random.Random
) -> str | None:
    """Returns as many sentences of another page as the quote has, under the true quote's title."""
    wanted = len(sentence_spans(quote))
    for _ in range(_TRIES):
        page = draw.choice(claims).document
        if page.title == checked.document.title:
            continue
        spans = sentence_spans(page.text)
        if len(spans) < wanted:
            continue  # a quote with fewer sentences could be recognised by its length
        first = draw.randrange(len(spans) - wanted + 1)
        text = page.text[spans[first][0] : spans[first + wanted - 1][1]]
        if len(text) >= MINIMUM_QUOTE_LENGTH and not holds_mark(text):
            return text
    return None
