"""Answers by a model (GopherCite, sections 2.3 and 2.8): pages, prompts, samples, the best sample.

Each page gets its own prompt, cut to a window around its snippet, and the samples take the prompts
in round robin; or all pages share one prompt. Every sample is drawn under the quote constraint, so
it is well formed and its quotes are verbatim. What remains is to choose one: a reward model does
so, or without one, their consensus (`gophercite.decoding.consensus`).
"""

import contextlib
import dataclasses
import random
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from gophercite import evidence
from gophercite.answering.citing import cited
from gophercite.answering.extractive import why_nothing
from gophercite.answering.pages import FoundPages, asked
from gophercite.answering.ranking import rank
from gophercite.decoding.claim_in_quote import Shown
from gophercite.decoding.consensus import consensus as consensus_of
from gophercite.decoding.consensus import weights_by_rank
from gophercite.decoding.in_flight import usual_batch_size
from gophercite.decoding.rerank import Candidate, Scorer, sample_in_turn
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Window
from gophercite.evidence import Evidence
from gophercite.few_shot.prompting import FewShotSettings, few_shot_context
from gophercite.model_folders.folder import Model
from gophercite.models.training_text import unlike_training
from gophercite.partitioning import Partitioner
from gophercite.prompts import usual_prompt_tokens
from gophercite.quoting.constraint import NoLegalAnswer, PromptGraph, QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.quote_state import QuoteTables
from gophercite.records.answers import Answer, LeftOut, Sample
from gophercite.retrieval.contexts import (
    Context,
    ContextError,
    ContextSettings,
    Reason,
    SearchResult,
    each_context,
    joint_context,
    single_contexts,
)

Chooser = Literal["reward", "consensus", "mean", "sum"]

CHOOSERS: dict[Chooser, str] = {
    "reward": "reward",
    "consensus": "consensus",
    "mean": "mean log-probability of a token",
    "sum": "log-probability",
}


@dataclasses.dataclass(frozen=True)
class AnsweringSettings:
    """How a model answers; the defaults are the paper's for long answers (section 3.2).

    Attributes:
      samples: number of answers to draw, of which the best is given: the paper's N.
      prompt_tokens: maximum prompt length in tokens; prompt and answer together must fit the length
        that the model was trained for. None follows from that length, if it is known
        (`prompts.usual_prompt_tokens`).
      joint: show all pages in one prompt instead of each in its own.
      few_shot: number of examples before the question, for a base model that was not trained to
        answer (section 2.5 and H): drawn for each prompt, at most five.
      choose: which sample is the answer: "reward", the one with the highest reward; "consensus",
        the one that agrees most with all and is likely, too (`decoding.consensus`); "mean", the one
        with the highest mean of its tokens' log-probabilities; "sum", with the highest sum, which
        favours short answers. None is "reward" with a reward model, otherwise "consensus". Instead
        of its consensus, a single sample is given its mean.
      max_num_seqs: number of answers to draw at a time, which bounds the memory; None draws as many
        as keep the device busy and fit (`decoding.in_flight`). The answers do not depend on it.
      sampling: how tokens are drawn.
      claim_in_quote: whether an answer's quote must contain its claim where some quote of the
        prompt could; other samples whose quotes don't are marked (`decoding.claim_in_quote`).
      quotes: what answers may look like.
      contexts: how pages are cut.
    """

    samples: int = 16
    prompt_tokens: int | None = None
    joint: bool = False
    few_shot: int = 0
    choose: Chooser | None = None
    max_num_seqs: int | None = None
    claim_in_quote: bool = True
    sampling: SamplingSettings = dataclasses.field(default_factory=SamplingSettings)
    quotes: QuoteSettings = dataclasses.field(default_factory=QuoteSettings)
    contexts: ContextSettings = dataclasses.field(default_factory=ContextSettings)

    def __post_init__(self) -> None:
        for name in ("samples", "prompt_tokens", "max_num_seqs"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} = {value}: must be at least 1")
        if self.choose is not None and self.choose not in CHOOSERS:
            raise ValueError(f"choose = {self.choose!r}: must be one of {', '.join(CHOOSERS)}")
        FewShotSettings(examples=self.few_shot)  # refuses what is out of range


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
      reason: why there is no prompt; None where there is one.
      left_out: pages that no prompt shows.
      unlike_training: one sentence on how the shown text differs from everything that the model was
        trained on; None where it does not, or where the training data are not known.
      no_room: the setting that leaves no room for any answer; None if there is room.
    """

    question: str
    contexts: tuple[Context, ...]
    graphs: tuple[PromptGraph, ...]
    reason: str | None
    left_out: tuple[LeftOut, ...]
    unlike_training: str | None = None
    no_room: NoRoom | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings that its answer must carry."""
        return () if self.unlike_training is None else (self.unlike_training,)


class Batch(NamedTuple):
    """Questions with the same number of prompts, which are answered together.

    Attributes:
      questions: the prepared questions.
      quotes: what may be quoted from their prompts, on the device; None without prompts.
    """

    questions: tuple[Prepared, ...]
    quotes: QuoteTables | None


class Answerer:
    """Answers questions with one model.

    Args:
      model: the language model.
      settings: how it answers.
      name: the model's name in answers where its provenance has no `id`.
      reward_model: chooses among the samples (`gophercite.models.reward_model.load_reward_model`);
        without one, the settings say which sample is chosen.
      reward_name: the reward model's name, likewise.
      partitioner: shards sampling and scoring over the devices that the models' parameters are
        on (`loading.load_answerer`); None for a single device.

    Attributes:
      name: the model's name.
      reward_name: the reward model's name; None without one.
      provenance: where the models' parameters come from.
      settings: how questions are answered.
      scored_by: the score that decides.
    """

    def __init__(
        self,
        model: Model,
        settings: AnsweringSettings | None = None,
        name: str = "model",
        *,
        reward_model: Model | None = None,
        reward_name: str | None = None,
        partitioner: Partitioner | None = None,
    ) -> None:
        self.name = str(model.provenance.get("id", name))
        self.provenance = [model.provenance]
        settings = settings or AnsweringSettings()
        chooser = settings.choose or ("consensus" if reward_model is None else "reward")
        if chooser == "reward" and reward_model is None:
            raise ValueError("choose = 'reward': needs a reward model")
        trained_length = None if settings.few_shot else model.vocabulary.trained_length
        self._prompt_tokens = settings.prompt_tokens or usual_prompt_tokens(
            trained_length, settings.sampling.max_tokens
        )
        self.settings = dataclasses.replace(
            settings, choose=chooser, prompt_tokens=self._prompt_tokens
        )
        if chooser == "consensus" and settings.samples == 1:
            chooser = "mean"  # one alone agrees with itself
        self._chooser: Chooser = chooser
        self.scored_by = CHOOSERS[chooser]
        self.reward_name: str | None = None
        self._model = model
        self._partitioner = partitioner
        self._scorer: Scorer | None = None
        if reward_model is not None:
            self.reward_name = str(reward_model.provenance.get("id", reward_name or "reward model"))
            self.provenance.append(reward_model.provenance)
            self._scorer = Scorer(reward_model)
        self._constraint = QuoteConstraint(model.vocabulary, self.settings.quotes)

    def answer(
        self, question: str, found: FoundPages, *, seed: int = 0, keep_samples: bool = False
    ) -> Answer:
        """Returns the best of the samples, or says why there is none.

        Args:
          question: as the user typed it; filters in it are taken out.
          found: its pages.
          seed: seed of the sampling; the same question, pages and seed give the same answer.
          keep_samples: whether the answer carries all samples.

        Raises:
          ValueError: when the question is blank or has only filters.
        """
        batch = self.batch([self.prepare(question, found)])
        (answer,) = self.answer_batch(batch, [seed], keep_samples=keep_samples)
        return answer

    def usual_batch_size(self, pages: int) -> int:
        """Number of questions that are worth answering together, given the device and its memory.

        Args:
          pages: maximum number of pages per question.
        """
        settings = self.settings
        prompts = 1 if settings.joint else min(pages, settings.samples)
        return usual_batch_size(prompts, settings.samples, jax.default_backend())

    def prepare(self, question: str, found: FoundPages) -> Prepared:
        """Does all of `answer` that needs no model, so that any thread can do it ahead of time.

        Args:
          question: as for `answer`.
          found: its pages.

        Raises:
          ValueError: when the question is blank or has only filters.
        """
        question = asked(question)
        prompts, left_out, no_room = self._prompts(question, found)
        if not prompts:
            reason = why_nothing(found, left_out)
            return Prepared(question, (), (), reason, tuple(left_out), no_room=no_room)
        contexts, graphs = zip(*prompts[: self.settings.samples], strict=True)
        shown = [window.text for context in contexts for window in context.windows]
        unlike = unlike_training(self._model.provenance, self._model.vocabulary, shown)
        return Prepared(question, contexts, graphs, None, tuple(left_out), unlike)

    def batch(self, questions: Sequence[Prepared]) -> Batch:
        """Puts questions together that are to be answered together; any thread can do this too.

        Args:
          questions: at least one, all with the same number of prompts.
        """
        graphs = [graph for question in questions for graph in question.graphs]
        longest = self.settings.sampling.max_tokens
        quotes = self._constraint.tables(graphs, longest) if graphs else None
        return Batch(tuple(questions), quotes)

    def answer_batch(
        self, batch: Batch, seeds: Sequence[int], *, keep_samples: bool = False
    ) -> list[Answer]:
        """Answers the questions of a batch together.

        Args:
          batch: the questions.
          seeds: seed of the sampling for each question.
          keep_samples: whether answers carry all samples.

        Returns:
          One answer per question, the same as from `answer` up to rounding.
        """
        if batch.quotes is None:
            return [
                Answer(
                    question=each.question,
                    model=self.name,
                    reason=each.reason,
                    left_out=each.left_out,
                )
                for each in batch.questions
            ]
        with self._partitioner.activate() if self._partitioner else contextlib.nullcontext():
            drawn = self._samples(batch, seeds)
        return [
            self._best(question, samples, keep_samples)
            for question, samples in zip(batch.questions, drawn, strict=True)
        ]

    def _best(self, prepared: Prepared, samples: Sequence[Sample], keep_samples: bool) -> Answer:
        best = max(samples, key=rank)
        return Answer(
            question=prepared.question,
            model=self.name,
            citations=best.citations,
            text=best.text,
            score=best.score,
            scored_by=self.scored_by,
            likelihood=best.likelihood,
            consensus=best.consensus,
            reward_model=self.reward_name,
            supported_and_plausible=best.supported_and_plausible,
            left_out=prepared.left_out,
            warnings=prepared.warnings,
            samples=tuple(samples) if keep_samples else (),
        )

    def _prompts(
        self, question: str, found: FoundPages
    ) -> tuple[list[tuple[Context, PromptGraph]], list[LeftOut], NoRoom | None]:
        """Prompts from which something can be quoted, and the pages that are in none, with why."""
        contexts, left_out, no_room = self._contexts(question, found)
        prompts = []
        longest, shortest = self.settings.sampling.max_tokens, []
        for context in contexts:
            try:
                graph = self._constraint.graph(context.windows)
            except NoLegalAnswer:
                left_out += [
                    LeftOut(window.document.id, _why_unquotable(window))
                    for window in context.windows
                ]
                continue
            if graph.shortest_answer <= longest:
                prompts.append((context, graph))
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
    ) -> tuple[Sequence[Context], list[LeftOut], NoRoom | None]:
        left_out = list(found.left_out)
        try:
            contexts, passed_over = self._cut(question, found.results)
        except ContextError as error:
            pages = [result.document.id for result in found.results]
            no_room = None
            if error.reason is Reason.NO_ROOM:
                no_room = NoRoom("prompt_tokens", str(error))
            return [], left_out + [LeftOut(page, str(error)) for page in pages], no_room
        left_out += [LeftOut(page, reason.value) for page, reason in passed_over]
        if not contexts and any(reason is Reason.NO_ROOM for _, reason in passed_over):
            return contexts, left_out, NoRoom("prompt_tokens", Reason.NO_ROOM.value)
        return contexts, left_out, None

    def _cut(
        self, question: str, results: Sequence[SearchResult]
    ) -> tuple[Sequence[Context], Sequence[tuple[str, Reason]]]:
        """Prompts with the results that fit, and the ids of those left out with why."""
        vocabulary, settings = self._model.vocabulary, self.settings
        if settings.few_shot:
            examples, draw = FewShotSettings(examples=settings.few_shot), random.Random(question)

            def with_examples(shown: Sequence[SearchResult]) -> Context:
                return few_shot_context(
                    question, shown, self._prompt_tokens, vocabulary, examples, draw,
                    settings.contexts,
                )  # fmt: skip

            if not settings.joint:
                return each_context(results, lambda one: with_examples([one]))
            context = with_examples(results)
        else:
            arguments = (question, results, self._prompt_tokens, vocabulary, settings.contexts)
            if not settings.joint:
                return single_contexts(*arguments)
            context = joint_context(*arguments)
        return [context], context.left_out

    def _samples(self, batch: Batch, seeds: Sequence[int]) -> list[list[Sample]]:
        """Each question's samples, drawn from its prompts in round robin, each with its score."""
        settings = self.settings
        sources = [context.windows for each in batch.questions for context in each.contexts]
        drawn = sample_in_turn(
            self._model,
            [[context.tokens for context in each.contexts] for each in batch.questions],
            settings.samples,
            jnp.stack([jax.random.key(seed) for seed in seeds]),
            settings.sampling,
            batch.quotes,
            shown=Shown(self._constraint, sources) if settings.claim_in_quote else None,
            max_num_seqs=settings.max_num_seqs,
        )
        said = [
            (question, candidate, evidence.parse(candidate.text))
            for question, candidates in zip(batch.questions, drawn, strict=True)
            for candidate in candidates
        ]
        verdicts = self._verdicts([(question.question, triples) for question, _, triples in said])
        each = settings.samples
        agreed: list[float | None] = []
        for first in range(0, len(said), each):
            agreed += _consensus([(one, triples) for _, one, triples in said[first : first + each]])
        samples = [
            self._sample(question, candidate, triples, consensus, *verdict)
            for (question, candidate, triples), consensus, verdict in zip(
                said, agreed, verdicts, strict=True
            )
        ]
        return [samples[first : first + each] for first in range(0, len(samples), each)]

    def _score(self, candidate: Candidate, consensus: float | None, reward: float | None) -> float:
        """What chooses among the samples of a question."""
        if self._chooser == "reward" and reward is not None:
            return reward
        if self._chooser == "consensus" and consensus is not None:
            return consensus
        return candidate.log_prob if self._chooser == "sum" else candidate.mean_log_prob

    def _sample(
        self,
        question: Prepared,
        candidate: Candidate,
        triples: Sequence[Evidence],
        consensus: float | None,
        reward: float | None,
        supported_and_plausible: float | None,
    ) -> Sample:
        assert candidate.constrained_log_prob is not None  # there was a constraint
        windows = question.contexts[candidate.prompt].windows
        omissions = self.settings.quotes.maximum_omissions
        return Sample(
            citations=tuple(
                citation for triple in triples for citation in cited(triple, windows, omissions)
            ),
            text=candidate.text,
            score=self._score(candidate, consensus, reward),
            likelihood=candidate.log_prob,
            constrained_likelihood=candidate.constrained_log_prob,
            tokens=len(candidate.tokens),
            reward=reward,
            supported_and_plausible=supported_and_plausible,
            consensus=consensus,
            quote_lacks_claim=candidate.quote_lacks_claim,
        )

    def _verdicts(
        self, said: Sequence[tuple[str, tuple[Evidence, ...]]]
    ) -> Sequence[tuple[float, float] | tuple[None, None]]:
        """Reward of each answer, and its probability of being supported and plausible."""
        if self._scorer is None:
            return [(None, None)] * len(said)
        scored = self._scorer.score_each(said)
        return list(
            zip(scored.reward.tolist(), scored.supported_and_plausible.tolist(), strict=True)
        )


def _consensus(
    said: Sequence[tuple[Candidate, Sequence[Evidence]]],
) -> Sequence[float] | Sequence[None]:
    """The consensus of a question's samples; None for one alone, which agrees with itself."""
    if len(said) == 1:
        return [None]
    weights = weights_by_rank([candidate.prompt for candidate, _ in said])
    means = [candidate.mean_log_prob for candidate, _ in said]
    return consensus_of([triples for _, triples in said], means, weights)


def _why_unquotable(window: Window) -> str:
    mark = evidence.named_mark(window.title)
    return "nothing in it can be quoted" if mark is None else f"its title {mark}"
