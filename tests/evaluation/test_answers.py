"""A model answers questions: a real model, real sampling, real judgements."""

import jax
import pytest
from vocabulary_fixtures import trained

from gophercite import prompts
from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.evaluation.answers import answer_questions, encode_question
from gophercite.evaluation.metrics import judge
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.records import Hit, Question

SETTINGS = SamplingSettings(max_tokens=8, temperature=0.0)
PAGE = Document("o", "Ormsby", "Built in 1874.")
QUESTIONS = [
    Question("q0", "When and where was it built?", "test", (PAGE,)),
    Question("q1", "When?", "test", (PAGE,), ("1874",)),
    Question("q2", "Where is it?", "test", (PAGE,)),
]


@pytest.fixture(scope="module")
def transformer() -> Transformer:
    return Transformer(
        TransformerConfig(
            vocab_size=trained().size, d_model=16, num_layers=2, num_heads=2, head_dim=8,
            position="rope", dtype="float32",
        )
    )  # fmt: skip


def test_each_question_is_answered_once_as_the_sampler_answers_it(transformer: Transformer) -> None:
    params = transformer.init(jax.random.key(0))
    vocabulary = trained()
    found = dict(
        answer_questions(
            transformer, params, vocabulary, QUESTIONS, SETTINGS, jax.random.key(1), batch_size=2
        )
    )
    assert sorted(found) == [0, 1, 2]
    for index, question in enumerate(QUESTIONS):
        prompt = prompts.encode_prompt(vocabulary, question.question, [PAGE])
        alone = sample(
            transformer,
            params,
            [prompt, prompt],
            jax.random.key(2),
            SETTINGS,
            eos_id=vocabulary.eos_id,
            pad_id=vocabulary.pad_id,
        )
        answer = found[index]
        assert answer.question is question
        assert list(answer.tokens) == alone.tokens[0, : alone.lengths[0]].tolist()
        assert answer.text == vocabulary.decode(answer.tokens)
        assert answer.judgement == judge(answer.text, question)
        assert answer.log_prob == pytest.approx(alone.log_probs[0].sum(), rel=1e-4)


def test_a_page_that_is_not_there_is_named() -> None:
    question = Question("q", "When?", "test", (PAGE, Hit("h", "a snippet")))
    with pytest.raises(ValueError, match="question 'q': document 'h' has a snippet but no text"):
        encode_question(trained(), question)
