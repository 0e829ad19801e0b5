"""Converters: exact spans, titles, disjoint splits, and what becomes of bad records.

The last tests read public data from `../shared/data`, next to the repository, where it is there;
all that they show is tested on small files written here, too.
"""

import gzip
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_pipelines import convert
from data_pipelines.converters import titles
from data_pipelines.converters.gold import BadRecord, ConversionReport, normalised_span
from data_pipelines.converters.sentences import covering, find_answer, find_verbatim
from data_pipelines.converters.squad import convert_squad
from data_pipelines.converters.textbooks import pages
from data_pipelines.converters.writing import ConversionSettings, split_of, write_records
from gophercite import evidence, records
from gophercite.documents import normalise_text
from tests.long_forms import LONG

SHARED = Path(__file__).parents[2] / "../shared/data"

PASSAGE = "Mr. Kesh ran the mill. It burned in 1812. Nobody rebuilt it, not even the mayor."


def _squad(articles):
    return {
        "data": [
            {"title": title, "paragraphs": [{"context": text, "qas": qas} for text, qas in texts]}
            for title, texts in articles
        ]
    }


def _asked(id, question, *answers):
    return {
        "id": id,
        "question": question,
        "answers": [{"text": text, "answer_start": start} for text, start in answers],
    }


def _run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["convert", *map(str, arguments)])
    return convert.main()


def _read(folder, kind, name):
    return [
        record
        for split in ("train", "validation", "test")
        for record in records.read(folder / f"{name}_{split}.jsonl", kind, strict=True)
    ]


def test_squad_claims_the_answer_and_quotes_its_sentence(tmp_path, monkeypatch, capsys):
    source = tmp_path / "mills.json"
    asked = _asked("q", "When did it burn?", ("in 1812", 33), ("1812", 36), ("1812", 36))
    source.write_text(json.dumps(_squad([("Old_Mills", [(PASSAGE, [asked])])])))
    assert _run(monkeypatch, "squad", source, tmp_path / "out") == 0
    (answer,) = _read(tmp_path / "out", records.RatedAnswer, "rated_answers")
    assert (answer.claim, answer.quote) == ("1812", "It burned in 1812.")
    assert answer.title == "Old Mills"
    assert (answer.plausible, answer.supported) == (True, True)
    (question,) = _read(tmp_path / "out", records.Question, "questions")
    assert question.answers == ("1812", "in 1812")
    (span,) = question.evidence
    assert PASSAGE[span.start : span.end] == "It burned in 1812."
    assert "rated_answers_" in capsys.readouterr().out


def test_a_whole_passage_is_quoted_when_asked_for(tmp_path, monkeypatch):
    source = tmp_path / "mills.json"
    asked = _asked("q", "When did it burn?", ("1812", 36))
    source.write_text(json.dumps(_squad([("Mills", [(PASSAGE, [asked])])])))
    assert _run(monkeypatch, "squad", source, tmp_path / "out", "--quote", "passage") == 0
    (answer,) = _read(tmp_path / "out", records.RatedAnswer, "rated_answers")
    assert answer.quote == PASSAGE


def test_bad_records_are_named_counted_and_skipped(tmp_path):
    good = _asked("good", "When did it burn?", ("1812", 36))
    faulty = [
        _asked("offset", "When?", ("1812", 2)),
        _asked("none", "When?"),
        {"id": "mute", "answers": [{"text": "1812", "answer_start": 36}]},
        _asked("float", "When?", ("1812", 36.0)),
        "no object",
    ]
    data = _squad([("Mills", [(PASSAGE, [good, *faulty])]), ("Empty", [])])
    data["data"] += [{"paragraphs": []}, {"title": "Odd", "paragraphs": [{"qas": []}]}]
    path = tmp_path / "faulty.json"
    path.write_text(json.dumps(data))
    report = ConversionReport()
    assert [question.id for question in convert_squad(path, report)] == ["good"]
    assert report.counts["bad records skipped"] == 7
    named = "\n".join(report.named_problems())
    for index in range(1, 6):
        assert f"{path}: data[0].paragraphs[0].qas[{index}]" in named
    assert "data[2]" in named
    assert "data[3].paragraphs[0]: field 'context'" in named
    assert "'1812' is not at offset 2" in named


def test_a_file_of_another_kind_is_refused_in_one_line(tmp_path, monkeypatch, capsys):
    path = tmp_path / "list.json"
    path.write_text('{"rows": []}')
    assert _run(monkeypatch, "squad", path, tmp_path / "out") == 1
    assert _run(monkeypatch, "squad", tmp_path / "absent.json", tmp_path / "out") == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 2
    assert "list.json is not SQuAD JSON: field 'data'" in errors[0]
    assert "absent.json" in errors[1]


def test_articles_never_cross_splits_and_splits_repeat(tmp_path):
    articles = [
        (f"Mill {number}", [(f"{PASSAGE} {number}-{part}.", []) for part in range(3)])
        for number in range(60)
    ]
    for title, paragraphs in articles:
        for text, qas in paragraphs:
            qas.append(_asked(f"{title}:{text[-4:]}", "When did it burn?", ("1812", 36)))
    path = tmp_path / "mills.json"
    path.write_text(json.dumps(_squad(articles)))
    settings = ConversionSettings(validation=0.25, test=0.25, distractors=2)
    seen = []
    for run in ("one", "two"):
        gold = list(convert_squad(path, ConversionReport()))
        write_records(tmp_path / run, "squad", gold, settings, ConversionReport())
        seen.append({p.name: p.read_bytes() for p in (tmp_path / run).iterdir()})
    assert seen[0] == seen[1]

    owners = {}
    for split in ("train", "validation", "test"):
        file = tmp_path / "one" / f"rated_answers_{split}.jsonl"
        answers = list(records.read(file, records.RatedAnswer, strict=True))
        assert answers
        for answer in answers:
            shown = [document.title for document in answer.documents]
            assert len(shown) == len(set(shown)) == 3
            for title in shown:
                assert owners.setdefault(title, split) == split


def test_distractors_are_found_among_many_pages_of_the_same_title(tmp_path, monkeypatch, capsys):
    long = [(f"{PASSAGE} {n}.", [_asked(f"q{n}", "When?", ("1812", 36))]) for n in range(60)]
    few = [(title, [(f"{title} is a port.", [_asked(title, "What?", ("a port", 8))])])
           for title in ("Alda", "Kesh")]  # fmt: skip
    path = tmp_path / "mills.json"
    path.write_text(json.dumps(_squad([("Mills", long), *few])))
    train = ("--validation", 0, "--test", 0)
    assert _run(monkeypatch, "squad", path, tmp_path / "out", "--distractors", 2, *train) == 0
    shown = {q.id: [d.title for d in q.documents]
             for q in _read(tmp_path / "out", records.Question, "questions")}  # fmt: skip
    assert all(sorted(shown[f"q{n}"]) == ["Alda", "Kesh", "Mills"] for n in range(60))
    assert all(shown[title].count(title) == 1 and len(shown[title]) == 3 for title, _ in few)
    assert "fewer distractors" not in capsys.readouterr().out
    assert _run(monkeypatch, "squad", path, tmp_path / "more", "--distractors", 3, *train) == 0
    assert "60 questions with fewer distractors than requested" in capsys.readouterr().out


@given(st.text(min_size=1), st.floats(0, 0.5), st.floats(0, 0.5))
def test_every_group_has_one_split(group, validation, test):
    settings = ConversionSettings(validation, test)
    assert split_of(group, settings) == split_of(group, settings)
    assert split_of(group, ConversionSettings(0, 0)) == "train"
    assert split_of(group, ConversionSettings(0, 1)) == "test"


def test_titles_are_minted_where_the_source_has_one_for_all(tmp_path):
    comments = [
        "Works as advertised. The handle broke after a week or two of use.",
        "Works as advertised. The lid fits.",
        "I rented a car and it was fine, mostly, until the second day of the trip",
    ]
    data = _squad(
        [(f"Reviews_{n}", [(text, [_asked(f"q{n}", "What?", (text[:5], 0))])])
         for n, text in enumerate(comments)]
    )  # fmt: skip
    path = tmp_path / "reviews.json"
    path.write_text(json.dumps(data))
    found = [question.document.title for question in convert_squad(path, ConversionReport())]
    assert found[0] == "Works as advertised"
    assert found[1].startswith("Works as advertised. The")
    assert found[2] == "I rented a car and it was"


@given(st.lists(st.text(), max_size=20))
def test_minted_titles_are_unique_and_usable(texts):
    minted = titles.mint_titles(texts + texts[:3])
    assert len(set(minted)) == len(minted)
    for title in minted:
        assert title.strip()
        assert not evidence.holds_mark(title)
        assert "\n" not in title


def test_titles_that_differ_by_a_number_say_nothing():
    assert titles.says_nothing({"Amazon_Reviews_20", "Amazon_Reviews_3"}, 2)
    assert titles.says_nothing({"Comments"}, 5)
    assert not titles.says_nothing({"Comments"}, 1)
    assert not titles.says_nothing({"Andes", "Acronym"}, 2)


@given(st.text(), st.text(min_size=1), st.text())
def test_spans_follow_the_text_through_normalisation(before, answer, after):
    text = before + answer + after
    try:
        first, last = normalised_span(text, len(before), answer)
    except BadRecord:
        return  # the answer begins or ends inside a composed character
    assert normalise_text(text)[first:last] == normalise_text(answer)


def test_spans_behind_decomposed_characters_are_moved():
    text = "Cafe\u0301 and\r\nbar in Ko\u0308ln"
    assert normalised_span(text, text.index("bar"), "bar") == (9, 12)
    with pytest.raises(BadRecord, match="not at offset 3"):
        normalised_span(text, 3, "bar")


def test_answers_are_found_as_whole_words_first():
    assert find_verbatim("Built in 2010, for 10 men.", "10") == (19, 21)
    assert find_verbatim("Built in 2010.", "10") is None
    assert find_verbatim("Built in 2010.", "\u200b") is None
    assert find_answer(PASSAGE, ["the miller", "Kesh"]) == ("Kesh", (4, 8))
    found = find_answer(PASSAGE, ["nobody ever rebuilt it"])
    assert found is not None
    assert PASSAGE[slice(*found[1])] == "Nobody rebuilt it, not even the mayor."
    assert find_answer(PASSAGE, ["a fire brigade from Alda"]) is None


def test_an_answer_over_two_sentences_is_covered_by_both():
    start = PASSAGE.index("1812. Nobody")
    first, last = covering(PASSAGE, (start, start + 12))
    assert PASSAGE[first:last].startswith("It burned")
    assert PASSAGE[first:last].endswith("mayor.")


def test_natural_questions_take_the_annotated_passage(tmp_path, monkeypatch, capsys):
    gold = {"title": "Old mills", "long_answer": PASSAGE, "short_answers": ["1812"]}
    lines = [
        {"question": "when did the mill burn", "answers": ["in 1812"], "nq_annotated_gold": gold},
        {"question": "who", "answers": [], "nq_annotated_gold": {"title": "x"}},
    ]
    path = tmp_path / "nq.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{broken\n")
    assert _run(monkeypatch, "natural_questions", path, tmp_path / "out") == 0
    (answer,) = _read(tmp_path / "out", records.RatedAnswer, "rated_answers")
    assert (answer.claim, answer.quote) == ("1812", "It burned in 1812.")
    captured = capsys.readouterr()
    assert "2 bad records skipped" in captured.out
    assert f"{path}:2: field 'long_answer'" in captured.err
    assert f"{path}:3" in captured.err
    assert _run(monkeypatch, "natural_questions", path, tmp_path / "strict", "--strict") == 1
    assert capsys.readouterr().err.startswith(f"convert: {path}:2: field 'long_answer'")
    assert not (tmp_path / "strict").exists()


def test_fairy_tales_take_the_section_that_says_it(tmp_path, monkeypatch, capsys):
    asked = {"question": "When did the mill burn?", "cor_section": "1,2", "answer1": "in 1812"}
    story = {
        "story": "the-old-mill",
        "sections": {"1": "Once there\nwas a mill.", "2": PASSAGE},
        "questions": [
            {**asked, "ex-or-im1": "explicit"},
            {**asked, "ex-or-im1": "implicit", "question": "Why did nobody care?"},
            {**asked, "ex-or-im1": "explicit", "cor_section": "7"},
        ],
    }
    path = tmp_path / "tales.jsonl"
    path.write_text(json.dumps(story))
    assert _run(monkeypatch, "fairytaleqa", path, tmp_path / "out") == 0
    (answer,) = _read(tmp_path / "out", records.RatedAnswer, "rated_answers")
    assert answer.title == "The old mill, part 2"
    assert answer.quote == "It burned in 1812."
    questions = _read(tmp_path / "out", records.Question, "questions")
    assert [len(question.evidence) for question in questions] == [1, 0]
    assert questions[1].documents[0].text == "Once there was a mill."
    captured = capsys.readouterr()
    assert "1 questions without a sentence that answers them" in captured.out
    assert "has no section '7'" in captured.err


def _section(title, text, book="old-mills"):
    return json.dumps({"title": title, "book": book, "text": text})


def test_textbooks_become_pages_of_whole_paragraphs(tmp_path, monkeypatch, capsys):
    paragraphs = [f"Paragraph {n}. " + "The mill stood by the river. " * 8 for n in range(9)]
    long = " ".join(f"Mill {n} burned in 1812." for n in range(200))
    one = tmp_path / "one.jsonl"
    one.write_text(
        "\n".join(
            [
                _section("Introduction", paragraphs[0]),
                _section("Wheels", "\n".join(paragraphs)),
                '{"title": "No text", "book": "old-mills"}',
            ]
        )
    )
    two = tmp_path / "two.jsonl.gz"
    two.write_bytes(
        gzip.compress(
            "\n".join(
                [_section("Introduction", "Rivers.", "rivers"), _section("Fires", long)]
            ).encode()
        )
    )
    assert _run(monkeypatch, "textbooks", one, two, tmp_path / "out") == 0
    captured = capsys.readouterr()
    assert "1 bad records skipped" in captured.out
    assert f"{one}:3: field 'text'" in captured.err
    documents = _read(tmp_path / "out", records.Document, "documents")
    by_title = {title: [d.text for d in documents if d.title == title]
                for title in {d.title for d in documents}}  # fmt: skip
    assert set(by_title) == {"Old mills: Introduction", "Rivers: Introduction", "Wheels", "Fires"}
    assert [part for page in by_title["Wheels"] for part in page.split("\n")] == [
        paragraph.strip() for paragraph in paragraphs
    ]
    assert " ".join(by_title["Fires"]) == long
    for of_section in by_title.values():
        assert all(len(page) <= 1000 for page in of_section)
    assert len(by_title["Fires"]) < len(long) / 900


def test_sections_of_textbooks_never_cross_splits(tmp_path, monkeypatch):
    source = tmp_path / "books.jsonl"
    text = "\n".join("The mill stood by the river. " * 25 for _ in range(3))
    source.write_text("\n".join(_section(f"Part {n}", f"{n}. {text}") for n in range(60)))
    assert _run(monkeypatch, "textbooks", source, tmp_path / "out", "--validation", 0.3) == 0
    owners = {}
    for split in ("train", "validation", "test"):
        file = tmp_path / "out" / f"documents_{split}.jsonl"
        for document in records.read(file, records.Document, strict=True):
            assert owners.setdefault(document.title, split) == split
    assert set(owners.values()) == {"train", "validation", "test"}


def test_textbooks_have_nothing_to_quote(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        _run(monkeypatch, "textbooks", "in.jsonl", tmp_path, "--quote", "passage")
    assert "textbooks has no questions" in capsys.readouterr().err


def test_several_files_are_converted_into_one_folder(tmp_path, monkeypatch):
    for name, text in (("a", PASSAGE), ("b", PASSAGE + " Still.")):
        data = _squad([(f"Mill {name}", [(text, [_asked(name, "When?", ("1812", 36))])])])
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    files = (tmp_path / "a.json", tmp_path / "b.json")
    assert _run(monkeypatch, "squad", *files, tmp_path / "out") == 0
    asked = _read(tmp_path / "out", records.Question, "questions")
    assert {question.id for question in asked} == {"a", "b"}


def _mills(format, name):
    """A file of forty mills with two passages each, in one of three formats."""
    names = [f"{a}{b}" for a in "ABCD" for b in "abcdefghij"]
    texts = [[f"{PASSAGE} {n}-{part}-{name}." for part in range(2)] for n in range(40)]
    if format == "squad":
        return json.dumps(
            _squad(
                [(f"Mill {name}", [(text, [_asked(text, "When?", ("1812", 36))]) for text in two])
                 for name, two in zip(names, texts, strict=True)]
            )
        )  # fmt: skip
    if format == "fairytaleqa":
        asked = {"question": "When?", "answer1": "1812", "ex-or-im1": "explicit"}
        stories = [
            {"story": f"mill-{n}", "sections": {f"{name}{i}": text for i, text in enumerate(parts)},
             "questions": [{**asked, "cor_section": f"{name}{i}"} for i in range(2)]}
            for n, parts in enumerate(texts)
        ]  # fmt: skip
        return "\n".join(map(json.dumps, stories))
    gold = [
        {"title": f"Mill {names[n]}", "long_answer": text, "short_answers": ["1812"]}
        for n, passages in enumerate(texts)
        for text in passages
    ]
    lines = ({"question": "When?", "answers": [], "nq_annotated_gold": one} for one in gold)
    return "\n".join(map(json.dumps, lines))


@pytest.mark.parametrize("format", ["squad", "natural_questions", "fairytaleqa"])
def test_a_page_of_two_files_is_in_one_split(tmp_path, monkeypatch, format):
    (tmp_path / "one.x").write_text(_mills(format, "a"))
    (tmp_path / "two.x").write_text(_mills(format, "b"))
    files, shares = (tmp_path / "one.x", tmp_path / "two.x"), ("--validation", 0.3, "--test", 0.3)
    assert _run(monkeypatch, format, *files, tmp_path / "both", *shares) == 0
    assert _run(monkeypatch, format, files[0], tmp_path / "one", *shares) == 0
    owners = {}
    for split in ("train", "validation", "test"):
        name = f"documents_{split}.jsonl"
        both = list(records.read(tmp_path / "both" / name, records.Document, strict=True))
        for document in both:
            assert owners.setdefault(document.title.split(",")[0], split) == split
        # The first file's pages are where they are without the second.
        assert set(records.read(tmp_path / "one" / name, records.Document, strict=True)) <= {*both}
    assert len(owners) == 40
    assert set(owners.values()) == {"train", "validation", "test"}


@pytest.mark.parametrize("one_article", [True, False])
def test_a_paragraph_of_two_files_is_in_one_split(tmp_path, monkeypatch, one_article):
    """Also under another title, and if the first file has one article, split by paragraph."""
    texts = [f"{PASSAGE} {n}." for n in range(40)]
    asked = [(text, [_asked(text, "When?", ("1812", 36))]) for text in texts]
    articles = [("Mills", asked)] if one_article else [(p[0][-4:], [p]) for p in asked]
    (tmp_path / "one.json").write_text(json.dumps(_squad(articles)))
    again = [(text, [_asked(f"{text}2", "When?", ("1812", 36))]) for text in texts]
    (tmp_path / "two.json").write_text(json.dumps(_squad([("Alda", again), ("Kesh", [])])))
    files = (tmp_path / "one.json", tmp_path / "two.json")
    assert _run(monkeypatch, "squad", *files, tmp_path / "out", "--test", 0.3) == 0
    owners = {}
    for split in ("train", "validation", "test"):
        file = tmp_path / "out" / f"documents_{split}.jsonl"
        for document in records.read(file, records.Document, strict=True):
            assert owners.setdefault(document.text, split) == split


def test_an_article_of_two_files_has_each_passage_once(tmp_path, monkeypatch):
    for name, texts in (("one", ("A mill.", "It burned.")), ("two", ("It burned.", "A pond."))):
        asked = [(text, [_asked(f"{name}{text}", "What?", (text[:2], 0))]) for text in texts]
        data = _squad([("Mill", asked), ("Other", [("Kesh.", [])])])
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    files = (tmp_path / "one.json", tmp_path / "two.json")
    assert _run(monkeypatch, "squad", *files, tmp_path / "out", "--articles") == 0
    (article,) = _read(tmp_path / "out", records.Document, "documents")
    assert article.text == "A mill.\n\nIt burned.\n\nA pond."
    answers = _read(tmp_path / "out", records.RatedAnswer, "rated_answers")
    assert [answer.quote for answer in answers] == [
        "A mill.",
        "It burned.",
        "It burned.",
        "A pond.",
    ]


def test_an_id_that_was_given_before_is_named_and_skipped(tmp_path, monkeypatch, capsys):
    """As the ids of two files with the same name are."""
    gold = {"title": "Old mills", "long_answer": PASSAGE, "short_answers": ["1812"]}
    for folder, question in (("a", "When?"), ("b", "In what year?")):
        (tmp_path / folder).mkdir()
        line = {"question": question, "answers": [], "nq_annotated_gold": gold}
        (tmp_path / folder / "nq.jsonl").write_text(json.dumps(line))
    files = (tmp_path / "a/nq.jsonl", tmp_path / "b/nq.jsonl")
    assert _run(monkeypatch, "natural_questions", *files, tmp_path / "out") == 0
    (question,) = _read(tmp_path / "out", records.Question, "questions")
    assert question.question == "When?"
    captured = capsys.readouterr()
    assert "1 bad records skipped" in captured.out
    assert "question 'nq-1': another question has this id" in captured.err
    for folder in ("a", "b"):
        (tmp_path / folder / "open.jsonl").write_text('{"question": "When?", "answer": ["1812"]}')
    files = (tmp_path / "a/open.jsonl", tmp_path / "b/open.jsonl")
    assert _run(monkeypatch, "natural_questions_open", *files, tmp_path / "open") == 0
    assert len(_read(tmp_path / "open", records.Question, "questions")) == 1
    assert "question 'open-1': another question has this id" in capsys.readouterr().err


@given(st.lists(st.text(alphabet="aB1. \n", max_size=400), max_size=12))
def test_pages_have_all_words_in_order(parts):
    text = "\n".join(parts)
    assert " ".join(pages(text)).split() == text.split()


@pytest.mark.parametrize("shares", [(0.7, 0.5), (-0.1, 0.1)])
def test_impossible_shares_are_refused(shares):
    with pytest.raises(ValueError, match="their sum at most 1"):
        ConversionSettings(*shares)


@pytest.mark.parametrize(
    ("format", "file", "questions", "unique_titles"),
    [
        ("squad", "squad/wikipedia.json.gz", 5665, False),
        # In SQuAD's form, like the first, with titles of their own, like the last.
        pytest.param("squad", "squad/shifts_reddit.json.gz", 9803, True, marks=LONG),
        ("natural_questions", "natural_questions/gold_passages.jsonl.gz", 1614, False),
        ("fairytaleqa", "fairytaleqa/val.jsonl.gz", 1025, True),
    ],
)
@pytest.mark.skipif(not SHARED.is_dir(), reason="no public data beside the repository")
def test_public_data_convert_whole(
    tmp_path, monkeypatch, capsys, format, file, questions, unique_titles
):
    assert _run(monkeypatch, format, SHARED / file, tmp_path) == 0
    assert "bad records" not in capsys.readouterr().out
    assert len(_read(tmp_path, records.Question, "questions")) == questions
    answers = _read(tmp_path, records.RatedAnswer, "rated_answers")
    for answer in answers:
        (document,) = answer.documents
        assert isinstance(document, records.Document)
        assert answer.quote in document.text
        if format == "squad":
            assert answer.claim in answer.quote
    documents = _read(tmp_path, records.Document, "documents")
    if unique_titles:
        assert len({document.title for document in documents}) == len(documents)
