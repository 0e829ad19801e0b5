"""From records to tokens: filters, changes of documents, and the encoding of prompt and response.

Each is a function from one `tf.data.Dataset` to another, as seqio tasks require. All steps before
an `encode_…` map records to records, so that rules about documents can come between the filter and
the encoding. They draw random numbers only from `randomness.draws`.
"""

import json
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import seqio
import tensorflow as tf
from jaxtyping import Bool

from data_pipelines import citations
from data_pipelines.citations import Part
from data_pipelines.features import plain_vocabulary
from data_pipelines.randomness import draws
from gophercite import prompts, records
from gophercite.documents import Document
from gophercite.evidence import Evidence
from gophercite.vocabularies import Vocabulary

# The first tokens of a copy show what is copied: two sentences of a page rarely begin with the same
# four tokens.
_DECISIVE_TOKENS = 4
_log = logging.getLogger(__name__)

Preprocessor = Callable[..., tf.data.Dataset]
Encoder = Callable[[dict[str, Any]], tuple[np.ndarray, np.ndarray]]


def keep_rated_good(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Keeps the rated answers that are plausible and supported (section 2.7)."""

    def good(record: bytes) -> np.bool_:
        answer = json.loads(record)
        return np.bool_(answer.get("plausible") is True and answer.get("supported") is True)

    return dataset.filter(
        lambda example: tf.ensure_shape(
            tf.numpy_function(good, [example["record"]], tf.bool, stateful=False), []
        )
    )


def make_texts(
    dataset: tf.data.Dataset, make: Callable[[Document, random.Random], list[Part]]
) -> tf.data.Dataset:
    """Turns documents into texts in parts, with new draws in each epoch.

    Args:
      dataset: documents.
      make: makes a text from a document and its random numbers.
    """

    def made_of(record: bytes, id: bytes, seed: np.int64) -> str:
        document = records.from_json(json.loads(record), records.Document)
        draw = draws(int(seed), make.__name__, id.decode())
        return json.dumps(citations.to_json(make(document, draw)), ensure_ascii=False)

    def made(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        inputs = [example[name] for name in ("record", "id", "seed")]
        record = tf.numpy_function(made_of, inputs, tf.string, stateful=False)
        return {**example, "record": tf.ensure_shape(record, [])}

    return dataset.map(made)


def encode_rated_answers(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    prompt_weight: float = 0.0,
    copied_weight: float = 1.0,
) -> tf.data.Dataset:
    """Encodes rated answers: the prompt of table 12, and the answer with its inline evidence.

    An answer that the vocabulary can't spell exactly would teach a different answer, so it is
    dropped and logged.

    Args:
      dataset: rated answers that include all their documents.
      output_features: the task's features, whose vocabulary encodes.
      prompt_weight: weight of the prompt's tokens in the loss.
      copied_weight: weight of the tokens that only continue a title or quote. These are the tokens
        after its first four, which nearly always determine the page or sentence. Other response
        tokens have weight 1.
    """
    vocabulary = plain_vocabulary(output_features)

    def encode(value: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        answer = records.from_json(value, records.RatedAnswer)
        pages = [page for page in answer.documents if isinstance(page, Document)]
        triple = Evidence(answer.claim, answer.title, answer.quote)
        if not vocabulary.spells(prompts.response(triple)):
            _log.warning(
                "the answer to question %r was dropped: it holds a character that the vocabulary "
                "can't spell",
                answer.question_id,
            )
            return _weighted([], [], prompt_weight)
        prompt = prompts.encode_prompt(vocabulary, answer.question, pages)
        response = prompts.encode_response(vocabulary, triple)
        tokens, weights = _weighted(prompt, response, prompt_weight)
        weights[len(prompt) :][_goes_on(vocabulary, response, triple)] = copied_weight
        return tokens, weights

    return _encode(dataset, encode).filter(lambda example: tf.size(example["tokens"]) > 0)


def encode_completions(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    prompt_weight: float = 0.0,
) -> tf.data.Dataset:
    """Encodes completions: a prompt as it is, and the text after it (WebGPT, 3.2).

    A completion that the vocabulary can't spell exactly would teach a different one, so it is
    dropped and logged.

    Args:
      dataset: completions.
      output_features: the task's features, whose vocabulary encodes.
      prompt_weight: weight of the prompt's tokens in the loss.
    """
    vocabulary = plain_vocabulary(output_features)

    def encode(value: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        each = records.from_json(value, records.Completion)
        if not vocabulary.spells(each.completion):
            _log.warning(
                "completion %r was dropped: it holds a character that the vocabulary can't spell",
                each.id,
            )
            return _weighted([], [], prompt_weight)
        prompt = prompts.encode_text(vocabulary, each.prompt)
        written = prompts.encode_response_text(vocabulary, each.completion)
        return _weighted(prompt, [*written, vocabulary.eos_id], prompt_weight)

    return _encode(dataset, encode).filter(lambda example: tf.size(example["tokens"]) > 0)


def encode_questions(
    dataset: tf.data.Dataset, output_features: Mapping[str, seqio.Feature]
) -> tf.data.Dataset:
    """Encodes questions: `tokens` are the prompt of table 12 with all documents, as at inference.

    Args:
      dataset: questions that include all their documents.
      output_features: the task's features, whose vocabulary encodes.
    """
    vocabulary = plain_vocabulary(output_features)

    def encode(record: bytes) -> np.ndarray:
        question = records.from_json(json.loads(record), records.Question)
        pages = [page for page in question.documents if isinstance(page, Document)]
        tokens = prompts.encode_prompt(vocabulary, question.question, pages)
        return np.asarray(tokens, np.int32)

    def encoded(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        tokens = tf.numpy_function(encode, [example["record"]], tf.int32, stateful=False)
        return {**example, "tokens": tf.ensure_shape(tokens, [None])}

    return dataset.map(encoded)


def encode_closed_book(
    dataset: tf.data.Dataset, output_features: Mapping[str, seqio.Feature]
) -> tf.data.Dataset:
    """Encodes questions without their documents, and the first answer as plain text.

    Args:
      dataset: questions with answers.
      output_features: the task's features, whose vocabulary encodes.
    """
    vocabulary = plain_vocabulary(output_features)

    def encode(value: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        prompt = prompts.encode_prompt(vocabulary, value["question"], [])
        response = [*vocabulary.encode(f" {value['answers'][0]}"), vocabulary.eos_id]
        return _weighted(prompt, response, 0.0)

    return _encode(dataset, encode)


def encode_texts(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    prompt_weight: float = 1.0,
) -> tf.data.Dataset:
    """Encodes texts in parts for language modelling, with the beginning and end of sequence.

    Args:
      dataset: `{"parts": [{"text", "predictable"}]}`.
      output_features: the task's features, whose vocabulary encodes.
      prompt_weight: weight in the loss of the unpredictable parts; predictable parts and the end
        of sequence have weight 1.
    """
    vocabulary = plain_vocabulary(output_features)

    def encode(value: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        tokens: list[int] = []
        weights: list[float] = []
        for part in value["parts"]:
            text = part["text"]
            piece = vocabulary.encode(text) if tokens else prompts.encode_text(vocabulary, text)
            tokens += piece
            weights += [1.0 if part["predictable"] else prompt_weight] * len(piece)
        tokens.append(vocabulary.eos_id)
        weights.append(1.0)
        return np.asarray(tokens, np.int32), np.asarray(weights, np.float32)

    return _encode(dataset, encode)


def encode_documents(
    dataset: tf.data.Dataset,
    output_features: Mapping[str, seqio.Feature],
    sequence_length: Mapping[str, int],
) -> tf.data.Dataset:
    """Encodes documents for language modelling; long ones are cut into pieces of a row's length.

    If the model expects a token at the start of every sequence, each piece begins with it.

    Args:
      dataset: documents; the title is put before the text, and the end of sequence after it.
      output_features: the task's features, whose vocabulary encodes.
      sequence_length: `tokens` is the length of a row.
    """
    vocabulary = plain_vocabulary(output_features)
    beginning, nothing = _weighted(prompts.beginning(vocabulary), [], 0.0)
    before = {"tokens": beginning, "weights": nothing}
    length = sequence_length["tokens"] - len(beginning)

    def encode(value: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        document = records.from_json(value, records.Document)
        text = prompts.encode_text(vocabulary, f"{document.title}\n{document.text}")
        return _weighted([], [*text[len(beginning) :], vocabulary.eos_id], 1.0)

    def pieces(example: dict[str, tf.Tensor]) -> tf.data.Dataset:
        def piece(start: tf.Tensor) -> dict[str, tf.Tensor]:
            end = start + length
            cut = {
                name: tf.concat([first, example[name][start:end]], axis=0)
                for name, first in before.items()
            }
            return {**example, **cut}

        size = tf.size(example["tokens"], tf.int64)
        return tf.data.Dataset.range(0, size, length).map(piece)

    return _encode(dataset, encode).flat_map(pieces)


def _goes_on(
    vocabulary: Vocabulary, response: list[int], triple: Evidence
) -> Bool[np.ndarray, " tokens"]:
    """Which of a response's tokens are inside its title or quote, after the first four there."""
    sizes = [len(vocabulary.token_bytes(id) or b"") for id in response]
    ends = np.cumsum(sizes)
    starts = ends - sizes
    goes_on = np.zeros(len(response), np.bool_)
    last = int(ends[-1])
    for text, mark in ((triple.quote, "]%"), (triple.title, ")%[")):
        end = last - len(mark)
        last = end - len(text.encode())
        inside = np.flatnonzero((starts >= last) & (ends <= end))
        goes_on[inside[_DECISIVE_TOKENS:]] = True
    return goes_on


def _weighted(
    prompt: list[int], response: list[int], prompt_weight: float
) -> tuple[np.ndarray, np.ndarray]:
    weights = np.ones(len(prompt) + len(response), np.float32)
    weights[: len(prompt)] = prompt_weight
    return np.asarray(prompt + response, np.int32), weights


def _encode(dataset: tf.data.Dataset, encoder: Encoder) -> tf.data.Dataset:
    def encode(record: bytes) -> tuple[np.ndarray, np.ndarray]:
        return encoder(json.loads(record))

    def encoded(example: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        types = (tf.int32, tf.float32)
        tokens, weights = tf.numpy_function(encode, [example["record"]], types, stateful=False)
        return {
            **example,
            "tokens": tf.ensure_shape(tokens, [None]),
            "weights": tf.ensure_shape(weights, [None]),
        }

    return dataset.map(encoded)
