"""Builds the prompts for a question: one with all its pages or one per page, cut to fit."""

import collections
import dataclasses
import random
from collections.abc import Iterator, Sequence
from typing import Literal

from gophercite import prompts
from gophercite.documents import Document, Window
from gophercite.few_shot.prompting import FewShotSettings, few_shot_context
from gophercite.records import FoundDocument, Question
from gophercite.retrieval.contexts import (
    Context,
    ContextError,
    ContextSettings,
    Reason,
    SearchResult,
    joint_context,
)
from gophercite.text.counting import counted
from gophercite.vocabularies import Vocabulary


@dataclasses.dataclass(frozen=True)
class PromptSettings:
    """How questions become prompts.

    Attributes:
      prompt_tokens: maximum prompt length; pages are cut to windows that fit. None shows pages in
        full.
      pages: all of a question's pages in one prompt, or each in its own prompt, as in the paper at
        inference (section 2.3).
      contexts: how pages are cut.
      few_shot: put examples before the question, for a base model; needs `prompt_tokens`.
      seed: seed for drawing examples, together with the question's id.
    """

    prompt_tokens: int | None = None
    pages: Literal["together", "each"] = "together"
    contexts: ContextSettings = dataclasses.field(default_factory=ContextSettings)
    few_shot: FewShotSettings | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.prompt_tokens is not None and self.prompt_tokens < 1:
            raise ValueError(f"prompt_tokens is {self.prompt_tokens}: must be at least 1")
        if self.few_shot is not None and self.prompt_tokens is None:
            raise ValueError("few_shot needs prompt_tokens: examples leave less room for pages")
        if self.pages not in ("together", "each"):
            raise ValueError(f"pages is {self.pages!r}: must be 'together' or 'each'")


@dataclasses.dataclass(frozen=True)
class QuestionPrompt:
    """A prompt.

    Attributes:
      index: index of the question among all questions.
      number: index of the prompt among the question's prompts.
      sources: the pages or windows that it shows.
      tokens: its token ids.
    """

    index: int
    number: int
    sources: tuple[Document | Window, ...]
    tokens: tuple[int, ...]

    @property
    def document(self) -> str | None:
        """The id of the page that it shows, if it shows only one."""
        if len(self.sources) != 1:
            return None
        (source,) = self.sources
        return source.document.id if isinstance(source, Window) else source.id


@dataclasses.dataclass
class PromptReport:
    """What became of the questions.

    Attributes:
      prompts: number of prompts built.
      cut: number of prompts that show some page only in part.
      pages_left_out: number of pages in no prompt, by reason.
      declined: index and reason, for questions that can't be asked or answered.
    """

    prompts: int = 0
    cut: int = 0
    pages_left_out: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    declined: dict[int, str] = dataclasses.field(default_factory=dict)

    def add(self, block: "PromptReport", first: int) -> None:
        """Adds the report on a block of the questions.

        Args:
          block: its indices are relative to the block.
          first: the index of the block's first question.
        """
        self.prompts += block.prompts
        self.cut += block.cut
        self.pages_left_out += block.pages_left_out
        self.declined |= {first + index: why for index, why in block.declined.items()}

    def __str__(self) -> str:
        """Returns a line on the prompts, and one for each reason to leave out or decline."""
        lines = [f"{counted(self.prompts, 'prompt')}, {self.cut} of them with shortened pages"]
        for reason, count in self.pages_left_out.most_common():
            lines.append(f"{counted(count, 'page')} left out: {reason}")
        for reason, count in collections.Counter(self.declined.values()).most_common():
            lines.append(f"{counted(count, 'question')} declined: {reason}")
        return "\n".join(lines)


def pages_of(question: Question) -> list[Document]:
    """Returns a question's pages.

    Raises:
      ValueError: when a document is given by its snippet only: there is no page to show.
    """
    pages = []
    for source in question.documents:
        if not isinstance(source, Document):
            raise ValueError(
                f"question {question.id!r}: document {source.id!r} has a snippet but no text"
            )
        pages.append(source)
    return pages


def encode_question(vocabulary: Vocabulary, question: Question) -> list[int]:
    """Returns the token ids of a question's prompt, with all its pages in full, in rank order.

    Raises:
      ValueError: as `pages_of`.
    """
    return prompts.encode_prompt(vocabulary, question.question, pages_of(question))


def question_prompts(
    questions: Sequence[Question],
    vocabulary: Vocabulary,
    settings: PromptSettings,
    report: PromptReport,
) -> list[QuestionPrompt]:
    """Returns the prompts of all questions, in their order and the pages' rank order.

    A page that fits is shown in full, a longer one as a window around its snippet, or from its
    start if it has none. A question is declined if none of its pages can be shown.

    Args:
      questions: each with its pages.
      vocabulary: the model's.
      settings: how prompts are built.
      report: counts what was cut, left out and declined.

    Raises:
      ValueError: as `pages_of`.
    """
    built: list[QuestionPrompt] = []
    for index, question in enumerate(questions):
        reason = Reason.NO_PAGE if not question.documents else None
        before = len(built)
        groups = _groups(pages_of(question), settings)
        for number, pages in enumerate(groups):
            try:
                context = _context(question, pages, number, vocabulary, settings)
            except ContextError as error:
                reason = reason or error.reason
                report.pages_left_out.update([error.reason.value] * len(pages))
                continue
            report.pages_left_out.update(why.value for _, why in context.left_out)
            report.cut += any(w.text != w.document.text for w in context.windows)
            built.append(QuestionPrompt(index, number, context.windows, context.tokens))
        if len(built) == before and reason is not None:
            report.declined[index] = reason.value
    report.prompts += len(built)
    return built


def _groups(pages: list[Document], settings: PromptSettings) -> list[list[Document]]:
    if settings.pages == "each":
        return [[page] for page in pages]
    return [pages] if pages else []  # a question without pages has no prompt


def _context(
    question: Question,
    pages: Sequence[Document],
    number: int,
    vocabulary: Vocabulary,
    settings: PromptSettings,
) -> Context:
    limit = settings.prompt_tokens
    if settings.few_shot is not None and limit is not None:
        draw = random.Random(f"few-shot/{settings.seed}/{question.id}/{number}")
        return few_shot_context(
            question.question, list(_results(pages)), limit, vocabulary, settings.few_shot, draw,
            settings.contexts,
        )  # fmt: skip
    whole = tuple(Window(page, 0, len(page.text)) for page in pages)
    tokens = tuple(prompts.encode_prompt(vocabulary, question.question, whole))
    if limit is None or len(tokens) <= limit:
        return Context(whole, tokens)
    return joint_context(
        question.question, list(_results(pages)), limit, vocabulary, settings.contexts
    )


def _results(pages: Sequence[Document]) -> Iterator[SearchResult]:
    for page in pages:
        yield SearchResult(page, page.snippet if isinstance(page, FoundDocument) else None)
