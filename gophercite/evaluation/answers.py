"""Letting a model answer questions, and judging what it says."""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jaxtyping import Array, Key

from gophercite import prompts
from gophercite.decoding.constraint import NoLegalAnswer, PromptGraph, QuoteConstraint
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.evaluation.metrics import Judgement, judge
from gophercite.models.transformer import Params, Transformer
from gophercite.records import Question
from gophercite.vocabularies import Vocabulary


@dataclasses.dataclass(frozen=True)
class JudgedSample:
    """One answer of a model, and what is known of it.

    Attributes:
      question: what was asked, with the pages that were shown.
      text: the raw text, without what ends it.
      judgement: see `judge`.
      tokens: the ids that were sampled, the end of sequence included where there is one.
      log_prob: the sum of their log-probabilities under the model, in nats.
    """

    question: Question
    text: str
    judgement: Judgement
    tokens: tuple[int, ...] = ()
    log_prob: float = 0.0


def encode_question(vocabulary: Vocabulary, question: Question) -> list[int]:
    """Returns the ids of a question's prompt, with all of its pages in rank order.

    Raises:
      ValueError: when a document is given by its snippet only: there is no page to show.
    """
    return prompts.encode_prompt(vocabulary, question.question, pages_of(question))


def pages_of(question: Question) -> list[Document]:
    """Returns a question's pages.

    Raises:
      ValueError: as `encode_question`.
    """
    pages = []
    for source in question.documents:
        if not isinstance(source, Document):
            raise ValueError(
                f"question {question.id!r}: document {source.id!r} has a snippet but no text"
            )
        pages.append(source)
    return pages


def answer_questions(
    transformer: Transformer,
    params: Params,
    vocabulary: Vocabulary,
    questions: Sequence[Question],
    settings: SamplingSettings,
    key: Key[Array, ""],
    *,
    batch_size: int = 16,
    constraint: QuoteConstraint | None = None,
) -> Iterator[tuple[int, JudgedSample]]:
    """Samples one answer to each question and judges it.

    Questions of like length are answered together, so that few programs are compiled and little is
    spent on padding; all batches have one size. Yields the index of each question with its answer,
    as they are done.

    Args:
      transformer: the model.
      params: its parameters.
      vocabulary: its tokenizer.
      questions: each with its pages.
      settings: how tokens are drawn.
      key: of the draws.
      batch_size: questions that are answered at once.
      constraint: makes every answer well formed and its quote verbatim in the pages shown.

    Raises:
      ValueError: as `encode_question`; with a constraint, also when a question's pages leave no
        legal answer.
    """
    graphs = _graphs(constraint, questions) if constraint is not None else None
    encoded = [encode_question(vocabulary, question) for question in questions]
    order = sorted(range(len(questions)), key=lambda index: len(encoded[index]))
    for start in range(0, len(order), batch_size):
        indices = order[start : start + batch_size]
        rows = indices + [indices[0]] * (batch_size - len(indices))  # one shape for all batches
        quotes = None
        if constraint is not None and graphs is not None:
            quotes = constraint.tables([graphs[index] for index in rows], settings.max_tokens)
        samples = sample(
            transformer,
            params,
            [encoded[index] for index in rows],
            jax.random.fold_in(key, start),
            settings,
            eos_id=vocabulary.eos_id,
            pad_id=vocabulary.pad_id,
            quotes=quotes,
        )
        assert samples.log_probs is not None, "settings.free_log_probs is needed for judging"
        for row, index in enumerate(indices):
            length = int(samples.lengths[row])
            tokens = tuple(samples.tokens[row, :length].tolist())
            text = vocabulary.decode(tokens)
            yield (
                index,
                JudgedSample(
                    question=questions[index],
                    text=text,
                    judgement=judge(text, questions[index]),
                    tokens=tokens,
                    log_prob=float(np.sum(samples.log_probs[row, :length], dtype=np.float64)),
                ),
            )


def _graphs(constraint: QuoteConstraint, questions: Sequence[Question]) -> list[PromptGraph]:
    graphs = []
    for question in questions:
        try:
            graphs.append(constraint.graph(pages_of(question)))
        except NoLegalAnswer as error:
            raise NoLegalAnswer(f"question {question.id!r}: {error}") from None
    return graphs
