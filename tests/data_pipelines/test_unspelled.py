"""Answers that a vocabulary can't spell exactly are no examples; pages with such characters are."""

import json
import logging

import pytest
import tensorflow as tf

from data_pipelines.features import SeqioVocabulary, output_features
from data_pipelines.preprocessors import encode_rated_answers
from gophercite import records
from gophercite.documents import Document
from tests.quoting.quote_worlds import MISSING, TokenList

PAGE = Document("0", "Ormsby", "A bell\x04 rang. The tower was built in 1874.")


def rated(question_id: str, quote: str) -> str:
    answer = records.RatedAnswer(
        question_id=question_id,
        question="When?",
        documents=(PAGE,),
        claim="In 1874.",
        title=PAGE.title,
        quote=quote,
        document=PAGE.id,
        plausible=True,
        supported=True,
    )
    return json.dumps(records.to_json(answer))


def test_answers_that_can_not_be_spelled_are_dropped_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    vocabulary = TokenList([], MISSING)
    lines = [rated("q0", "A bell\x04 rang."), rated("q1", "The tower was built in 1874.")]
    dataset = tf.data.Dataset.from_tensor_slices({"record": lines})
    with caplog.at_level(logging.WARNING):
        encoded = encode_rated_answers(dataset, output_features(SeqioVocabulary(vocabulary)))
        (example,) = encoded.as_numpy_iterator()
    text = vocabulary.decode(example["tokens"].tolist())
    assert "A bell\ufffd rang" in text
    assert text.endswith("%[The tower was built in 1874.]%")
    assert [record.args for record in caplog.records] == [("q0",)]
