"""Whether the answer of an episode is right, and proved by what it cites, where that is known.

The truth of a question is a record (`docs/records.md`): `answers` is accepted, `incorrect_answers`
is known to be wrong, and `evidence` are the sentences that prove it together, one for each step.
"""

import dataclasses

from gophercite.browser.browsed_answers import cited
from gophercite.browser.state import Reference, State
from gophercite.records import Question, Span
from gophercite.text.answer_matching import contains_answer


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the answer of an episode is worth.

    Attributes:
      right: it says an accepted answer, and nothing that is known to be wrong, so that a whole page
        for an answer is not right.
      quoted: the share of the proof's sentences that stand whole in the references.
      supported: it is right, and the references that it cites hold the whole proof.
    """

    right: bool
    quoted: float
    supported: bool


def judge(question: Question, end: State) -> Verdict:
    """Returns what an episode's answer to a question is worth.

    Args:
      question: with `answers` and `evidence`, whose documents are those of the world.
      end: the episode's last state; without an answer it is worth nothing, whatever was quoted.
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
