"""Answers by a model (GopherCite, sections 2.3 and 2.8): pages, prompts, samples, the best of them.

Each page gets a prompt of its own, cut to a window around its snippet, and the samples go round the
prompts; or all pages share one prompt. Every sample is drawn under the quote constraint, so that it
is well formed and its quotes are verbatim: what remains is to choose.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from gophercite import evidence
from gophercite.answering.extractive import why_nothing
from gophercite.answering.pages import FoundPages, asked
from gophercite.answers import Answer, Citation, LeftOut, Sample, cite
from gophercite.contexts import (
    Context,
    ContextError,
    ContextSettings,
    joint_context,
    single_contexts,
)
from gophercite.decoding.constraint import NoLegalAnswer, PromptGraph, QuoteConstraint
from gophercite.decoding.quote_settings import QuoteSettings
from gophercite.decoding.sampler import Samples, SamplingSettings, sample
from gophercite.documents import Window
from gophercite.evidence import Evidence
from gophercite.models.folder import Model

LOG_PROBABILITY = "log-probability"


@dataclasses.dataclass(frozen=True)
class AnsweringSettings:
    """How a model answers; the defaults are the paper's for long answers (section 3.2).

    Attributes:
      samples: answers that are drawn, of which the best is given: the paper's N.
      prompt_tokens: longest prompt; with the answer it has to fit what the model was trained for.
      joint: show all pages in one prompt, not each in one of its own.
      sampling: how tokens are drawn.
      quotes: what answers may look like.
      contexts: how pages are cut.
    """

    samples: int = 16
    prompt_tokens: int = 4096 - 256
    joint: bool = False
    sampling: SamplingSettings = dataclasses.field(default_factory=SamplingSettings)
    quotes: QuoteSettings = dataclasses.field(default_factory=QuoteSettings)
    contexts: ContextSettings = dataclasses.field(default_factory=ContextSettings)

    def __post_init__(self) -> None:
        for name in ("samples", "prompt_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)}: must be at least 1")


class Answerer:
    """Answers questions with one model.

    Args:
      model: what answers.
      settings: how.
      name: what the model is called in answers where its provenance has no `id`.

    Attributes:
      name: what it is called.
    """

    def __init__(
        self, model: Model, settings: AnsweringSettings | None = None, name: str = "model"
    ) -> None:
        self.name = str(model.provenance.get("id", name))
        self._model = model
        self._settings = settings or AnsweringSettings()
        self._constraint = QuoteConstraint(model.vocabulary, self._settings.quotes)

    def answer(
        self, question: str, found: FoundPages, *, seed: int = 0, keep_samples: bool = False
    ) -> Answer:
        """Returns the best of the samples, or why there is none.

        Args:
          question: as it was asked; filters in it are taken out.
          found: its pages.
          seed: of the draws; the same question, pages and seed give the same answer.
          keep_samples: whether the answer carries all samples.

        Raises:
          ValueError: when there is no question.
        """
        question = asked(question)
        prompts, left_out = self._prompts(question, found)
        if not prompts:
            return Answer(
                question=question,
                model=self.name,
                reason=why_nothing(found, left_out),
                left_out=tuple(left_out),
            )
        samples = self._sample(prompts, seed)
        best = max(samples, key=lambda each: each.score)
        return Answer(
            question=question,
            model=self.name,
            citations=best.citations,
            text=best.text,
            score=best.score,
            scored_by=LOG_PROBABILITY,
            likelihood=best.likelihood,
            left_out=tuple(left_out),
            samples=tuple(samples) if keep_samples else (),
        )

    def _prompts(
        self, question: str, found: FoundPages
    ) -> tuple[list[tuple[Context, PromptGraph]], list[LeftOut]]:
        """The prompts from which something can be quoted, and the pages that are in none."""
        contexts, left_out = self._contexts(question, found)
        prompts = []
        longest = self._settings.sampling.max_tokens
        for context in contexts:
            try:
                graph = self._constraint.graph(context.windows)
            except NoLegalAnswer:
                problem = "nothing in it can be quoted"
            else:
                if graph.shortest_answer <= longest:
                    prompts.append((context, graph))
                    continue
                problem = (
                    f"the shortest answer that quotes it has {graph.shortest_answer} tokens, and "
                    f"answers may have {longest}"
                )
            left_out += [LeftOut(window.document.id, problem) for window in context.windows]
        return prompts, left_out

    def _contexts(
        self, question: str, found: FoundPages
    ) -> tuple[Sequence[Context], list[LeftOut]]:
        vocabulary, settings = self._model.vocabulary, self._settings
        left_out = list(found.left_out)
        arguments = (question, found.results, settings.prompt_tokens, vocabulary, settings.contexts)
        if settings.joint:
            try:
                context = joint_context(*arguments)
            except ContextError as error:
                pages = [result.document.id for result in found.results]
                return [], left_out + [LeftOut(page, str(error)) for page in pages]
            contexts, passed_over = [context], list(context.left_out)
        else:
            contexts, passed_over = single_contexts(*arguments)
        left_out += [LeftOut(page, reason.value) for page, reason in passed_over]
        return contexts, left_out

    def _sample(self, prompts: Sequence[tuple[Context, PromptGraph]], seed: int) -> list[Sample]:
        """Samples in round robin: sample i is of prompt i modulo their number."""
        settings, vocabulary = self._settings, self._model.vocabulary
        prompts = prompts[: settings.samples]
        rounds = -(-settings.samples // len(prompts))
        drawn = sample(
            self._model.transformer,
            self._model.params,
            [context.tokens for context, _ in prompts],
            jax.random.key(seed),
            settings.sampling,
            eos_id=vocabulary.eos_id,
            pad_id=vocabulary.pad_id,
            quotes=self._constraint.tables(
                [graph for _, graph in prompts], settings.sampling.max_tokens
            ),
            samples_per_prompt=rounds,
            vocabulary_size=vocabulary.size,
        )
        samples = []
        for number in range(settings.samples):
            turn, prompt = divmod(number, len(prompts))
            windows = prompts[prompt][0].windows
            samples.append(self._read(drawn, prompt * rounds + turn, windows))
        return samples

    def _read(self, drawn: Samples, row: int, windows: Sequence[Window]) -> Sample:
        tokens = drawn.tokens[row, : drawn.lengths[row]].tolist()
        text = self._model.vocabulary.decode(tokens)
        likelihood = _sum(drawn.log_probs, row)
        return Sample(
            citations=tuple(_cite(triple, windows) for triple in evidence.parse(text)),
            text=text,
            score=likelihood,
            likelihood=likelihood,
            constrained_likelihood=_sum(drawn.constrained_log_probs, row),
        )


def _sum(log_probs: np.ndarray | None, row: int) -> float:
    assert log_probs is not None  # both were asked for: by the settings, and by a constraint
    return float(np.sum(log_probs[row], dtype=np.float64))


def _cite(triple: Evidence, windows: Sequence[Window]) -> Citation:
    """Finds the quote where the model read it: in the first window of its title that holds it."""
    for window in windows:
        place = window.text.find(triple.quote)
        if window.title == triple.title and place >= 0:
            return cite(triple, window.document, window.start + place)
    raise ValueError(f"no page shown with the title {triple.title!r} holds the quote")
