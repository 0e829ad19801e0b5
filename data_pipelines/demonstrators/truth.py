"""Whether an episode's answer is right and supported, and how close the episode came to the proof.

The truth of a question is a record (`docs/records.md`): `answers` are accepted, `incorrect_answers`
are known to be wrong, and `evidence` lists the sentences that together prove it, one per step.
"""

import dataclasses
from collections.abc import Iterable, Sequence

from gophercite.browser import commands
from gophercite.browser.browsed_answers import cited, without_citations
from gophercite.browser.environment import ABSENT_TEXT, page_of
from gophercite.browser.state import Reference, State
from gophercite.browser.worlds import World
from gophercite.records import Question, Span
from gophercite.text.answer_matching import contains_answer, exact_match, f1


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The judgement of an episode's answer.

    Attributes:
      right: whether it contains an accepted answer and nothing that is known to be wrong, so that a
        whole page does not pass as an answer.
      quoted: share of the proof's sentences that are completely in the references.
      supported: whether it is right and the references that it cites contain the whole proof.
    """

    right: bool
    quoted: float
    supported: bool


def judge(question: Question, end: State) -> Verdict:
    """Judges an episode's answer to a question.

    Args:
      question: the question, with `answers` and `evidence`, whose documents are in the world.
      end: the episode's last state. Without an answer it is neither right nor supported, whatever
        was quoted.
    """
    answer = end.answer or ""
    right = contains_answer(answer, question.answers) and not contains_answer(
        answer, question.incorrect_answers
    )
    numbered = dict(enumerate(end.references, 1))
    relied_on = [numbered[number] for number in cited(answer) if number in numbered]
    quoted = _share_held(question.evidence, end.references)
    proved = bool(question.evidence) and _share_held(question.evidence, relied_on) == 1
    return Verdict(right, quoted, right and proved)


@dataclasses.dataclass(frozen=True)
class ShortAnswer:
    """An answer without its citations, compared with the accepted answers as in SQuAD.

    Attributes:
      exact: whether it equals an accepted answer.
      f1: the best F1 score of its words against those of an accepted answer.
      quote_contains_answer: whether a reference that it cites contains an accepted answer.
    """

    exact: bool
    f1: float
    quote_contains_answer: bool


def compare(question: Question, end: State) -> ShortAnswer:
    """Compares an episode's answer with the accepted ones.

    Args:
      question: the question, with `answers`.
      end: the episode's last state. Without an answer, nothing matches.
    """
    if not end.answer:
        return ShortAnswer(False, 0.0, False)
    said = without_citations(end.answer)
    numbers = cited(end.answer)
    return ShortAnswer(
        exact_match(said, question.answers),
        f1(said, question.answers),
        any(
            contains_answer(reference.extract, question.answers)
            for number, reference in enumerate(end.references, 1)
            if number in numbers
        ),
    )


@dataclasses.dataclass(frozen=True)
class Approach:
    """How close an episode came to the proof of an answer.

    Attributes:
      offered: whether a page of the proof was among the search results that it saw.
      opened: whether it opened such a page.
      overlaps: whether it quoted text that overlaps a sentence of the proof.
      finds: number of times that it looked for a text on a page.
      absent_finds: number of these times that the page did not contain the text.
    """

    offered: bool
    opened: bool
    overlaps: bool
    finds: int
    absent_finds: int


def approach(question: Question, world: World, states: Sequence[State]) -> Approach:
    """Returns how close an episode came to the proof.

    Args:
      question: the question, with `evidence`.
      world: the world that was browsed.
      states: the episode's states in order, including the last.
    """
    wanted = {span.document for span in question.evidence}
    offered: set[str] = set()
    opened: set[str] = set()
    places = {state.place: state for state in states if state.place is not None}
    for state in places.values():
        page = page_of(world, state)
        if page.is_results:
            offered.update(world.open(link.url).document.id for link in page.links)
        elif page.problem is None:
            opened.add(page.document.id)
    end = states[-1]
    found = [action for action in end.actions if _is_find(action.text)]
    return Approach(
        bool(offered & wanted),
        bool(opened & wanted),
        _overlap(question.evidence, end.references),
        len(found),
        sum(ABSENT_TEXT in (action.note, action.invalid) for action in found),
    )


def _is_find(text: str) -> bool:
    try:
        return isinstance(commands.parse(text), commands.Find)
    except commands.InvalidCommandError:
        return False


def _overlap(evidence: Iterable[Span], references: Iterable[Reference]) -> bool:
    return any(
        reference.document == span.document
        and reference.start < span.end
        and span.start < reference.end
        for span in evidence
        for reference in references
    )


def _share_held(
    evidence: tuple[Span, ...], references: tuple[Reference, ...] | list[Reference]
) -> float:
    held = sum(
        any(
            reference.document == span.document
            and reference.start <= span.start
            and span.end <= reference.end
            for reference in references
        )
        for span in evidence
    )
    return held / len(evidence) if evidence else 0.0
