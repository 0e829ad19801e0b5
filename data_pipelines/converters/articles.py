"""Joins passages into the articles that they come from."""

import dataclasses
import itertools
from collections.abc import Sequence

from data_pipelines.converters.gold import GoldQuestion, document_of
from gophercite.documents import Document

_BETWEEN = "\n\n"  # an empty line: windows may start after it


def join_passages(gold: Sequence[GoldQuestion]) -> list[GoldQuestion]:
    """Returns the questions with whole articles instead of passages, and with adjusted spans.

    An article consists of the passages with the same group and title, in the order of the source.
    Passages without a question are missing, because converters don't return them.

    Args:
      gold: all questions of a source.
    """
    passages: dict[tuple[str, str], dict[str, Document]] = {}
    for item in gold:
        # By text, because the same passage has different ids in different files.
        passages.setdefault(_article(item), {}).setdefault(item.document.text, item.document)
    pages = {key: _join(list(parts.values())) for key, parts in passages.items()}
    return [_on_page(item, *pages[_article(item)]) for item in gold]


def _article(item: GoldQuestion) -> tuple[str, str]:
    return item.group, item.document.title


def _join(parts: Sequence[Document]) -> tuple[Document, dict[str, int]]:
    """Returns an article, and the offset of each passage in it, by its text."""
    lengths = [len(part.text) + len(_BETWEEN) for part in parts]
    starts = itertools.accumulate(lengths, initial=0)
    source = parts[0].id.rpartition("-")[0]
    page = document_of(source, parts[0].title, _BETWEEN.join(part.text for part in parts))
    return page, {part.text: start for part, start in zip(parts, starts, strict=False)}


def _on_page(item: GoldQuestion, page: Document, starts: dict[str, int]) -> GoldQuestion:
    if item.span is None:
        return dataclasses.replace(item, document=page)
    start = starts[item.document.text]
    first, last = item.span
    return dataclasses.replace(item, document=page, span=(start + first, start + last))
