"""The examples on the pages about text run, and say what they are said to say."""

import json
import pathlib
import re

from gophercite.answering.verification import Verdict, in_documents, verify
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.records import Question, from_json
from gophercite.records.answers import answer_from_json, answer_to_json

DOCS = pathlib.Path(__file__).parents[1] / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_example_of_evidence() -> None:
    (code,) = blocks("evidence.md", "python")
    names: dict[str, object] = {}
    exec(code + "found = evidence.parse(text), evidence.faults(text, [page])", names)
    triple = Evidence("In 1874.", "Ormsby", "Its lighthouse was built in 1874.")
    assert names["found"] == ((triple,), frozenset())


def test_the_example_of_a_question() -> None:
    (line,) = blocks("records.md", "json")
    question = from_json(json.loads(line), Question)
    page, span = question.documents[0], question.evidence[0]
    assert page.text[span.start : span.end] == "Its lighthouse was built in 1874."


def test_the_example_of_an_answer() -> None:
    (page,), (value,) = blocks("ask.md", "text"), blocks("ask.md", "json")
    answer = answer_from_json(json.loads(value))
    (citation,) = answer.citations
    document = Document(citation.document, citation.title, page, citation.url)
    (check,) = verify(answer, in_documents([document], answer))
    assert (check.verdict, check.page_changed) == (Verdict.EXACT, False)
    assert answer_to_json(answer) == json.loads(value)
