"""Converters of public sets in their documented shapes, on small files written here.

The last test reads FoolMeTwice and TruthfulQA from `../shared/data`, next to the repository, where
they are there; all that it shows is tested on small files, too.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines import convert
from data_pipelines.converters.fact_checking import read_fool_me_twice
from data_pipelines.converters.gold import ConversionReport
from data_pipelines.converters.natural_questions import convert_natural_questions
from data_pipelines.converters.open_questions import convert_eli5
from data_pipelines.converters.qa_feedback import convert_qa_feedback
from data_pipelines.converters.webgpt import convert_webgpt_comparisons
from data_pipelines.converters.webgpt_questions import convert_arc, convert_fact_check
from gophercite import records
from gophercite.records import Comparison, Document, Question, RatedAnswer

SHARED = Path(__file__).parents[2] / "../shared/data"

TRIVIA = {
    "QuestionId": "tc_1",
    "Question": "Which river runs through Alda?",
    "Answer": {"Value": "Keesh", "Aliases": ["River Kesh", "Kesh River"], "Type": "FreeForm"},
    "EntityPages": [{"Title": "Alda_(port)", "Filename": "Alda.txt", "DocSource": "TagMe"}],
    "SearchResults": [{"Title": "Rivers", "Filename": "0/0_1.txt", "Description": "…", "Rank": 0}],
}
FEVER_PAGE = {
    "id": "Alda_-LRB-port-RRB-",
    "text": "…",
    "lines": "0\tAlda -LRB- a port -RRB- was founded in 1812 .\tport\tPort\n1\t\n2\tShips call .\t",
}
FEEDBACK = {
    "question": "When did the mill burn?",
    **{f"prediction {n}": f"In the year {n}." for n in (1, 2, 3, 4)},
    "preference": [1, 2, 0, 1, 2, 0],
}
FOOLED = {
    "id": "f",
    "label": "REFUTES",
    "text": "Alda was founded in 1912.",
    "wikipedia_page": "Alda",
    "gold_evidence": [{"text": "Alda was founded in 1812.", "section_header": "History"}],
}
KILT = {
    "id": "k",
    "input": "Why do mills burn?",
    "output": [
        {"answer": "Dust.", "meta": {"score": 2}},
        {"answer": "Flour dust explodes.", "meta": {"score": 40}},
        {"provenance": [{"wikipedia_id": "1", "title": "Mill"}]},
    ],
}
ALCE = {
    "question": "Why do mills burn?",
    "answer": "Flour dust explodes.",
    "claims": ["Flour dust explodes."],
    "docs": [
        {"title": "Mill", "text": "Flour dust in the air explodes.", "url": "https://example.org"},
        {"title": "Mill", "text": "Flour dust in the air explodes."},
        {"title": "Fire", "text": "Fire needs air."},
    ],
}
READING = {"question": "When was the old one built?", "short_answers": ["1700", "in 1700"]}
ASQA = {
    "ambiguous_question": "When was the mill of Alda built?",
    "qa_pairs": [
        READING
        | {"context": "There are two. The old mill is of 1700. It burned.", "wikipage": "A"},
        READING | {"context": "No context provided", "wikipage": None},
        READING | {"context": "A mill is a machine.", "wikipage": "Mill"},
    ],
    "wikipages": [{"title": "A", "url": "https://example.org/A"}],
    "annotations": [{"long_answer": "The old mill in 1700.", "knowledge": []}],
}
TRUTHFUL = (
    "Type,Category,Question,Best Answer,Correct Answers,Incorrect Answers,Source\n"
    'Adversarial,Mills,What if a mill burns?,Flour is lost,"It burns; Flour is lost; ",'
    '"Bad luck follows; It rains",https://example.org\n'
)
WEBGPT = {
    "question": {"dataset": "eli5", "id": "q", "full_text": "Why do mills burn?"},
    "quotes_0": {"title": ["Mill (example.org)"], "extract": ["Flour dust explodes."]},
    "answer_0": "Because of dust [1].",
    "tokens_0": {"prefix": [1], "completion": [2]},
    "score_0": -0.5,
    "quotes_1": {"title": [], "extract": []},
    "answer_1": "Nobody knows.",
    "tokens_1": {"prefix": [1], "completion": [2]},
    "score_1": 0.5,
}


def json_lines(path: Path, *values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return path


def converted(format: str, path: Path, kind: Any, name: str) -> list[Any]:
    """The records of a file, all in the training split."""
    out = path.parent / "out"
    assert convert.main([format, str(path), str(out), "--validation", "0", "--test", "0"]) == 0
    return list(records.read(out / f"{name}_train.jsonl", kind, strict=True))


# --- Gold passages ---


def trivia_archive(folder: Path, *questions: object) -> Path:
    for name, text in (
        ("wikipedia/Alda.txt", "A port. Ships call."),
        ("web/0/0_1.txt", "The Kesh River runs through Alda. It is long."),
    ):
        (folder / "evidence" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "evidence" / name).write_text(text)
    path = folder / "qa" / "wikipedia-dev.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"Data": list(questions), "Domain": "Wikipedia"}))
    return path


def test_trivia_takes_the_first_page_that_says_an_alias(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out_of_it = {"EntityPages": [{"Title": "x", "Filename": "../../qa/wikipedia-dev.json"}]}
    unsaid = {"Answer": {"Value": "Danube", "Aliases": []}}
    path = trivia_archive(tmp_path, TRIVIA, TRIVIA | out_of_it, TRIVIA | unsaid, "no object", {})
    (answer,) = converted("trivia_qa", path, RatedAnswer, "rated_answers")
    assert (answer.claim, answer.title) == ("Kesh River", "Rivers")
    assert answer.quote == "The Kesh River runs through Alda."
    printed = capsys.readouterr()
    assert "4 bad records skipped" in printed.out
    assert f"{path}: Data[1]: field 'Filename': '../../qa" in printed.err
    assert "Data[2]: no page contains an answer" in printed.err


def test_trivia_without_its_pages_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "qa" / "dev.json"
    path.parent.mkdir()
    path.write_text('{"Data": []}')
    assert convert.main(["trivia_qa", str(path), str(tmp_path / "out")]) == 1
    assert f"expected the pages in {tmp_path / 'evidence'}" in capsys.readouterr().err


def test_fever_asks_whether_a_claim_is_true(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, elsewhere = [1, 2, "Alda_-LRB-port-RRB-", 0], [1, 2, "Elsewhere", 3]
    claim = {"id": 5, "label": "SUPPORTS", "claim": "Alda is old .", "evidence": [[here]]}
    json_lines(tmp_path / "wiki-pages" / "wiki-001.jsonl", FEVER_PAGE, {"id": ["x"]})
    path = json_lines(
        tmp_path / "train.jsonl",
        claim,
        claim | {"id": 6, "label": "REFUTES", "evidence": [[elsewhere, here], [[*here[:3], 2]]]},
        claim | {"label": "NOT ENOUGH INFO", "evidence": [[[1, None, None, None]]]},
        claim | {"evidence": [[here, elsewhere], [[*here[:3], 1]], 7]},
        {"label": "SUPPORTS", "claim": "x"},
        "no object",
    )
    first, second = converted("fever", path, RatedAnswer, "rated_answers")
    assert first.question == "Is it true that Alda is old?"
    assert (first.claim, first.title) == ("Yes", "Alda (port)")
    assert first.quote == "Alda ( a port ) was founded in 1812 ."
    assert (second.claim, second.quote) == ("No", "Ships call .")
    printed = capsys.readouterr()
    assert "1 claims that nothing proves or refutes" in printed.out
    assert "1 claims whose evidence is not on one page" in printed.out
    assert "2 bad records skipped" in printed.out
    assert f"{path}:5: field 'evidence'" in printed.err


def test_fool_me_twice_quotes_its_gold_evidence(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "dev.jsonl", FOOLED, FOOLED | {"label": "MAYBE"}, {"label": "x"})
    (answer,) = converted("fool_me_twice", path, RatedAnswer, "rated_answers")
    assert (answer.claim, answer.quote) == ("No", "Alda was founded in 1812.")


def test_the_original_natural_questions_give_the_long_answers_passage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "<H1> Alda </H1> <P> Alda ( a port ) lies on the River Kesh . </P> <P> More . </P>"
    none = {"start_token": -1, "end_token": -1, "candidate_index": -1}
    asked = {
        "example_id": 7,
        "question_text": "where does alda lie",
        "document_url": "https://en.wikipedia.org//w/index.php?title=Alda_(port)&amp;oldid=1",
        "document_text": text,
        "annotations": [
            {"long_answer": none, "short_answers": [], "yes_no_answer": "NONE"},
            {
                "long_answer": {"start_token": 3, "end_token": 16, "candidate_index": 0},
                "short_answers": [{"start_token": 12, "end_token": 14}],
                "yes_no_answer": "NONE",
            },
        ],
    }
    beyond = {"long_answer": {"start_token": 3, "end_token": 999}, "short_answers": []}
    path = json_lines(
        tmp_path / "nq.jsonl",
        asked,
        asked | {"annotations": asked["annotations"][:1]},
        asked | {"annotations": [beyond]},
        asked | {"annotations": ["x"]},
        {"document_text": "x"},
    )
    (answer,) = converted("natural_questions_simplified", path, RatedAnswer, "rated_answers")
    assert (answer.claim, answer.title) == ("River Kesh", "Alda (port)")
    assert answer.quote == "Alda (a port) lies on the River Kesh."
    printed = capsys.readouterr()
    assert "1 questions without a short answer inside a long one" in printed.out
    assert "3 bad records skipped" in printed.out
    tokens = len(text.split())
    problem = f"expected 0 <= start_token < end_token <= {tokens}, got 3, 999"
    assert f"{path}:3: {problem}" in printed.err


# --- Questions ---


def test_questions_of_eli5_have_the_best_answer_first(tmp_path: Path) -> None:
    path = json_lines(tmp_path / "eli5-dev-kilt.jsonl", KILT, {"id": "x"}, KILT | {"output": []})
    (question,) = converted("eli5", path, Question, "questions")
    assert question.answers == ("Flour dust explodes.", "Dust.")
    assert question.documents == ()


ELI5 = {
    "q_id": "5lcm18",
    "title": "Dust explosions, as on _URL_0_",
    "selftext": "See _URL_0_.",
    "title_urls": {"url": ["http://a.example/1"]},
    "selftext_urls": ["http://b.example/2"],
    "answers": {"a_id": ["x", "y"], "text": ["Fine dust.", "Air."], "score": [3, 7]},
}


def test_questions_of_eli5_as_webgpt_was_asked_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Appendix B: the rules of `webgpt_questions`, for both forms of the set."""
    deleted = KILT | {"id": "d", "input": "[deleted by user]"}
    topic = KILT | {"id": "t", "input": "Mills"}
    bad = [ELI5 | {"q_id": "b", "answers": {"text": ["x"], "score": []}}, ELI5 | {"title_urls": 1}]
    path = json_lines(tmp_path / "eli5.jsonl", ELI5, KILT, topic, deleted, *bad)
    out = tmp_path / "webgpt"
    flags = ["--webgpt", "--validation", "0", "--test", "0"]
    assert convert.main(["eli5", str(path), str(out), *flags]) == 0
    printed = capsys.readouterr().out
    assert "1 questions that their authors deleted" in printed
    assert "2 bad records skipped" in printed
    asked = list(records.read(out / "questions_train.jsonl", Question, strict=True))
    assert [(question.id, question.question) for question in asked] == [
        (
            "eli5-5lcm18",
            "Explain: Dust explosions, as on http://a.example/1\n\nSee http://b.example/2.",
        ),
        ("eli5-k", "Why do mills burn?"),
        ("eli5-t", "Explain: Mills"),
    ]
    assert asked[0].answers == ("Air.", "Fine dust.")
    # Without the flag they are the titles, deleted ones too.
    plain = [question.question for question in converted("eli5", path, Question, "questions")]
    assert plain == [
        "Dust explosions, as on http://a.example/1",
        "Why do mills burn?",
        "Mills",
        "[deleted by user]",
    ]
    with pytest.raises(SystemExit):
        convert.main(["asqa", str(path), str(out), "--webgpt"])
    assert "--webgpt works only for eli5" in capsys.readouterr().err


def test_trivia_without_pages_is_a_set_of_questions(tmp_path: Path) -> None:
    """In its unfiltered form and in that for reading comprehension, of which no page is read."""
    unfiltered = {
        "QuestionId": "tc_2",
        "Question": "Where is Alda?",
        "QuestionSource": "http://quiz.example",
        "Answer": {"Value": "Kesh", "Aliases": ["The Kesh", "Kesh"], "HumanAnswers": ["By Kesh"]},
    }
    test = {"QuestionId": "tc_3", "Question": "Who?", "Answer": None}
    path = tmp_path / "unfiltered-web-dev.json"
    bad = [TRIVIA | {"Answer": {"Value": "x", "Aliases": [1]}}, {"QuestionId": "q"}, 7]
    path.write_text(json.dumps({"Data": [TRIVIA, unfiltered, test, *bad]}))
    asked = converted("trivia_qa_open", path, Question, "questions")
    assert [(question.id, question.answers) for question in asked] == [
        ("tc_1", ("Keesh", "River Kesh", "Kesh River")),
        ("tc_2", ("Kesh", "The Kesh", "By Kesh")),
        ("tc_3", ()),
    ]
    assert {question.source for question in asked} == {"trivia_qa"}


NQ_OPEN = {"question": "Why do mills burn?", "answer": ["Dust.", " ", "Dust. "]}
WRITTEN = {"question": "Why do mills burn?", "answers": ["Dust."]}


@pytest.mark.parametrize(
    ("format", "good", "bad", "problem"),
    [
        ("natural_questions_open", NQ_OPEN, {"answer": ["Dust.", 7]}, "'answer[1]': expected a s"),
        ("natural_questions_open", NQ_OPEN, {"answer": [" ", ""]}, "'answer': every text is empty"),
        ("natural_questions_open", NQ_OPEN, {"answer": []}, "'answer': there is no text"),
        (
            "eli5",
            KILT,
            {"output": [{"answer": 7}, {"answer": "x"}]},
            "'output[0].answer': expected",
        ),
        ("eli5", KILT, {"output": ["Dust."]}, "'output[0]': expected an object"),
        ("eli5", KILT, {"output": [{"provenance": []}]}, "'output': there is no text"),
        ("hand_written", WRITTEN, {"answers": ["Dust.", None]}, "'answers[1]': expected a string"),
        ("hand_written", WRITTEN, {"answers": [" "]}, "'answers': every text is empty"),
    ],
)
def test_answers_that_are_no_texts_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    format: str,
    good: dict[str, Any],
    bad: dict[str, Any],
    problem: str,
) -> None:
    """By file, line and field, whichever set it is; a good answer beside them saves nothing."""
    path = json_lines(tmp_path / "set.jsonl", good, good | bad)
    (question,) = converted(format, path, Question, "questions")
    assert question.answers[-1] == "Dust."
    printed = capsys.readouterr()
    assert "1 bad records skipped" in printed.out
    assert f"{path}:2: field {problem}" in printed.err


def test_arc_has_its_options_in_both_forms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels, texts = ["1", "2", "3"], ["Sun", "Moon", "Mars"]
    choices = [{"label": a, "text": b} for a, b in zip(labels, texts, strict=True)]
    first = {"id": "a", "question": {"stem": "Which is a star?", "choices": choices}}
    second = {"question": "Which is a star?", "choices": {"text": texts, "label": labels}}
    good = [first | {"answerKey": "1"}, second | {"id": "b", "answerKey": "3"}]
    bad = [
        good[0] | {"answerKey": "A"},
        good[1] | {"choices": {"text": texts, "label": ["1", "1", "2"]}},
        good[1] | {"choices": {"text": ["x", "x", "y"], "label": labels}},
        good[1] | {"choices": {"text": texts, "label": labels[:2]}},
        good[1] | {"choices": {"text": texts * 9 + list("ab"), "label": list("3" + "x" * 28)}},
    ]
    path = json_lines(tmp_path / "ARC-Easy-Dev.jsonl", *good, *bad)
    asked = converted("arc", path, Question, "questions")
    assert {question.question for question in asked} == {
        "Which is a star?\nA. Sun\nB. Moon\nC. Mars"
    }
    assert [(question.answers, question.incorrect_answers) for question in asked] == [
        (("Sun",), ("Moon", "Mars")),
        (("Mars",), ("Sun", "Moon")),
    ]
    assert "5 bad records skipped" in capsys.readouterr().out


def test_questions_that_somebody_wrote_and_answers_to_check(tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_text("\ufeffWhy is the sky blue?\n\n  Who built the mill? \n", "utf-8")
    asked = converted("hand_written", text, Question, "questions")
    assert [(question.id, question.question) for question in asked] == [
        ("own-1", "Why is the sky blue?"),
        ("own-3", "Who built the mill?"),
    ]
    lines = json_lines(tmp_path / "own.jsonl", {"question": "Who?", "answers": ["Ada"]}, {})
    (question,) = converted("hand_written", lines, Question, "questions")
    assert (question.answers, question.source) == (("Ada",), "hand_written")
    path = json_lines(
        tmp_path / "checks.jsonl", {"question": "Why?", "answer": "So."}, {"answer": 1}
    )
    (question,) = converted("fact_check", path, Question, "questions")
    assert question.question.endswith("answer.\n\nQuestion: Why?\n\nAnswer: So.")


def test_alce_has_passages_in_rank_order(tmp_path: Path) -> None:
    path = tmp_path / "eli5_eval_bm25.json"
    path.write_text(json.dumps([ALCE, ALCE | {"docs": "none"}]))
    (question,) = converted("alce", path, Question, "questions")
    assert [document.title for document in question.documents] == ["Mill", "Fire"]
    assert question.source == "eli5_eval_bm25"
    documents = list(records.read(tmp_path / "out" / "documents_train.jsonl", Document))
    assert tuple(documents) == question.documents


def test_asqa_has_evidence_where_a_passage_says_the_short_answer(tmp_path: Path) -> None:
    path = tmp_path / "ASQA.json"
    path.write_text(json.dumps({"dev": {"1": ASQA, "2": {"qa_pairs": []}}}))
    (question,) = converted("asqa", path, Question, "questions")
    assert question.answers == ("The old mill in 1700.",)
    assert [document.title for document in question.documents] == ["A", "Mill"]
    (span,) = question.evidence
    text = question.documents[0].text
    assert text[span.start : span.end] == "The old mill is of 1700."


def test_truthfulqa_tells_right_from_wrong(tmp_path: Path) -> None:
    path = tmp_path / "TruthfulQA.csv"
    path.write_text("\ufeff" + TRUTHFUL + "Adversarial,Mills,Who?,,,,\n", "utf-8")
    (question,) = converted("truthfulqa", path, Question, "questions")
    assert question.answers == ("Flour is lost", "It burns")
    assert question.incorrect_answers == ("Bad luck follows", "It rains")


def test_open_questions_have_answers_alone(tmp_path: Path) -> None:
    good = {"question": "who founded alda", "answer": ["Anna Kesh", "Anna Kesh", " "]}
    path = json_lines(tmp_path / "NQ-open.dev.jsonl", good, good | {"answer": []})
    (question,) = converted("natural_questions_open", path, Question, "questions")
    assert (question.id, question.answers) == ("NQ-open-1", ("Anna Kesh",))


def test_the_same_question_is_always_of_one_split(tmp_path: Path) -> None:
    questions = [
        {"question": f"Who built mill {number % 20}?", "answer": [str(number)]}
        for number in range(60)
    ]
    path = json_lines(tmp_path / "nq.jsonl", *questions)
    shares = ["--validation", "0.3", "--test", "0.3"]
    assert convert.main(["natural_questions_open", str(path), str(tmp_path / "out"), *shares]) == 0
    owners: dict[str, str] = {}
    for split in ("train", "validation", "test"):
        for question in records.read(tmp_path / "out" / f"questions_{split}.jsonl", Question):
            assert owners.setdefault(question.question, split) == split
    assert len(owners) == 20
    assert set(owners.values()) == {"train", "validation", "test"}


@pytest.mark.parametrize("format", ["alce", "asqa", "truthfulqa", "trivia_qa", "trivia_qa_open"])
def test_files_of_another_kind_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    (tmp_path / "evidence").mkdir()
    path = tmp_path / "qa" / "other.json"
    path.parent.mkdir()
    path.write_text('{"rows": [1]}')
    assert convert.main([format, str(path), str(tmp_path / "out")]) == 1
    assert f"{path} is not " in capsys.readouterr().err


# --- Comparisons ---


def test_webgpt_comparisons_keep_references_and_merge_degrees(tmp_path: Path) -> None:
    tie = WEBGPT | {"score_0": 0, "score_1": 0.0}
    bad = [WEBGPT | {"score_0": "high"}, WEBGPT | {"quotes_1": {"title": ["x"], "extract": []}}]
    path = json_lines(tmp_path / "comparisons.jsonl", WEBGPT, tie, *bad, "no object", {})
    first, second = converted("webgpt_comparisons", path, Comparison, "comparisons")
    assert first.question == "Why do mills burn?"
    assert first.source == "webgpt_eli5"
    assert first.responses == (
        "Because of dust [1].\n\n[1] Mill (example.org)\nFlour dust explodes.",
        "Nobody knows.",
    )
    assert (first.preferred, second.preferred) == (1.0, 0.5)


def test_qa_feedback_gives_six_comparisons_of_four_answers(tmp_path: Path) -> None:
    bad = [FEEDBACK | {"preference": [1] * 5}, FEEDBACK | {"preference": [1, 2, 3, 0, 0, True]}]
    path = json_lines(tmp_path / "feedback.jsonl", FEEDBACK, *bad, "no object", {})
    made = converted("qa_feedback", path, Comparison, "comparisons")
    pairs = [(c.responses[0][-2], c.responses[1][-2]) for c in made]
    assert pairs == [("1", "2"), ("1", "3"), ("1", "4"), ("2", "3"), ("2", "4"), ("3", "4")]
    assert [c.preferred for c in made] == [0.0, 1.0, 0.5, 0.0, 1.0, 0.5]
    same = FEEDBACK | {"prediction 2": FEEDBACK["prediction 1"]}
    path = json_lines(tmp_path / "same.jsonl", same)
    assert len(converted("qa_feedback", path, Comparison, "comparisons")) == 5


ARC = {
    "id": "a",
    "question": {"stem": "Who?", "choices": [{"label": "A", "text": "x"}]},
    "answerKey": "A",
}
GOLD = {
    "question": "when did the mill burn",
    "answers": ["1812"],
    "nq_annotated_gold": {"title": "Mill", "long_answer": "Of 1812.", "short_answers": ["1812"]},
}
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(deadline=None)
@given(data=st.data())
@pytest.mark.parametrize(
    ("convert_lines", "good", "each"),
    [
        (convert_eli5, KILT, 1),
        (convert_eli5, ELI5, 1),
        (convert_arc, ARC, 1),
        (convert_fact_check, {"question": "Why?", "answer": "So."}, 1),
        (convert_webgpt_comparisons, WEBGPT, 1),
        (convert_qa_feedback, FEEDBACK, 6),
        (convert_natural_questions, GOLD, 1),
        (read_fool_me_twice, FOOLED, 1),
    ],
)
def test_anything_in_any_field_is_converted_or_named(
    tmp_path_factory: pytest.TempPathFactory,
    convert_lines: Any,
    good: Any,
    each: int,
    data: st.DataObject,
) -> None:
    name = data.draw(st.sampled_from(list(good)))
    path = tmp_path_factory.mktemp("sets") / "set.jsonl"
    json_lines(path, good | {name: data.draw(anything)}, data.draw(anything))
    report = ConversionReport()
    found = list(convert_lines(path, report))
    assert len(found) / each + report.counts["bad records skipped"] == 2


@pytest.mark.skipif(not SHARED.is_dir(), reason="no public data beside the repository")
def test_public_sets_convert_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for format, file, name, count in (
        (
            "fool_me_twice",
            "fact_checking/fool_me_twice__dataset__dev.jsonl.gz",
            "rated_answers",
            1169,
        ),
        ("truthfulqa", "truthfulqa/TruthfulQA.csv", "questions", 817),
    ):
        out = tmp_path / format
        shares = ["--validation", "0", "--test", "1"]
        assert convert.main([format, str(SHARED / file), str(out), *shares]) == 0
        assert "bad records" not in capsys.readouterr().out
        kind: Any = RatedAnswer if name == "rated_answers" else Question
        assert len(list(records.read(out / f"{name}_test.jsonl", kind, strict=True))) == count
