"""The JSON-lines records: what is written comes back, and what is wrong is named."""

import collections
import dataclasses
import gzip
import json
import pathlib
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite import evidence, records
from gophercite.documents import Document, normalise_text
from gophercite.evidence import Evidence
from gophercite.records import (
    Comparison,
    Completion,
    Extract,
    FoundDocument,
    Hit,
    LongAnswer,
    Question,
    RatedAnswer,
    RecordError,
    Report,
    Span,
)
from gophercite.storage.json_lines import read_json

DOCUMENT = {"id": "o", "title": "Ormsby", "text": "A town.\nIts lighthouse dates from 1874."}
QUESTION = {
    "id": "q1",
    "question": "When was the lighthouse built?",
    "source": "test",
    "documents": [DOCUMENT, {"id": "i", "snippet": "The Ilse is a river."}],
    "answers": ["1874", "in 1874"],
    "evidence": [{"document": "o", "start": 8, "end": 39}],
    "incorrect_answers": ["in 1902"],
}
ANSWER = {
    "question_id": "q1",
    "question": "When was the lighthouse built?",
    "documents": [DOCUMENT],
    "claim": "In 1874.",
    "title": "Ormsby",
    "quote": "Its lighthouse dates from 1874.",
    "document": "o",
    "plausible": True,
    "supported": True,
    "ratings": [{"rater": "r1", "plausible": True, "comment": "clear"}],
    "model": "m1",
}
COMPARISON = {
    "id": "c1",
    "question": "When was the lighthouse built?",
    "source": "test",
    "responses": [
        [{"claim": "In 1874.", "title": "Ormsby", "quote": "Its lighthouse dates from 1874."}],
        "Nobody knows.",
    ],
    "preferred": 0.0,
    "supported_and_plausible": [True, None],
    "ratings": [{"rater": "r1", "preferred": "first"}],
}
COMPLETION = {"id": "c1", "prompt": "♦Next action\n", "completion": "Search Ormsby"}
KINDS = {
    Document: DOCUMENT,
    Question: QUESTION,
    RatedAnswer: ANSWER,
    Comparison: COMPARISON,
    Completion: COMPLETION,
}


def without(value: dict[str, Any], *names: str, **changes: Any) -> dict[str, Any]:
    return {name: v for name, v in value.items() if name not in names} | changes


def write_lines(path: pathlib.Path, *lines: object) -> pathlib.Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
    return path


# --- what is written comes back ---

names = st.text(min_size=1, max_size=8).map(normalise_text).filter(lambda text: text.strip())
titles = names.map(lambda text: text.replace("\n", " ")).filter(lambda text: text.strip())
documents = st.builds(Document, names, titles, st.text(), st.none() | names) | st.builds(
    lambda document, *pages: dataclasses.replace(
        document, text=document.text + "The end.", page_starts=(0, *sorted(pages))
    ),
    st.builds(Document, names, titles, st.text(), st.none() | names),
    *[st.integers(0, 8)] * 3,
)
hits = st.builds(Hit, names, names)
found = st.builds(FoundDocument, names, titles, st.text(), st.none() | names, st.none(), names)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    sources = draw(
        st.lists(documents | found | hits, max_size=3, unique_by=lambda source: source.id)
    )
    spans = []
    for source in sources:
        if isinstance(source, Document) and source.text:
            start = draw(st.integers(0, len(source.text) - 1))
            spans.append(Span(source.id, start, draw(st.integers(start + 1, len(source.text)))))
    # Normalisation of a part is the part of the normalised text, but for cut combining sequences.
    for span in spans:
        text = next(s.text for s in sources if isinstance(s, Document) and s.id == span.document)
        if normalise_text(text[span.start : span.end]) != text[span.start : span.end]:
            spans.remove(span)
    answers = tuple(draw(st.lists(names, max_size=2)))
    return Question(draw(names), draw(names), draw(names), tuple(sources), answers, tuple(spans))


@settings(deadline=None)
@given(written=st.lists(questions(), unique_by=lambda question: question.id))
@pytest.mark.parametrize("name", ["questions.jsonl", "questions.jsonl.gz"])
def test_what_is_written_comes_back(
    tmp_path_factory: pytest.TempPathFactory, name: str, written: list[Question]
) -> None:
    path = tmp_path_factory.mktemp("records") / name
    assert records.write(path, written) == len(written)
    assert list(records.read(path, Question, strict=True)) == written
    assert [file.name for file in path.parent.iterdir()] == [name]
    first = path.read_bytes()
    records.write(path, written)
    assert path.read_bytes() == first


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_back(tmp_path: pathlib.Path, kind: Any) -> None:
    record = records.from_json(KINDS[kind], kind)
    assert isinstance(record, kind)
    assert records.to_json(record) == KINDS[kind]
    records.write(tmp_path / "r.jsonl", [record])
    assert list(records.read(tmp_path / "r.jsonl", kind, strict=True)) == [record]


def test_a_long_answer_comes_back_with_what_a_judge_reads_of_its_references() -> None:
    told = {"title": "Ormsby", "extract": "Built in 1874.", "domain": "o.org"}
    browsed = {"document": "o", "start": 0, "end": 14, "sha256": "", "url": "http://o.org/a"}
    long = {"answer": "In 1874 [1].", "references": [{**told, **browsed}]}
    value = {**COMPARISON, "responses": [long, "Nobody knows."]}
    response = records.from_json(value, Comparison).responses[0]
    extract = Extract("Ormsby", "Built in 1874.", "o.org", "http://o.org/a")
    assert response == LongAnswer("In 1874 [1].", (extract,))
    again = records.to_json(records.from_json(value, Comparison))["responses"][0]
    assert again["references"] == [{**told, "url": "http://o.org/a"}]
    for broken, named in (
        ({"references": []}, r"responses\[0\]\.answer"),
        ({"answer": "a", "references": [{"title": "t"}]}, r"references\[0\]\.extract"),
        ({"answer": "a", "refrences": []}, "did you mean 'references'"),
    ):
        with pytest.raises(records.RecordError, match=named):
            records.from_json({**value, "responses": [broken, "b"]}, Comparison)


def test_fields_become_types() -> None:
    question = records.from_json(QUESTION, Question)
    assert question.documents == (Document(**DOCUMENT), Hit("i", "The Ilse is a river."))
    span = question.evidence[0]
    assert Document(**DOCUMENT).text[span.start : span.end] == "Its lighthouse dates from 1874."
    answer = records.from_json(without(ANSWER, "plausible", "ratings", supported=None), RatedAnswer)
    assert (answer.plausible, answer.supported, answer.ratings) == (None, None, ())


def test_responses_are_evidence_or_texts() -> None:
    comparison = records.from_json(without(COMPARISON, "preferred"), Comparison)
    triple = Evidence("In 1874.", "Ormsby", "Its lighthouse dates from 1874.")
    assert comparison.responses == ((triple,), "Nobody knows.")
    assert comparison.preferred is None
    assert comparison.supported_and_plausible == (True, None)


def test_a_failed_write_leaves_the_file_as_it_was(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "r.jsonl"
    records.write(path, [Document(**DOCUMENT)])
    bad = records.from_json(ANSWER, RatedAnswer)
    bad = dataclasses.replace(bad, ratings=({"rater": "r", "score": float("nan")},))
    with pytest.raises(ValueError, match="JSON compliant"):
        records.write(path, [Document(**DOCUMENT), bad])
    assert list(records.read(path, Document)) == [Document(**DOCUMENT)]
    assert list(tmp_path.iterdir()) == [path]


# --- texts are normalised, and offsets move along ---


def test_offsets_follow_normalisation() -> None:
    written = "\ufeffOne.\r\nCafe\u0301 Fenwick.\r\n"
    start = written.index("Cafe")
    value = without(
        QUESTION,
        documents=[without(DOCUMENT, text=written)],
        evidence=[{"document": "o", "start": start, "end": start + len("Cafe\u0301 Fenwick.")}],
    )
    question = records.from_json(value, Question)
    source, span = question.documents[0], question.evidence[0]
    assert isinstance(source, Document)
    assert source.text[span.start : span.end] == "Café Fenwick."
    value["evidence"] = [{"document": "o", "start": start, "end": start + 4}]
    with pytest.raises(RecordError, match=r"evidence\[0\]\.start.*normalisation joins"):
        records.from_json(value, Question)


# --- what is wrong is named ---


def test_a_field_nested_nearly_too_deeply_is_named_like_any_other() -> None:
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(RecordError, match="'id': expected a string, got the list nested too deep"):
        records.from_json(without(DOCUMENT, id=value), Document)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Document, without(DOCUMENT, "title"), "field 'title': is missing: expected a string"),
        (Document, without(DOCUMENT, title=" "), "field 'title': is empty"),
        (Document, without(DOCUMENT, id=17), "field 'id': expected a string, got the number 17"),
        (Document, without(DOCUMENT, text=None), "field 'text': is missing"),
        (Document, without(DOCUMENT, text=["a"]), 'expected a string, got the list ["a"]'),
        (Document, without(DOCUMENT, "title", tilte="x"), "'tilte': is unknown; did you mean 'tit"),
        (Document, without(DOCUMENT, retrieved_at="today"), "ISO 8601"),
        (Document, [], "expected an object, got the list []"),
        (Document, None, "expected an object, got null"),
        (Question, without(QUESTION, "answers", answer=["x"]), "did you mean 'answers'?"),
        (Question, without(QUESTION, answers="1874"), "'answers': expected a list, got the string"),
        (Question, without(QUESTION, answers=["a", 3]), "'answers[1]': expected some text, got"),
        # A space of no width is no text.
        (Question, without(QUESTION, answers=["a", "\u200b"]), "'answers[1]': expected some text"),
        (Question, without(QUESTION, "documents"), "'documents': is missing: expected a list"),
        (
            Question,
            without(QUESTION, documents=[DOCUMENT, without(DOCUMENT, "text", id="p")]),
            "field 'documents[1].text': is missing",
        ),
        (
            Question,
            without(QUESTION, documents=[DOCUMENT, DOCUMENT]),
            "field 'documents[1].id': 'o' is the id of two documents",
        ),
        (
            Question,
            without(QUESTION, evidence=[{"document": "O", "start": 0, "end": 1}]),
            "'evidence[0].document': no document of this record has the id 'O'",
        ),
        (
            Question,
            without(QUESTION, evidence=[{"document": "o", "start": 3, "end": 3}]),
            "'evidence[0].end': expected 0 <= start < end, got 3 and 3",
        ),
        (
            Question,
            without(QUESTION, evidence=[{"document": "o", "start": 0, "end": 40}]),
            "'evidence[0].end': 40 is beyond the end of the text, which has 39 characters",
        ),
        (
            Question,
            without(QUESTION, evidence=[{"document": "o", "start": True, "end": 4}]),
            "'evidence[0].start': expected a whole number, got true",
        ),
        (
            RatedAnswer,
            without(ANSWER, plausible="yes"),
            "expected true, false or null, got the str",
        ),
        (RatedAnswer, without(ANSWER, "plausible", plausable=True), "did you mean 'plausible'?"),
        (
            RatedAnswer,
            without(ANSWER, claim="a %< b"),
            "'claim': holds the reserved mark '%<' at character 2",
        ),
        (RatedAnswer, without(ANSWER, document="p"), "no document of this record has the id 'p'"),
        (RatedAnswer, without(ANSWER, title="Ormsbey"), "document 'o' has the title 'Ormsby'"),
        (RatedAnswer, without(ANSWER, quote="in 1875"), "is not verbatim in document 'o'"),
        (RatedAnswer, without(ANSWER, ratings=[{}]), "'ratings[0].rater': is missing"),
        (Comparison, without(COMPARISON, responses=["a"]), "'responses': expected a list of two"),
        (Comparison, without(COMPARISON, responses=["a", " "]), "'responses[1]': expected a text"),
        (Comparison, without(COMPARISON, responses=["a", []]), "'responses[1]': expected a text"),
        (
            Comparison,
            without(COMPARISON, responses=["a", [{"claim": "b", "title": "T"}]]),
            "'responses[1][0].quote': is missing",
        ),
        (
            Comparison,
            without(COMPARISON, responses=["a", [{"claim": "b", "title": "T", "quote": "]%"}]]),
            "'responses[1][0].quote': holds the reserved mark ']%' at character 0",
        ),
        (
            Comparison,
            without(COMPARISON, preferred=1.5),
            "'preferred': expected a number from 0 to 1",
        ),
        (Comparison, without(COMPARISON, preferred=True), "'preferred': expected a number"),
        (
            Comparison,
            without(COMPARISON, supported_and_plausible=[True, 1]),
            "'supported_and_plausible[1]': expected true, false or null, got the number 1",
        ),
    ],
)
def test_bad_fields_are_named(kind: Any, value: Any, message: str, tmp_path: pathlib.Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", KINDS[kind], value)
    with pytest.raises(RecordError) as raised:
        list(records.read(path, kind, strict=True))
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"{path}:2: ")
    assert (raised.value.path, raised.value.line) == (path, 2)
    report = Report()
    assert len(list(records.read(path, kind, report=report))) == 1
    assert (report.read, report.skipped) == (1, 1)
    assert str(report.errors[0]) == str(raised.value)


def test_what_is_rated_unsupported_need_not_be_verbatim() -> None:
    value = without(ANSWER, quote="in 1875", supported=False)
    assert records.from_json(value, RatedAnswer).quote == "in 1875"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "is not JSON: Expecting property name"),
        (b"\xff\xfe{}", "byte 1 is not UTF-8"),
        (b'{"id": "\xc3"}', "byte 9 is not UTF-8"),
        (b'{"id": NaN}', "NaN is not a JSON number"),
        (b'{"id": -Infinity}', "-Infinity is not a JSON number"),
        (b'{"id": 1e999}', "1e999 is too large for a number"),
        (b'{"id": ' + b"9" * 5000 + b"}", "can't be read as JSON"),
        (b"[" * 200_000, "is nested too deeply"),
        (b'{"id": "a", "title": "t", "text": "t"} x', "Extra data"),
        (b"\x00", "is not JSON"),
    ],
)
def test_bad_lines_are_named_and_left_out(
    tmp_path: pathlib.Path, line: bytes, message: str
) -> None:
    path = tmp_path / "r.jsonl"
    good = json.dumps(DOCUMENT).encode()
    path.write_bytes(
        b"\xef\xbb\xbf" + good + b"\n\n" + line + b"\r\n" + good.replace(b'"o"', b'"p"')
    )
    report = Report()
    found = list(records.read(path, Document, report=report))
    assert [document.id for document in found] == ["o", "p"]
    assert (report.read, report.skipped) == (2, 1)
    assert report.errors[0].line == 3
    assert message in str(report)


@settings(deadline=None)
@given(content=st.binary(max_size=200))
@pytest.mark.parametrize("kind", KINDS)
def test_any_bytes_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, kind: Any, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("records") / "r.jsonl"
    path.write_bytes(content)
    report = Report()
    found = list(records.read(path, kind, report=report))
    assert len(found) == report.read == 0
    bad = sum(1 for line in content.split(b"\n") if line.strip())
    assert report.skipped == (1 if "is UTF-16" in str(report) else bad)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(data=st.data(), kind=st.sampled_from(list(KINDS)))
def test_any_value_in_any_field_is_taken_or_named(data: st.DataObject, kind: Any) -> None:
    name = data.draw(st.sampled_from(list(KINDS[kind])))
    value = without(KINDS[kind], **{name: data.draw(json_values)})
    try:
        record = records.from_json(value, kind)
    except RecordError:
        return
    assert records.from_json(records.to_json(record), kind) == record


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_one_error(tmp_path: pathlib.Path, encoding: str) -> None:
    path = tmp_path / "documents.jsonl"
    path.write_bytes((json.dumps(DOCUMENT) + "\n").encode(encoding) * 3)
    report = Report()
    assert not list(records.read(path, Document, report=report))
    problem = f"{path}:1: is UTF-16, but must be UTF-8: `iconv -f UTF-16 -t UTF-8 FILE` converts it"
    assert list(map(str, report.errors)) == [problem]
    with pytest.raises(RecordError, match="is UTF-16, but must be UTF-8"):
        read_json(path)


def test_a_line_of_100_megabytes_is_passed_over(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(b" " * (1 << 20))
        file.write(b"\n" + json.dumps(DOCUMENT).encode())
    report = Report()
    assert [d.id for d in records.read(path, Document, report=report)] == ["o"]
    assert "r.jsonl.gz:1: the line is longer than" in str(report)


def test_a_damaged_compressed_file_stops(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    records.write(path, [Document(str(i), "t", "text") for i in range(1000)])
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(RecordError, match=r"r\.jsonl\.gz:\d+: the compressed file is damaged"):
        list(records.read(path, Document))
    path.write_bytes(b"not gzip")
    with pytest.raises(RecordError, match=r"r\.jsonl\.gz:1: the compressed file is damaged"):
        list(records.read(path, Document))


@pytest.mark.parametrize(
    ("text", "lost", "message"),
    [
        ('{"data": []}', 9, "r.json.gz: the compressed file is damaged"),
        ("[" * 200_000, 0, "r.json.gz: is nested too deeply"),
        ('{\n"data": }', 0, "r.json.gz: is not JSON: Expecting value at character 11"),
    ],
    ids=("damaged", "nested", "no JSON"),
)
def test_a_file_of_one_value_names_what_is_wrong(
    tmp_path: pathlib.Path, text: str, lost: int, message: str
) -> None:
    path = tmp_path / "r.json.gz"
    compressed = gzip.compress(text.encode())
    path.write_bytes(compressed[: len(compressed) - lost])
    with pytest.raises(RecordError) as raised:
        read_json(path)
    assert message in str(raised.value)
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf{"data": [1]}'))
    assert read_json(path) == {"data": [1]}


def test_control_characters_of_strangers_do_not_reach_a_terminal() -> None:
    with pytest.raises(RecordError) as raised:
        records.from_json(without(DOCUMENT, title=["\x9b31m\x1b[2J"]), Document)
    assert str(raised.value).isprintable()


def test_ids_are_unique_in_a_file(tmp_path: pathlib.Path) -> None:
    path = write_lines(tmp_path / "r.jsonl", DOCUMENT, without(DOCUMENT, id="p"), DOCUMENT)
    with pytest.raises(RecordError, match=r":3: field 'id': 'o' is already the id of line 1"):
        list(records.read(path, Document, strict=True))


def test_the_report_counts_unknown_fields_and_keeps_the_first_errors(
    tmp_path: pathlib.Path,
) -> None:
    bad = [{"id": str(index)} for index in range(records.KEPT_ERRORS + 5)]
    path = write_lines(tmp_path / "r.jsonl", without(DOCUMENT, license="CC BY"), *bad)
    report = Report()
    list(records.read(path, Document, report=report))
    assert (report.read, report.skipped) == (1, len(bad))
    assert len(report.errors) == records.KEPT_ERRORS
    assert report.unknown_fields == {"license": 1}
    text = str(report).splitlines()
    assert text[0] == f"1 record read, {len(bad)} skipped"
    assert text[-2:] == [
        "… and 5 more",
        "unknown fields were ignored: 'license' (1)",
    ]


def test_a_report_of_many_unknown_fields_names_the_most_frequent() -> None:
    names = collections.Counter({f"u{number}": 1 + (number < 3) for number in range(500)})
    said = str(Report(read=1, unknown_fields=names)).splitlines()[-1]
    assert "'u0' (2), 'u1' (2), 'u2' (2), " in said
    assert said.endswith(" and 480 more")
    assert "xxx' (1)" in str(Report(unknown_fields=collections.Counter({"x" * 10_000: 1})))[-90:]


def test_a_long_line_takes_little_time() -> None:
    """In quadratic time each of these takes seconds to minutes."""
    many = {f"u{number}": 1 for number in range(40_000)}
    span, number = {"document": "o", "start": 8, "end": 39}, 10_000
    documents = [without(DOCUMENT, id=str(place)) for place in range(number)]
    long = DOCUMENT["text"] + "é" * 100_000
    begun = time.process_time()
    unknown = collections.Counter[str]()
    records.from_json(without(DOCUMENT, **many), Document, unknown)
    assert len(unknown) == len(many)
    asked = without(QUESTION, documents=documents, evidence=[])
    assert len(records.from_json(asked, Question).documents) == number
    asked = without(QUESTION, documents=[without(DOCUMENT, text=long)], evidence=[span] * number)
    assert len(records.from_json(asked, Question).evidence) == number
    with pytest.raises(RecordError, match="no document of this record has the id"):
        records.from_json(
            without(
                ANSWER, documents=[without(DOCUMENT, id="ab" * 20_000)], document="ba" * 20_000
            ),
            RatedAnswer,
        )
    assert time.process_time() - begun < 10


def test_records_hold_what_can_be_written_as_evidence() -> None:
    answer = records.from_json(ANSWER, RatedAnswer)
    triple = evidence.Evidence(answer.claim, answer.title, answer.quote)
    assert evidence.parse(evidence.format(triple)) == (triple,)


@pytest.mark.parametrize("starts", [[1], [0, 99], [0, 5, 4], ["0"], 7, [0, True], [0, 1 << 70]])
def test_places_of_pages_that_are_none_are_named(starts: object) -> None:
    with pytest.raises(RecordError) as caught:
        records.from_json(DOCUMENT | {"page_starts": starts}, Document)
    assert str(caught.value.field).startswith("page_starts")
    good = records.from_json(DOCUMENT | {"page_starts": [0, 8, 8]}, Document)
    assert good.page_starts == (0, 8, 8)
    assert records.to_json(good)["page_starts"] == [0, 8, 8]
    assert records.from_json(DOCUMENT, Document).page_starts == ()


def test_places_of_pages_count_in_the_text_as_it_was_written() -> None:
    value = DOCUMENT | {"text": "cafe\u0301\r\nTwo.", "page_starts": [0, 7]}
    document = records.from_json(value, Document)
    assert document.text[document.page_starts[1] :] == "Two."
