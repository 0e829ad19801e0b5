"""Answers by a model (GopherCite, sections 2.3 and 2.8): pages, prompts, samples, the best sample.

A question's samples take its prompts (`gophercite.answering.preparing`) in round robin. Each is
drawn under the quote constraint, so it is well formed and its quotes are verbatim. What remains is
to choose one: a reward model does so, or without one, their consensus
(`gophercite.decoding.consensus`).
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax

from gophercite import evidence
from gophercite.answering.citing import cited
from gophercite.answering.pages import FoundPages
from gophercite.answering.preparing import Prepared, Preparer
from gophercite.answering.ranking import rank
from gophercite.answering.settings import CHOOSERS, AnsweringSettings, Chooser
from gophercite.decoding import branches
from gophercite.decoding.claim_in_quote import Shown
from gophercite.decoding.consensus import consensus as consensus_of
from gophercite.decoding.consensus import weights_by_rank
from gophercite.decoding.in_flight import usual_batch_size
from gophercite.decoding.random_keys import keys_of_seeds
from gophercite.decoding.rerank import Candidate, Scorer, sample_in_turn
from gophercite.decoding.sampler import NotNumbersError, on_one_cpu
from gophercite.evidence import Evidence
from gophercite.model_folders.folder import Model
from gophercite.models.parameters import Params
from gophercite.partitioning import Partitioner
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_state import QuoteTables
from gophercite.records.answers import Answer, Sample


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
      name: the model's folder, or another name for it: used in answers where its provenance has no
        `id`, and in errors.
      reward_model: chooses among the samples (`gophercite.models.reward_model.load_reward_model`);
        without one, the settings say which sample is chosen.
      reward_name: the reward model's name, likewise.
      partitioner: shards sampling and scoring over the devices that the models' parameters are
        on (`loading.load_answerer`); None for a single device.
      coming: waits for the language model's parameters, of which `model` has the shapes
        (`model_folders.folder.begin_loading`). The first questions are prepared and the program is
        compiled meanwhile.
      digests: the models' digests, where they were read from folders.

    Attributes:
      name: the model's name.
      reward_name: the reward model's name; None without one.
      provenance: where the models' parameters come from.
      digests: `model_digest` of the language model, `parameters_sha256`, and of the reward model,
        `reward_model_sha256` (None without one); empty for models that are in memory alone.
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
        coming: Callable[[], Params] | None = None,
        digests: Mapping[str, str | None] | None = None,
    ) -> None:
        self.name = str(model.provenance.get("id", name))
        self._folder = name
        self.provenance = [model.provenance]
        self.digests = dict(digests or {})
        settings = settings or AnsweringSettings()
        chooser = settings.choose or ("consensus" if reward_model is None else "reward")
        if chooser == "reward" and reward_model is None:
            raise ValueError("choose = 'reward': needs a reward model")
        self._constraint = QuoteConstraint(model.vocabulary, settings.quotes)
        self._preparer = Preparer(model, settings, self._constraint)
        longest = self._preparer.max_tokens
        self.settings = dataclasses.replace(
            settings,
            choose=chooser,
            max_tokens=longest,
            prompt_tokens=self._preparer.prompt_tokens,
            sampling=dataclasses.replace(settings.sampling, max_tokens=longest),
        )
        if chooser == "consensus" and settings.samples == 1:
            chooser = "mean"  # one alone agrees with itself
        self._chooser: Chooser = chooser
        self.scored_by = CHOOSERS[chooser]
        self.reward_name: str | None = None
        self._model = model
        self._partitioner = partitioner
        self._coming = coming
        self._scorer: Scorer | None = None
        if reward_model is not None:
            self.reward_name = str(reward_model.provenance.get("id", reward_name or "reward model"))
            self.provenance.append(reward_model.provenance)
            self._scorer = Scorer(reward_model)

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
        settings, params = self.settings, self._model.params
        prompts = 1 if settings.joint else min(pages, settings.samples)
        size = sum(leaf.size for leaf in jax.tree.leaves(params))
        if prompts == 1 and on_one_cpu(params) and branches.outrun(size, settings.samples):
            return 1
        return usual_batch_size(prompts, settings.samples, jax.default_backend())

    def prepare(self, question: str, found: FoundPages) -> Prepared:
        """Does all of `answer` that needs no model, so that any thread can do it ahead of time.

        Args:
          question: as for `answer`.
          found: its pages.

        Raises:
          ValueError: when the question is blank or has only filters.
        """
        return self._preparer.prepare(question, found)

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

        Raises:
          NotNumbersError: the model's logits are NaN or infinite.
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
            try:
                drawn = self._samples(batch, seeds)
            except NotNumbersError as error:
                raise NotNumbersError(f"{self._folder}: {error}") from error
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

    def _samples(self, batch: Batch, seeds: Sequence[int]) -> list[list[Sample]]:
        """Each question's samples, drawn from its prompts in round robin, each with its score."""
        settings = self.settings
        sources = [context.windows for each in batch.questions for context in each.contexts]
        drawn = sample_in_turn(
            self._model,
            [[context.tokens for context in each.contexts] for each in batch.questions],
            settings.samples,
            keys_of_seeds(seeds),
            settings.sampling,
            batch.quotes,
            shown=Shown(self._constraint, sources) if settings.claim_in_quote else None,
            max_num_seqs=settings.max_num_seqs,
            coming=self._coming,
        )
        if self._coming is not None:
            self._model = dataclasses.replace(self._model, params=self._coming())
            self._coming = None
        said = [
            (question, candidate, evidence.parse(candidate.text))
            for question, candidates in zip(batch.questions, drawn, strict=True)
            for candidate in candidates
        ]
        verdicts = self._verdicts([(question.question, triples) for question, _, triples in said])
        each = settings.samples
        agreed: list[float | None] = []
        for first in range(0, len(said), each):
            agreed += _consensus(said[first : first + each])
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
    said: Sequence[tuple[Prepared, Candidate, Sequence[Evidence]]],
) -> Sequence[float] | Sequence[None]:
    """The consensus of a question's samples; None for one alone, which agrees with itself."""
    if len(said) == 1:
        return [None]
    weights = weights_by_rank([asked.ranks[candidate.prompt] for asked, candidate, _ in said])
    means = [candidate.mean_log_prob for _, candidate, _ in said]
    return consensus_of([triples for _, _, triples in said], means, weights)
