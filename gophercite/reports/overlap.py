"""Splits questions by their overlap with the training data (WebGPT, table 9; Lewis et al. 2021).

A model that has seen a question, or only its answer, may have memorised it. Lewis et al. had people
say which questions ask the same. Here two questions do if they are equal after SQuAD's
normalisation, so paraphrases count as new: the shares without overlap are upper bounds. An answer
of which the normalisation leaves no word overlaps with nothing.
"""

from collections.abc import Iterable, Mapping, Sequence

from gophercite.evaluation.metrics import Judgement
from gophercite.records import Question
from gophercite.reports.report import summarise
from gophercite.reports.tables import Table
from gophercite.text.answer_matching import normalize_answer, says_something

TOTAL = "all"
QUESTION = "question overlap"
NO_QUESTION = "no question overlap"
ANSWER = "answer overlap"
ANSWER_ONLY = "answer overlap only"
NONE = "no overlap"


def overlap_splits(
    questions: Iterable[Question], train: Iterable[Question]
) -> dict[str, frozenset[str]]:
    """Returns the ids of the questions in each split; a question is in several splits.

    Args:
      questions: the questions to score; `answers` with all aliases.
      train: all questions of the training data.
    """
    seen_questions: set[str] = set()
    seen_answers: set[str] = set()
    for question in train:
        seen_questions.add(normalize_answer(question.question))
        seen_answers.update(map(normalize_answer, filter(says_something, question.answers)))
    found: dict[str, set[str]] = {
        name: set() for name in (TOTAL, QUESTION, NO_QUESTION, ANSWER, ANSWER_ONLY, NONE)
    }
    for question in questions:
        asked = normalize_answer(question.question) in seen_questions
        answered = any(normalize_answer(answer) in seen_answers for answer in question.answers)
        names = [TOTAL, QUESTION if asked else NO_QUESTION]
        if answered:
            names.append(ANSWER)
        if not asked:
            names.append(ANSWER_ONLY if answered else NONE)
        for name in names:
            found[name].add(question.id)
    return {name: frozenset(ids) for name, ids in found.items()}


def overlap_table(
    splits: Mapping[str, frozenset[str]], judged: Sequence[tuple[str, Judgement]]
) -> Table:
    """Returns a row for each split: exact match, F1 and support in percent with 90 % intervals.

    Args:
      splits: question ids by the split's name.
      judged: pairs of a question's id and the judgement of its answer.
    """
    rows = []
    for name, ids in splits.items():
        inside = [judgement for id, judgement in judged if id in ids]
        summary = summarise(inside)
        fields = ("claim_correct", "claim_f1", "supported")
        cells = [str(summary[field]) if field in summary else "–" for field in fields]
        rows.append([name, str(len(inside)), *cells])
    return Table(["questions", "answers", "exact match %", "F1 %", "supported %"], rows)
