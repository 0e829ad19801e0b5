"""FairytaleQA: questions about stories, with free-text answers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_pipelines.converters.gold import (
    BadRecord,
    ConversionReport,
    GoldQuestion,
    distinct,
    document_of,
    list_field,
    read_lines,
    text_field,
    with_first,
)
from data_pipelines.converters.sentences import find_answer
from data_pipelines.converters.titles import readable
from gophercite.documents import Document

_ANSWER_FIELDS = tuple(f"answer{number}" for number in range(1, 7))


def convert_fairytaleqa(path: Path, report: ConversionReport) -> Iterator[GoldQuestion]:
    """Yields each question with the section of the story that answers it.

    Sections are documents, titled with the story and their number; their hard line breaks become
    spaces. The first answer is the claim. It has a span if the data set calls it explicit and a
    section contains its words, or one of its sentences contains most of them
    (`sentences.find_answer`). The sections of a story are one group.

    Args:
      path: `.jsonl` or `.jsonl.gz`, one story per line.
      report: counts what was left out.
    """
    source = f"fairytaleqa_{path.name.split('.')[0]}"
    for number, story in read_lines(path, report):
        try:
            name, sections = text_field(story, "story"), _sections(story, source)
            questions = list_field(story, "questions")
        except BadRecord as problem:
            report.skip(f"{path}:{number}", str(problem))
            continue
        for index, entry in enumerate(questions):
            with report.skipping(f"{path}:{number}: questions[{index}]"):
                yield _question(entry, sections, f"{name}-{index + 1}", source, name)


def _sections(story: Any, source: str) -> dict[str, Document]:
    name = story["story"].replace("-", " ").capitalize()
    sections = story.get("sections")
    if not isinstance(sections, dict):
        raise BadRecord(f"field 'sections': expected an object, got {sections!r:.40}")
    return {
        key: document_of(source, readable(f"{name}, part {key}"), _unwrapped(text))
        for key, text in sections.items()
        if isinstance(text, str) and text.strip()
    }


def _question(
    asked: Any, sections: dict[str, Document], id: str, source: str, story: str
) -> GoldQuestion:
    question = text_field(asked, "question")
    written = [asked.get(field) for field in _ANSWER_FIELDS]
    answers = distinct([answer for answer in written if isinstance(answer, str)])
    if not answers:
        raise BadRecord("fields 'answer1' to 'answer6' are all empty")
    named_first = text_field(asked, "answer1") if asked.get("answer1") else ""
    first = next(iter(distinct([named_first])), answers[0])
    keys = [key.strip() for key in text_field(asked, "cor_section").split(",")]
    named = [sections[key] for key in keys if key in sections]
    if not named:
        raise BadRecord(f"field 'cor_section': the story has no section {asked['cor_section']!r}")
    explicit = asked.get("ex-or-im1") == "explicit"
    found = [(d, find_answer(d.text, [first]) if explicit else None) for d in named]
    document, place = next(((d, p) for d, p in found if p is not None), (named[0], None))
    span = place[1] if place is not None else None
    group, accepted = f"{source}:{story}", with_first(first, answers)
    return GoldQuestion(id, question, document, group, accepted, span, page=story)


def _unwrapped(text: str) -> str:
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text.replace("\r\n", "\n")).strip()
