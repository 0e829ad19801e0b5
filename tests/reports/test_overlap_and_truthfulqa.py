"""Questions by what of them was in the training data; claims as TruthfulQA's raters see them."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from vocabulary_fixtures import trained

from gophercite.documents import Document
from gophercite.evaluation.answers import JudgedSample
from gophercite.evaluation.metrics import judge
from gophercite.evidence import Evidence, format
from gophercite.records import Question
from gophercite.reports import overlap
from gophercite.reports.truthfulqa import nearness, rating_line, short_claim, truthfulqa_section

PAGE = Document("o", "Ormsby", "Its lighthouse was built in 1874.")


def question(id: str, text: str, *answers: str) -> Question:
    return Question(id, text, "test", (PAGE,), answers)


def test_questions_are_split_by_what_was_seen() -> None:
    train = [question("t", "When was the mill built?", "1812", "in 1812")]
    asked = [
        question("both", "when was mill built", "1812"),
        question("question", "When was the mill built?", "1813"),
        question("answer", "When did it burn?", "1999", "In 1812."),
        question("new", "Who built it?", "Ada"),
        question("unanswered", "Why?"),
    ]
    splits = overlap.overlap_splits(asked, train)
    assert splits == {
        overlap.TOTAL: {"both", "question", "answer", "new", "unanswered"},
        overlap.QUESTION: {"both", "question"},
        overlap.NO_QUESTION: {"answer", "new", "unanswered"},
        overlap.ANSWER: {"both", "answer"},
        overlap.ANSWER_ONLY: {"answer"},
        overlap.NONE: {"new", "unanswered"},
    }
    judged = [(one.id, judge(format(Evidence("1812", "Ormsby", "built in")), one)) for one in asked]
    rows = {row[0]: row[1:3] for row in overlap.overlap_table(splits, judged).rows}
    assert rows[overlap.QUESTION] == ["2", "50.0 (12.1–87.9)"]
    assert rows[overlap.NONE][0] == "2"
    assert rows[overlap.NONE][1].startswith("0.0 (")  # one has no answers to compare with


def test_answers_without_words_are_no_overlap() -> None:
    """Nothing is left of them to compare."""
    train = [question("t", "When was the mill built?", "The", "…")]
    asked = [question("article", "Who?", "a"), question("signs", "Why?", "—", "…")]
    splits = overlap.overlap_splits(asked, train)
    assert splits[overlap.ANSWER] == frozenset()
    assert splits[overlap.NONE] == {"article", "signs"}


def claims(*texts: str) -> list[Evidence]:
    return [Evidence(text, "Ormsby", "built in 1874") for text in texts]


def test_long_claims_lose_their_unfinished_sentence() -> None:
    vocabulary = trained()
    first, second = "It was built in 1874.", "The lamp was lit with whale oil until 1902."
    whole = f"{first} {second}"
    assert short_claim(claims(first, second), vocabulary, len(vocabulary.encode(whole))) == whole
    assert short_claim(claims(first, second), vocabulary, len(vocabulary.encode(whole)) - 1) == (
        first
    )
    assert short_claim(claims(first), vocabulary, 2) == ""
    assert short_claim([], vocabulary) == ""


@given(st.text(st.sampled_from("Ab c.!?…。é\n"), max_size=60), st.integers(1, 30))
def test_what_is_left_is_a_beginning_that_fits(text: str, longest: int) -> None:
    vocabulary = trained()
    left = short_claim(claims(text), vocabulary, longest)
    assert text.startswith(left)
    assert left == text or len(left) < len(text)


def test_claims_are_compared_with_right_and_wrong_answers() -> None:
    asked = dataclasses.replace(
        question("q", "What do they speak?", "There is no one language."),
        incorrect_answers=("They speak Latin.",),
    )
    assert nearness("No one language", asked).truthful  # type: ignore[union-attr]
    assert not nearness("Latin", asked).truthful  # type: ignore[union-attr]
    assert nearness("Latin", question("q", "What?", "no")) is None
    answer = format(*claims("They speak Latin."))
    sample = JudgedSample(asked, answer, answer, judge(answer, asked))
    line = rating_line(sample, trained())
    assert (line["answer"], line["nearer_to_correct"]) == ("They speak Latin.", False)
    assert line["incorrect_answers"] == ("They speak Latin.",)
    assert "0.0 (0.0–73.0) %" in truthfulqa_section([line]).text[0]
    unknown = rating_line(dataclasses.replace(sample, question=question("q", "What?")), trained())
    assert "not known" in truthfulqa_section([unknown]).text[0]


def test_splits_need_no_training_data() -> None:
    splits = overlap.overlap_splits([question("q", "Who?", "Ada")], [])
    assert splits[overlap.NONE] == {"q"}
    assert splits[overlap.QUESTION] == frozenset()
    table = overlap.overlap_table(splits, [])
    assert table.rows[0] == [overlap.TOTAL, "0", "–", "–", "–"]
    assert len(table.rows) == 6
