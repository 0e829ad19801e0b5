"""From a question and its pages to prompts, and to what may be quoted from each.

Each page gets its own prompt, cut to a window around its snippet, or all pages share one. Of the
user's own pages, where they are long, the passages that fit the question best are shown. No
parameters of a model are needed, so questions can be prepared while others are answered.
"""

import contextlib
import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gophercite import evidence
from gophercite.answering.extractive import why_nothing
from gophercite.answering.pages import FoundPages, asked
from gophercite.answering.settings import AnsweringSettings
from gophercite.documents import Window
from gophercite.few_shot.prompting import FewShotSettings, few_shot_context
from gophercite.model_folders.folder import Model
from gophercite.models.training_text import unlike_training
from gophercite.prompts import usual_max_tokens, usual_prompt_tokens
from gophercite.quoting.constraint import NoLegalAnswer, PromptGraph, QuoteConstraint
from gophercite.records.answers import LeftOut
from gophercite.retrieval.contexts import (
    Context,
    ContextError,
    ContextSettings,
    Reason,
    SearchResult,
    each_context,
    joint_context,
)
from gophercite.retrieval.passages import best_apart, find_passages, passage_length

# Share of the pages' text that one prompt for all of them must show if nobody asked for it; a page
# that is longer counts as ENOUGH characters. With less, what is cut away may be the answer.
LEAST_SHOWN, ENOUGH = 0.5, 1000

# Where prompts show a smaller share of all pages than this, the passages that fit the question best
# are shown rather than what is around each page's snippet.
LEAST_AROUND_SNIPPETS = 1 / 3

_Make = Callable[[Sequence[SearchResult]], Context]


class _Cut(NamedTuple):
    """Prompts that show search results.

    Attributes:
      contexts: the prompts.
      ranks: the rank of each prompt's first page among the results, from 0.
      left_out: the ids of results that no prompt shows, with why.
    """

    contexts: Sequence[Context]
    ranks: Sequence[int]
    left_out: Sequence[tuple[str, Reason]]


_Arrange = Callable[[Sequence[SearchResult], _Make], _Cut]


class NoRoom(NamedTuple):
    """A setting that leaves a question without an answer, whatever its pages say.

    Attributes:
      setting: "max_tokens" or "prompt_tokens".
      problem: why, and the value that would be enough where that is known, for the user.
    """

    setting: str
    problem: str


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A question that is ready for the model: what the host computed from it and its pages.

    Attributes:
      question: without the search filters.
      contexts: the prompts to sample from; empty where nothing can be quoted.
      graphs: what may be quoted from each prompt.
      ranks: the search rank of each prompt's page or passage, from 0, counting those without a
        prompt, too; 0 where one prompt shows all pages.
      reason: why there is no prompt; None where there is one.
      left_out: pages that no prompt shows.
      unlike_training: one sentence on how the shown text differs from everything that the model was
        trained on; None where it does not, or where the training data are not known.
      no_room: the setting that leaves no room for any answer; None if there is room.
    """

    question: str
    contexts: tuple[Context, ...]
    graphs: tuple[PromptGraph, ...]
    ranks: tuple[int, ...]
    reason: str | None
    left_out: tuple[LeftOut, ...]
    unlike_training: str | None = None
    no_room: NoRoom | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings that its answer must carry."""
        return () if self.unlike_training is None else (self.unlike_training,)


class Preparer:
    """Prepares questions for one model.

    Args:
      model: the language model; its parameters are not used.
      settings: how questions are answered.
      constraint: what answers may look like, in the model's tokens.

    Attributes:
      max_tokens: maximum length of an answer in tokens.
      prompt_tokens: maximum prompt length in tokens.
    """

    def __init__(
        self, model: Model, settings: AnsweringSettings, constraint: QuoteConstraint
    ) -> None:
        trained_length = None if settings.few_shot else model.vocabulary.trained_length
        self.max_tokens = settings.max_tokens or usual_max_tokens(
            trained_length, settings.sampling.max_tokens, settings.quotes.maximum_triples
        )
        self.prompt_tokens = settings.prompt_tokens or usual_prompt_tokens(
            trained_length, self.max_tokens, model.transformer.config.max_positions
        )
        self._model = model
        self._settings = settings
        self._reads_several = model.vocabulary.several_pages and not settings.few_shot
        self._constraint = constraint

    def prepare(self, question: str, found: FoundPages) -> Prepared:
        """Does all of `Answerer.answer` that needs no model's parameters.

        Args:
          question: as the user typed it; filters in it are taken out.
          found: its pages.

        Raises:
          ValueError: when the question is blank or has only filters.
        """
        question = asked(question)
        prompts, left_out, no_room = self._prompts(question, found)
        if not prompts:
            reason = why_nothing(found, left_out)
            return Prepared(question, (), (), (), reason, tuple(left_out), no_room=no_room)
        contexts, graphs, ranks = zip(*prompts[: self._settings.samples], strict=True)
        shown = [window.text for context in contexts for window in context.windows]
        unlike = unlike_training(self._model.provenance, self._model.vocabulary, shown)
        return Prepared(question, contexts, graphs, ranks, None, tuple(left_out), unlike)

    def _prompts(
        self, question: str, found: FoundPages
    ) -> tuple[list[tuple[Context, PromptGraph, int]], list[LeftOut], NoRoom | None]:
        """Prompts from which something can be quoted, and the pages that are in none, with why."""
        contexts, left_out, no_room = self._contexts(question, found)
        prompts = []
        longest, shortest = self.max_tokens, []
        for context, rank in contexts:
            try:
                graph = self._constraint.graph(context.windows)
            except NoLegalAnswer:
                left_out += [
                    LeftOut(window.document.id, _why_unquotable(window))
                    for window in context.windows
                ]
                continue
            if graph.shortest_answer <= longest:
                prompts.append((context, graph, rank))
                continue
            shortest.append(graph.shortest_answer)
            problem = (
                f"the shortest answer that quotes it has {graph.shortest_answer} tokens, but "
                f"answers may have only {longest}"
            )
            left_out += [LeftOut(window.document.id, problem) for window in context.windows]
        if shortest:
            problem = f"the shortest answer to this question has {min(shortest)} tokens"
            no_room = NoRoom("max_tokens", problem)
        return prompts, left_out, no_room

    def _contexts(
        self, question: str, found: FoundPages
    ) -> tuple[list[tuple[Context, int]], list[LeftOut], NoRoom | None]:
        """Prompts, each with the search rank of what it shows, and the pages that are in none."""
        left_out = list(found.left_out)
        try:
            cut = self._cut(question, found)
        except ContextError as error:
            pages = [result.document.id for result in found.results]
            no_room = None
            if error.reason is Reason.NO_ROOM:
                no_room = NoRoom("prompt_tokens", str(error))
            return [], left_out + [LeftOut(page, str(error)) for page in pages], no_room
        left_out += [LeftOut(page, reason.value) for page, reason in cut.left_out]
        if not cut.contexts and any(reason is Reason.NO_ROOM for _, reason in cut.left_out):
            return [], left_out, NoRoom("prompt_tokens", Reason.NO_ROOM.value)
        return list(zip(cut.contexts, cut.ranks, strict=True)), left_out, None

    def _cut(self, question: str, found: FoundPages) -> _Cut:
        """Prompts with the pages that fit."""
        if self._settings.joint:
            return self._shown(question, found, _together)
        if self._settings.joint is None and self._reads_several:
            with contextlib.suppress(ContextError):  # alone, each page has its own reason
                cut = self._shown(question, found, _together)
                if _text_shown(cut.contexts) >= LEAST_SHOWN * sum(
                    min(ENOUGH, len(result.document.text)) for result in found.results
                ):
                    return cut
        return self._shown(question, found, _each)

    def _shown(self, question: str, found: FoundPages, arrange: _Arrange) -> _Cut:
        """Prompts with what is around the snippets or, if that is little, the best passages."""
        settings = self._settings.contexts
        around = arrange(found.results, self._maker(question, settings))
        contexts = around.contexts
        shown = _text_shown(contexts)
        whole = sum(len(result.document.text) for result in found.results)
        if not found.search_inside or shown >= LEAST_AROUND_SNIPPETS * whole or not contexts:
            return around
        windows = [window for context in contexts for window in context.windows]
        passages = max(settings.max_documents, len(found.results))
        if arrange is _together:
            passages = min(passages, max(1, int(shown / (LEAST_SHOWN * ENOUGH))))
            length = shown / passages
        else:
            length = max(len(window.text) for window in windows)
        pages = [window.document for window in windows]
        found_inside = find_passages(question, pages, passage_length(length))
        best = best_apart(found_inside, passages)
        inside = [SearchResult(passage.document, span=passage.span) for passage in best]
        at_once = dataclasses.replace(settings, characters_before=0)
        with contextlib.suppress(ContextError):
            better = arrange(inside, self._maker(question, at_once))
            if better.contexts:
                rest = {page.id: Reason.BETTER_PASSAGES for page in pages} | dict(better.left_out)
                for context in better.contexts:
                    for window in context.windows:
                        rest.pop(window.document.id, None)
                return better._replace(left_out=(*around.left_out, *rest.items()))
        return around

    def _maker(self, question: str, contexts: ContextSettings) -> _Make:
        """What makes a prompt that shows the given results."""
        vocabulary, settings = self._model.vocabulary, self._settings
        if not settings.few_shot:
            return lambda shown: joint_context(
                question, shown, self.prompt_tokens, vocabulary, contexts
            )
        examples, draw = FewShotSettings(examples=settings.few_shot), random.Random(question)
        return lambda shown: few_shot_context(
            question, shown, self.prompt_tokens, vocabulary, examples, draw, contexts
        )


def _together(results: Sequence[SearchResult], make: _Make) -> _Cut:
    context = make(results)
    return _Cut([context], [0], context.left_out)


def _each(results: Sequence[SearchResult], make: _Make) -> _Cut:
    places, ranks = iter(range(len(results))), []

    def make_one(result: SearchResult) -> Context:
        rank = next(places)
        context = make([result])
        ranks.append(rank)
        return context

    contexts, left_out = each_context(results, make_one)
    return _Cut(contexts, ranks, left_out)


def _text_shown(contexts: Sequence[Context]) -> int:
    """How many characters of pages prompts show."""
    return sum(len(window.text) for context in contexts for window in context.windows)


def _why_unquotable(window: Window) -> str:
    mark = evidence.named_mark(window.title)
    return "nothing in it can be quoted" if mark is None else f"its title {mark}"
