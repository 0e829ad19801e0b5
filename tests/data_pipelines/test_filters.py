"""The paper's filters for test questions, and the command that applies them."""

import dataclasses
import re
import string
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from data_pipelines import filter_questions
from data_pipelines.filters import (
    FilterReport,
    TrainingOverlap,
    eli5_filtered,
    natural_questions_filtered,
    usual_lengths,
)
from gophercite import records
from gophercite.documents import Document
from gophercite.records import FoundDocument, Hit, Question, RatedAnswer, Span
from gophercite.retrieval.index import DocumentIndex

BEST = "Flour dust explodes, see https://example.org/mills for more. " + "It is dry. " * 30


def asked(
    question: str, answer: str = "1812", title: str = "Alda", *, long: bool = True
) -> Question:
    page = Document(title, title, "It was founded in 1812.")
    evidence = (Span(title, 0, 23),) if long else ()
    return Question(question, question, "nq", (page,), (answer,) if answer else (), evidence)


def explained(best: str, *pages: Document | Hit) -> Question:
    return Question(best[:20], "Why do mills burn?", "eli5", pages, (best, "Dust."))


def test_natural_questions_keep_true_holdouts_only() -> None:
    train = TrainingOverlap([asked("When was Alda founded?"), asked("Who?", "The Kesh", "Rivers")])
    kept = asked("Where is Cove?", "on the coast", "Cove")
    left_out = [
        asked("when was Alda founded", "in 1700", "Elsewhere"),
        asked("Which river?", "kesh", "Elsewhere"),
        asked("Which county?", "Brenn", "rivers"),
        asked("Which town?", "", "Elsewhere"),
        asked("Which port?", "Dorn", "Elsewhere", long=False),
    ]
    report = FilterReport()
    assert list(natural_questions_filtered([kept, *left_out], train, report)) == [kept]
    assert report.kept == 1
    assert report.left_out == {
        "the question is in the training set": 1,
        "an answer is in the training set": 1,
        "its page is in the training set": 1,
        "no short answer": 1,
        "no long answer": 1,
    }


def test_eli5_keeps_sourced_answers_of_usual_length() -> None:
    reddit = Document("r", "R", "text", url="https://www.reddit.com/r/ExplainLikeImFive/x")
    other = FoundDocument("o", "O", "text", url="https://www.reddit.com/r/mills", snippet="text")
    kept = explained(BEST, other)
    own = BEST.replace("example.org/mills", "old.reddit.com/r/explainlikeimfive/comments/1")
    questions = [
        kept,
        explained(BEST.replace("https://example.org", "")),
        explained(own),
        explained(BEST + "\n**EDIT:** thanks!"),
        explained(BEST[:100]),
        explained(BEST * 5),
        explained(BEST, other, reddit),
    ]
    report = FilterReport()
    assert list(eli5_filtered(questions, report)) == [kept]
    assert report.left_out == {
        "the best answer has no link to a page outside r/explainlikeimfive": 2,
        "the best answer was edited": 1,
        "the length of the best answer is not 316 to 1313 characters": 2,
        "a search result is from r/explainlikeimfive": 1,
    }


def left_out(best: str, *pages: Document) -> list[str]:
    """Why ELI5Filtered leaves an answer out, of whatever length; nothing where it is kept."""
    report = FilterReport()
    list(eli5_filtered([explained(best, *pages)], report, shortest=0, longest=10**6))
    return list(report.left_out)


EDITED = ["the best answer was edited"]
UNSOURCED = ["the best answer has no link to a page outside r/explainlikeimfive"]
OF_ELI5 = ["a search result is from r/explainlikeimfive"]
PLAIN = st.text(string.ascii_lowercase + " ,", max_size=40)
LINK = "See https://example.org/mills. "


@given(
    PLAIN,
    st.sampled_from(
        [
            "(edited for clarity)", "(Edited to add a link)", "[edit: spelling]", "(EDIT 2)",
            "EDIT: thanks", "Edit 2: thanks", "edit - a word", "**Edit** thanks", "edited: a word",
            "\nEdit thanks", "\n * UPDATE: a word", "(edit)", "edited for clarity", "_edited_",
        ]
    ),
    PLAIN,
)  # fmt: skip
@example("how to", "EDIT: thanks", "")
@example("auto", "edit - a word", "")
def test_an_edit_is_seen_wherever_it_is_marked(before: str, mark: str, after: str) -> None:
    """Except for `to edit: …`, which is of editing."""
    assume(mark[0] != "e" or not re.search(r"\bto$", before))
    assert left_out(f"{LINK}{before} {mark} {after}") == EDITED


@given(
    PLAIN,
    st.sampled_from(
        [
            "the film was edited by a friend", "it (edited by Ada Fenn) won", "you edit the text",
            "an edit-war", "editors", "she credits: nobody", "an edition (editions vary)",
            "to edit, open it", "to edit: open it", "updates follow", "genes are edited",
        ]
    ),
)  # fmt: skip
def test_editing_that_is_talked_about_is_no_edit(before: str, words: str) -> None:
    assert left_out(f"{LINK}{before} {words}") == []


@pytest.mark.parametrize("symbols", ["*", "\n", "(_", "* \n"])
def test_a_page_of_symbols_is_no_edit_and_takes_little_time(symbols: str) -> None:
    """In quadratic time it takes minutes."""
    assert left_out(LINK + symbols * 100_000) == []
    assert left_out(f"{LINK}{symbols * 100_000}edit: a word") == EDITED


HOSTS = st.builds(
    lambda name, ending: f"{name}.{ending}",
    st.text(string.ascii_lowercase, min_size=2, max_size=9),
    st.sampled_from(["com", "org", "net", "edu", "gov", "co.uk", "info"]),
)


@given(
    PLAIN,
    st.sampled_from(["", "http://", "https://", "HTTPS://", "www.", "https://www."]),
    HOSTS,
    st.sampled_from(["", "/page", "/a/b_c?d=1#e"]),
    st.sampled_from(["", ".", ", and so on", ")", "]", "!"]),
)
def test_a_link_is_one_with_a_scheme_or_without(
    before: str, start: str, host: str, path: str, after: str
) -> None:
    assert left_out(f"{before} {start}{host}{path}{after}") == []


@given(
    PLAIN,
    st.sampled_from(["", "https://", "www.", "https://old.", "np."]),
    st.sampled_from(["reddit.com/r/eli5", "Reddit.com/r/ExplainLikeImFive"]),
    st.sampled_from(["", "/", "/comments/1/x"]),
    st.sampled_from(["", ".", "!", ", or so", ")", ").", "**", "'"]),
)
def test_links_to_the_forum_itself_are_no_source(
    before: str, start: str, forum: str, path: str, after: str
) -> None:
    url = f"{start}{forum}{path}"
    assert left_out(f"{before} {url}{after}") == UNSOURCED
    assert left_out(LINK, Document("r", "R", "text", url=url)) == OF_ELI5


@given(
    st.sampled_from(
        [
            "e.g. this", "Stop.It burns", "3.5/10", "mills and/or dams", "ada@example.org",
            "a.m./p.m.", "the file mill.py", "1.000.000", "Mr.Smith", "no", "see r/mills",
        ]
    )
)  # fmt: skip
def test_dots_alone_make_no_link(words: str) -> None:
    assert left_out(f"It burns, {words}") == UNSOURCED


NOTHING = st.text(" .,!?'-—…„“«»\u200b", max_size=5).flatmap(
    lambda marks: st.sampled_from(["", "the", "The", "a", "An"]).map(
        lambda a: f"{marks}{a} {marks}"
    )
)


@given(NOTHING, NOTHING)
def test_an_answer_of_which_nothing_is_left_is_none(answer: str, in_training: str) -> None:
    """It is dropped, and where it is the only one, so is the question; nor is it any overlap."""
    train = TrainingOverlap([asked("Who?", in_training, "Rivers")])
    report = FilterReport()
    both = Question(
        "1", "Where is Cove?", "nq", (Document("C", "Cove", "It is on the coast."),),
        (answer, "on the coast"), (Span("C", 0, 19),),
    )  # fmt: skip
    (kept,) = natural_questions_filtered([both, asked("When?", answer, "Dorn")], train, report)
    assert kept.answers == ("on the coast",)
    assert report.left_out == {"no short answer": 1}


@given(st.sampled_from(["€", "42", "ß", "水", "The Who", "A", "+1", "1"]))
def test_an_answer_of_one_sign_is_one(answer: str) -> None:
    kept = list(
        natural_questions_filtered([asked("When?", answer)], TrainingOverlap([]), FilterReport())
    )
    assert bool(kept) == (answer != "A")


def test_usual_lengths_are_percentiles() -> None:
    assert usual_lengths(["x" * length for length in range(101)]) == (5, 95)
    with pytest.raises(ValueError, match="no answer"):
        usual_lengths([])


def test_the_command_looks_at_pages_in_the_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with DocumentIndex(tmp_path / "corpus.db", write=True) as index:
        url = "https://reddit.com/r/explainlikeimfive/comments/1"
        index.add([Document("r", "R", "text", url=url), Document("o", "O", "text")])
    questions = [explained("A" + BEST, Hit("o", "text")), explained("B" + BEST, Hit("r", "text"))]
    records.write(tmp_path / "in.jsonl", questions)
    files = [str(tmp_path / "in.jsonl"), str(tmp_path / "out.jsonl")]
    assert filter_questions.main(["eli5", *files, "--index", str(tmp_path / "corpus.db")]) == 0
    (kept,) = records.read(tmp_path / "out.jsonl", Question, strict=True)
    assert kept.answers[0].startswith("A")
    assert "1 a search result is from r/explainlikeimfive" in capsys.readouterr().out

    gone = explained("C" + BEST, Hit("gone", "text"))
    records.write(tmp_path / "in.jsonl", [*questions, gone])
    assert filter_questions.main(["eli5", *files, "--index", str(tmp_path / "corpus.db")]) == 0
    assert list(records.read(tmp_path / "out.jsonl", Question, strict=True)) == [kept]
    said = capsys.readouterr().err
    assert "2 records read, 1 skipped" in said
    assert f"{files[0]}: field 'documents': question {gone.id!r}: the index has no page" in said
    records.write(tmp_path / "in.jsonl", questions)

    page = Document("o", "O", "text of it")
    like = [RatedAnswer("q", "q", (page,), "x" * n, "O", "text of it", "o") for n in (5, 9)]
    records.write(tmp_path / "like.jsonl", like)
    assert filter_questions.main(["eli5", *files, "--like", str(tmp_path / "like.jsonl")]) == 1
    assert "2 the length of the best answer is not 5 to 9 characters" in capsys.readouterr().out


def test_the_command_compares_with_the_training_set(tmp_path: Path) -> None:
    records.write(tmp_path / "train.jsonl", [asked("When was Alda founded?")])
    records.write(tmp_path / "in.jsonl", [asked("Where?", "there", "Cove"), asked("Who?")])
    files = [str(tmp_path / name) for name in ("in.jsonl", "out.jsonl")]
    train = str(tmp_path / "train.jsonl")
    assert filter_questions.main(["natural_questions", *files, "--train", train]) == 0
    (kept,) = records.read(tmp_path / "out.jsonl", Question, strict=True)
    assert kept.question == "Where?"
    (tmp_path / "link.jsonl").symlink_to("train.jsonl")
    before = [path.read_bytes() for path in (tmp_path / "in.jsonl", tmp_path / "train.jsonl")]
    for out in (files[0], train, str(tmp_path / "link.jsonl"), f"{tmp_path}/x/../in.jsonl"):
        command = ["natural_questions", files[0], out, "--train", train]
        assert filter_questions.main(command) == 1
    assert before == [(tmp_path / name).read_bytes() for name in ("in.jsonl", "train.jsonl")]
    for wrong in ([], ["--train", train, "--shortest", "5"], ["--train", train, "--like", train]):
        with pytest.raises(SystemExit):
            filter_questions.main(["natural_questions", *files, *wrong])
    with pytest.raises(SystemExit):
        filter_questions.main(["eli5", *files, "--like", train, "--longest", "9"])


def test_the_command_compares_pages_of_search_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their titles are in the index; without it nothing could be compared."""
    index = tmp_path / "corpus.db"
    with DocumentIndex(index, write=True) as pages:
        pages.add([Document(name, name, "It was founded in 1812.") for name in ("Alda", "Cove")])

    def found(name: str, place: str, answer: str) -> Question:
        return dataclasses.replace(asked(name, answer, place), documents=(Hit(place, "It was"),))

    questions = [found("Where?", "Cove", "there"), found("Who?", "Alda", "she")]
    records.write(tmp_path / "in.jsonl", questions)
    records.write(tmp_path / "train.jsonl", [found("When?", "Alda", "1812")])
    files = [str(tmp_path / name) for name in ("in.jsonl", "out.jsonl")]
    command = ["natural_questions", *files, "--train", str(tmp_path / "train.jsonl")]
    assert filter_questions.main([*command, "--index", str(index)]) == 0
    (kept,) = records.read(tmp_path / "out.jsonl", Question, strict=True)
    assert kept.question == "Where?"
    assert "1 its page is in the training set" in capsys.readouterr().out
    (tmp_path / "out.jsonl").unlink()
    records.write(tmp_path / "gone.jsonl", [found("Why?", "Gone", "so")])
    assert (
        filter_questions.main([*command, str(tmp_path / "gone.jsonl"), "--index", str(index)]) == 1
    )
    assert (
        "gone.jsonl: field 'documents': question 'Why?': the index has" in capsys.readouterr().err
    )
    assert not (tmp_path / "out.jsonl").exists()
    assert filter_questions.main(command) == 1
    said = capsys.readouterr().err
    assert "question 'When?': the title of its page 'Alda' is in an index" in said
    assert "(--index)" in said
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("empty", ["in.jsonl", "train.jsonl"])
def test_the_command_refuses_a_file_without_questions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], empty: str
) -> None:
    """Without training questions all would be kept, and nobody told."""
    for name in ("in.jsonl", "train.jsonl"):
        records.write(tmp_path / name, [asked(f"Of {name}?", f"in {name}", name)])
    (tmp_path / empty).write_bytes(b'{"id": "1", "question": "\xff"}\n')
    files = [str(tmp_path / name) for name in ("in.jsonl", "out.jsonl")]
    train = str(tmp_path / "train.jsonl")
    assert filter_questions.main(["natural_questions", *files, "--train", train]) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path / empty}: has no usable question" in said
    assert f"{tmp_path / empty}:1: byte " in said
    assert not (tmp_path / "out.jsonl").exists()
