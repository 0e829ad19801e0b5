"""Writes gold questions, documents and comparisons as files of records, one for each split."""

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from data_pipelines.converters.gold import ConversionReport, GoldQuestion
from data_pipelines.converters.sentences import covering
from gophercite import records
from gophercite.documents import Document, normalise_text
from gophercite.evidence import MINIMUM_QUOTE_LENGTH
from gophercite.records import Comparison, Question, RatedAnswer, Span

R = TypeVar("R", Question, Comparison)
WithId = TypeVar("WithId", Question, Comparison, GoldQuestion)

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class ConversionSettings:
    """How gold questions become records.

    Attributes:
      validation: share of the groups (articles, stories) for validation.
      test: share of the groups for testing.
      distractors: number of other documents of the split that are added to the right one.
      quote: what is evidence: the `sentence` that contains the answer, or the whole `passage`.
    """

    validation: float = 0.1
    test: float = 0.1
    distractors: int = 0
    quote: str = "sentence"

    def __post_init__(self) -> None:
        if min(self.validation, self.test) < 0 or self.validation + self.test > 1:
            raise ValueError(
                f"the shares of validation and test are {self.validation} and {self.test}; "
                "each must be 0 or more, and their sum at most 1"
            )
        if self.quote not in ("sentence", "passage"):
            raise ValueError(f"quote is {self.quote!r}; it must be 'sentence' or 'passage'")


def split_of(group: str, settings: ConversionSettings) -> str:
    """Returns the split of a group, which depends only on a hash of its name."""
    digest = hashlib.sha256(group.encode("utf-8", "replace")).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    if place < settings.test:
        return "test"
    return "validation" if place < settings.test + settings.validation else "train"


def write_records(
    out: Path,
    source: str,
    gold: Sequence[GoldQuestion],
    settings: ConversionSettings,
    report: ConversionReport,
) -> None:
    """Writes `documents_SPLIT`, `questions_SPLIT` and `rated_answers_SPLIT` as JSON lines.

    Args:
      out: the folder; created if it is missing.
      source: name of the data set, stored in the questions.
      gold: questions in the order of the source.
      settings: conversion settings.
      report: counts the records in each file, and what was left out.
    """
    out.mkdir(parents=True, exist_ok=True)
    gold = list(_with_new_ids(gold, report))
    for split in SPLITS:
        of_split = [item for item in gold if split_of(item.group, settings) == split]
        documents = {item.document.id: item.document for item in of_split}
        pool = list(documents.values())
        questions, answers = [], []
        for item in of_split:
            shown = _with_distractors(item, pool, settings.distractors)
            if len(shown) <= settings.distractors:
                report.counts["questions with fewer distractors than requested"] += 1
            question, answer = to_records(item, shown, source, settings)
            try:
                questions.append(records.from_json(records.to_json(question), Question))
                if answer is None:
                    report.counts["questions without a sentence that answers them"] += 1
                else:
                    answers.append(records.from_json(records.to_json(answer), RatedAnswer))
            except records.RecordError as problem:
                report.skip(f"question {item.id!r}", str(problem))
        for kind, written in (
            ("documents", pool),
            ("questions", questions),
            ("rated_answers", answers),
        ):
            _write(out, f"{kind}_{split}.jsonl", written, report)


def write_documents(
    out: Path,
    found: Iterable[tuple[str, Document]],
    settings: ConversionSettings,
    report: ConversionReport,
) -> None:
    """Writes `documents_SPLIT` as JSON lines; of equal documents, only one is kept.

    Args:
      out: the folder; created if it is missing.
      found: documents, each with its group.
      settings: the shares of the splits.
      report: counts the records in each file.
    """
    out.mkdir(parents=True, exist_ok=True)
    documents: dict[str, dict[str, Document]] = {split: {} for split in SPLITS}
    for group, document in found:
        documents[split_of(group, settings)].setdefault(document.id, document)
    for split, of_split in documents.items():
        _write(out, f"documents_{split}.jsonl", list(of_split.values()), report)


def write_questions(
    out: Path, questions: Iterable[Question], settings: ConversionSettings, report: ConversionReport
) -> None:
    """Writes `questions_SPLIT`, and `documents_SPLIT` if they have pages, as JSON lines.

    Args:
      out: the folder; created if it is missing.
      questions: in the order of the source; the same question is always in the same split.
      settings: the shares of the splits.
      report: counts the records in each file, and what was left out.
    """
    by_split = _divide(questions, Question, settings, report)
    for split, asked in by_split.items():
        pages = {d.id: d for q in asked for d in q.documents if isinstance(d, Document)}
        _write(out, f"questions_{split}.jsonl", asked, report)
        if pages:
            _write(out, f"documents_{split}.jsonl", list(pages.values()), report)


def write_comparisons(
    out: Path,
    comparisons: Iterable[Comparison],
    settings: ConversionSettings,
    report: ConversionReport,
    groups: Mapping[str, str] | None = None,
) -> None:
    """Writes `comparisons_SPLIT` as JSON lines.

    Args:
      out: the folder; created if it is missing.
      comparisons: comparisons in the order of the source.
      settings: the shares of the splits.
      report: counts the records in each file, and what was left out.
      groups: the group of each comparison, by id; a group stays in one split. None groups by
        question.
    """
    for split, compared in _divide(comparisons, Comparison, settings, report, groups).items():
        _write(out, f"comparisons_{split}.jsonl", compared, report)


def _divide(
    found: Iterable[R],
    kind: type[R],
    settings: ConversionSettings,
    report: ConversionReport,
    groups: Mapping[str, str] | None = None,
) -> dict[str, list[R]]:
    """Returns the valid records of each split, by groups or by the questions' texts."""
    divided: dict[str, list[R]] = {split: [] for split in SPLITS}
    for record in _with_new_ids(found, report):
        try:
            valid = records.from_json(records.to_json(record), kind)
        except records.RecordError as problem:
            report.skip(f"question {record.id!r}", str(problem))
        else:
            group = record.question.lower() if groups is None else groups[record.id]
            divided[split_of(group, settings)].append(valid)
    return divided


def _with_new_ids(found: Iterable[WithId], report: ConversionReport) -> Iterator[WithId]:
    """Yields the first record with each id; later ones are reported and skipped."""
    ids: set[str] = set()
    for record in found:
        id = normalise_text(record.id)  # as it is written
        if id in ids:
            report.skip(
                f"question {record.id!r}",
                "another question has this id; if two files have the same name, rename one",
            )
        else:
            ids.add(id)
            yield record


def _write(
    out: Path, file: str, written: Sequence[records.Record], report: ConversionReport
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    report.counts[file] += records.write(out / file, written)


def to_records(
    item: GoldQuestion, shown: tuple[Document, ...], source: str, settings: ConversionSettings
) -> tuple[Question, RatedAnswer | None]:
    """Returns a gold question as a record, and its Rated-Good answer if the document contains it.

    Args:
      item: the question.
      shown: its documents, in the order of the prompt, including the item's own.
      source: name of the data set.
      settings: determine what is quoted.
    """
    document = item.document
    evidence: tuple[Span, ...] = ()
    answer = None
    if item.span is not None:
        first, last = covering(document.text, item.span)
        if settings.quote == "passage" or last - first < MINIMUM_QUOTE_LENGTH:
            first, last = 0, len(document.text)
        quote = document.text[first:last]
        evidence = (Span(document.id, first, last),)
        answer = RatedAnswer(
            question_id=item.id,
            question=item.question,
            documents=shown,
            claim=item.answers[0],
            title=document.title,
            quote=quote,
            document=document.id,
            plausible=True,
            supported=True,
            model="gold",
        )
    question = Question(
        id=item.id,
        question=item.question,
        source=source,
        documents=shown,
        answers=item.answers,
        evidence=evidence,
    )
    return question, answer


def _with_distractors(
    item: GoldQuestion, pool: Sequence[Document], number: int
) -> tuple[Document, ...]:
    """Returns the question's document among others with different titles, in random order."""
    # As bytes: an id may hold half of a surrogate pair, which is not allowed in a string as seed.
    draw = random.Random(f"distractors/{item.id}".encode("utf-8", "replace"))
    title = item.document.title
    drawn = draw.sample(pool, min(len(pool), 4 * number))  # usually enough, and fast
    chosen = [document for document in drawn if document.title != title][:number]
    if len(chosen) < number:
        others = [each for each in pool if each.title != title and each not in chosen]
        chosen += draw.sample(others, min(len(others), number - len(chosen)))
    shown = [item.document, *chosen]
    draw.shuffle(shown)
    return tuple(shown)
