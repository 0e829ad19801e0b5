"""Samples a model's answers to questions, and judges them."""

import contextlib
import dataclasses
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Key

from gophercite import evidence
from gophercite.decoding.claim_in_quote import Shown
from gophercite.decoding.consensus import consensus, weights_by_rank
from gophercite.decoding.look_ahead import made_ahead
from gophercite.decoding.rerank import Candidate, sample_in_turn
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.evaluation.metrics import Judgement, judge
from gophercite.evaluation.question_prompts import (
    PromptReport,
    PromptSettings,
    QuestionPrompt,
    question_prompts,
)
from gophercite.evidence import Evidence
from gophercite.few_shot.evidence_search import find_evidence
from gophercite.few_shot.plain_citations import find_citation
from gophercite.few_shot.prompting import Style, first_answer
from gophercite.model_folders.folder import Model
from gophercite.quoting.constraint import NoLegalAnswer, QuoteConstraint
from gophercite.quoting.quote_state import QuoteTables
from gophercite.records import Question

NOTHING_TO_QUOTE = "no quote from the pages shown fits the longest answer"


@dataclasses.dataclass(frozen=True)
class JudgedSample:
    """One answer of a model, and what is known about it.

    Attributes:
      question: the question, with the pages that were found.
      text: the raw text, without the end of sequence.
      answer: the answer in it, in the syntax of inline evidence if all is well: the text itself,
        or what `answer_questions` extracted from a few-shot model's text.
      judgement: see `judge`.
      tokens: ids of the sampled tokens, including the end of sequence if there is one.
      log_prob: sum of their log-probabilities under the model, in nats.
      document: id of the page that the prompt showed, if it showed only one.
      consensus: how much all samples of the question agree with it, times the model's confidence
        (`gophercite.decoding.consensus`); None for a single sample.
      evidence_score: ROUGE-L of the claim against its quote, if a rule found the quote.
      reward: score from a reward model, if one was used.
      supported_and_plausible: the reward model's probability that the answer is both, from 0 to 1.
      quote_lacks_claim: whether its quote lacks its claim, though another quote could contain it;
        it is then chosen only if there is no other sample (`gophercite.decoding.claim_in_quote`).
    """

    question: Question
    text: str
    answer: str
    judgement: Judgement
    tokens: tuple[int, ...] = ()
    log_prob: float = 0.0
    document: str | None = None
    consensus: float | None = None
    evidence_score: float | None = None
    reward: float | None = None
    supported_and_plausible: float | None = None
    quote_lacks_claim: bool = False


def with_consensus(samples: Sequence[JudgedSample]) -> tuple[JudgedSample, ...]:
    """Returns all samples of a question with their `consensus`, unless there is only one.

    Those of a question whose pages have a prompt each are weighted by the pages' order.
    """
    if len(samples) < 2:
        return tuple(samples)
    order = {document.id: rank for rank, document in enumerate(samples[0].question.documents)}
    ranks = [order.get(sample.document or "", 0) for sample in samples]
    values = consensus(
        [sample.judgement.triples for sample in samples],
        [sample.log_prob / max(1, len(sample.tokens)) for sample in samples],
        weights_by_rank(ranks),
    )
    return tuple(
        dataclasses.replace(sample, consensus=value)
        for sample, value in zip(samples, values, strict=True)
    )


def answer_questions(
    model: Model,
    questions: Sequence[Question],
    settings: SamplingSettings,
    key: Key[Array, ""],
    *,
    batch_size: int = 16,
    constraint: QuoteConstraint | None = None,
    prompts: PromptSettings | None = None,
    samples: int = 1,
    report: PromptReport | None = None,
    claim_in_quote: bool = False,
    answered: Collection[int] = (),
) -> Iterator[tuple[int, tuple[JudgedSample, ...]]]:
    """Samples answers to each question and judges them.

    Prompts of similar length are batched, so that few programs are compiled and little is spent on
    padding; all batches have the same size. Yields the index of each question with its answers as
    soon as all of them are there, the most likely under the model first. Questions that can't be
    asked, or have no legal answer, are declined: they are in the report and are not yielded.

    Args:
      model: a language model.
      questions: each with its pages.
      settings: how tokens are drawn.
      key: base key of the sampling; the question's id and the prompt's and sample's numbers are
        folded in.
      batch_size: number of prompts per batch.
      constraint: makes every answer well formed and its quote verbatim in the pages shown; where
        it allows omissions, so do the judgements.
      prompts: how prompts are built; by default one prompt with all of a question's pages in full.
      samples: number of answers per prompt.
      claim_in_quote: whether a quote under the constraint must contain its claim where some quote
        of the prompt could: of a prompt's samples those that don't are marked, and redrawn if all
        don't (`decoding.claim_in_quote`).
      report: counts prompts and names the questions that are declined.
      answered: indices of questions that are already answered. They are not yielded, but keep their
        places in the batches, so that the others' answers are the same, bit for bit, as without
        them.

    Raises:
      ValueError: when a document is given by its snippet only, or `settings` leave out the model's
        own log-probabilities.
    """
    prompts = prompts or PromptSettings()
    report = PromptReport() if report is None else report
    asked = question_prompts(questions, model.vocabulary, prompts, report)
    missing = np.bincount([prompt.index for prompt in asked], minlength=len(questions))
    found: list[list[JudgedSample]] = [[] for _ in questions]
    omissions = 0 if constraint is None else constraint.settings.maximum_omissions
    draw = _Sampler(model, settings, constraint, batch_size, samples, claim_in_quote)
    asked.sort(key=lambda prompt: len(prompt.tokens))
    batches = (asked[start : start + batch_size] for start in range(0, len(asked), batch_size))
    wanted = (batch for batch in batches if any(each.index not in answered for each in batch))
    for batch, ready in made_ahead(draw.ready, wanted):
        drawn = draw(batch, ready, _keys(key, batch, questions))
        for row, candidates in drawn.items():
            prompt = batch[row]
            question = questions[prompt.index]
            for candidate in candidates:
                answer, score = _answer_in(candidate.text, prompt, prompts)
                found[prompt.index].append(
                    JudgedSample(
                        question, candidate.text, answer, judge(answer, question, omissions),
                        candidate.tokens, candidate.log_prob, prompt.document, score,
                        quote_lacks_claim=candidate.quote_lacks_claim,
                    )
                )  # fmt: skip
        yield from _finished(
            [prompt for prompt in batch if prompt.index not in answered], missing, found, report
        )


class _Ready(NamedTuple):
    """What the host prepares of a batch.

    Attributes:
      rows: which of its prompts have a legal answer, in order; all without a constraint.
      quotes: the tables of those; None without a constraint, or if there are none.
    """

    rows: tuple[int, ...]
    quotes: QuoteTables | None


@dataclasses.dataclass(frozen=True)
class _Sampler:
    """Samples answers to a batch of prompts."""

    model: Model
    settings: SamplingSettings
    constraint: QuoteConstraint | None
    batch_size: int
    samples: int
    claim_in_quote: bool

    def ready(self, batch: Sequence[QuestionPrompt]) -> _Ready:
        """Does all that needs no model."""
        if self.constraint is None:
            return _Ready(tuple(range(len(batch))), None)
        graphs = {}
        for row, prompt in enumerate(batch):
            with contextlib.suppress(NoLegalAnswer):
                graph = self.constraint.graph(prompt.sources)
                if graph.shortest_answer <= self.settings.max_tokens:
                    graphs[row] = graph
        tables = None
        if graphs:
            tables = self.constraint.tables(list(graphs.values()), self.settings.max_tokens)
        return _Ready(tuple(graphs), tables)

    def __call__(
        self, batch: Sequence[QuestionPrompt], ready: _Ready, keys: Key[Array, " prompts"]
    ) -> dict[int, list[Candidate]]:
        """Returns the samples of each prompt that has a legal answer, by its index."""
        if not ready.rows:
            return {}
        shown = None
        if self.constraint is not None and self.claim_in_quote:
            shown = Shown(self.constraint, [batch[row].sources for row in ready.rows])
        drawn = sample_in_turn(
            self.model,
            [[batch[row].tokens] for row in ready.rows],
            self.samples,
            keys[np.array(ready.rows)],
            self.settings,
            ready.quotes,
            shown=shown,
            batch_size=self.batch_size,
        )
        return dict(zip(ready.rows, drawn, strict=True))


def _keys(
    key: Key[Array, ""], prompts: Sequence[QuestionPrompt], questions: Sequence[Question]
) -> Key[Array, " prompts"]:
    """Returns each prompt's own key, which depends neither on its batch nor on its place there."""
    places = np.array(
        [[zlib.crc32(questions[prompt.index].id.encode()), prompt.number] for prompt in prompts],
        np.uint32,
    )
    fold = jax.random.fold_in
    return jax.vmap(lambda place: fold(fold(key, place[0]), place[1]))(places)


def _answer_in(
    text: str, prompt: QuestionPrompt, settings: PromptSettings
) -> tuple[str, float | None]:
    """Returns the answer in a model's text; for a claim alone, a rule finds the evidence.

    The number is the evidence's score if a rule found it, else None.
    """
    if settings.few_shot is None:
        return text, None
    answer = first_answer(text)
    if settings.few_shot.style is Style.SHORT or not answer or evidence.holds_mark(answer):
        return answer, None
    shown = [Document(str(n), page.title, page.text) for n, page in enumerate(prompt.sources)]
    if settings.few_shot.style is Style.CITED:
        cited = find_citation(answer, shown)
        return (answer if cited is None else evidence.format(cited)), None
    found = find_evidence(answer, shown)
    if found is None:
        return answer, None
    return evidence.format(Evidence(answer, found.document.title, found.quote)), found.score


def _finished(
    batch: Iterable[QuestionPrompt],
    missing: np.ndarray,
    found: Sequence[list[JudgedSample]],
    report: PromptReport,
) -> Iterator[tuple[int, tuple[JudgedSample, ...]]]:
    """Yields the questions whose last prompt was in this batch, with their answers."""
    for prompt in batch:
        missing[prompt.index] -= 1
        if missing[prompt.index]:
            continue
        samples = found[prompt.index]
        if samples:
            samples.sort(key=lambda each: -each.log_prob)
            yield prompt.index, tuple(samples)
        else:
            report.declined[prompt.index] = NOTHING_TO_QUOTE
