"""The prompt of table 12, and its tokens."""

import copy

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from vocabulary_fixtures import llama_like_model, trained, vocabularies

from gophercite import prompts
from gophercite.documents import Document, Window
from gophercite.evidence import Evidence, parse
from gophercite.vocabularies import SentencePieceVocabulary

ORMSBY = Document("o", "Ormsby", "Ormsby is a town. Its lighthouse was built in 1874.")
ILSE = Document("i", "Ilse (river)", "The Ilse is 40 km long.")
QUESTION = "When was the lighthouse built?"
ANSWER = Evidence("In 1874.", "Ormsby", "Its lighthouse was built in 1874.")


def test_the_template() -> None:
    assert prompts.prompt(QUESTION, [Window(ORMSBY, 18, 51), ILSE]) == (
        "Page: Ormsby\nIts lighthouse was built in 1874.\n\n"
        "Page: Ilse (river)\nThe Ilse is 40 km long.\n\n"
        "Question: When was the lighthouse built?\nAnswer:"
    )
    assert prompts.prompt(QUESTION, []) == f"Question: {QUESTION}\nAnswer:"


def test_the_question_may_also_come_first() -> None:
    """For models that were trained so; what a judge reads has no pages, and one question."""
    vocabulary = copy.copy(trained())
    vocabulary.question_first = True
    expected = (
        f"Question: {QUESTION}\n\n"
        "Page: Ormsby\nIts lighthouse was built in 1874.\n\n"
        "Page: Ilse (river)\nThe Ilse is 40 km long.\n\n"
        f"Question: {QUESTION}\nAnswer:"
    )
    shown = [Window(ORMSBY, 18, 51), ILSE]
    assert prompts.prompt(QUESTION, shown, question_first=True) == expected
    assert prompts.encode_prompt(vocabulary, QUESTION, shown) == prompts.encode_text(
        vocabulary, expected
    )
    plain = prompts.encode_judged(trained(), QUESTION, (ANSWER,))
    assert prompts.encode_judged(vocabulary, QUESTION, (ANSWER,)) == plain


@pytest.mark.parametrize(
    ("trained_length", "max_tokens", "expected"),
    [
        (None, 256, 3840),
        (4096, 256, 3840),  # the paper's
        (1024, 256, 896),
        (1024, 64, 960),
        (192, 256, 168),  # answers are shorter than they may be
        (8192, 256, 3840),
        (1, 256, 1),
    ],
)
def test_prompts_are_as_long_as_in_training(
    trained_length: int | None, max_tokens: int, expected: int
) -> None:
    assert prompts.usual_prompt_tokens(trained_length, max_tokens) == expected


@pytest.mark.parametrize(
    ("trained_length", "max_tokens", "expected"),
    [(None, 256, 768), (1024, 256, 768), (1024, 128, 896), (512, 256, 448), (None, 1023, 1)],
)
def test_prompts_leave_the_learned_positions_of_an_answer(
    trained_length: int | None, max_tokens: int, expected: int
) -> None:
    assert prompts.usual_prompt_tokens(trained_length, max_tokens, 1024) == expected
    with pytest.raises(ValueError, match=r"max_tokens = 1024: .* only 1024 learned positions"):
        prompts.usual_prompt_tokens(trained_length, 1024, 1024)


@pytest.mark.parametrize(
    ("trained_length", "most", "claims", "expected"),
    [
        (None, 256, 1, 256),
        (1024, 256, 1, 128),
        (1024, 100, 1, 100),
        (192, 256, 1, 128),  # an eighth would be too few for a quote
        (192, 999, 3, 384),
        (1024, 256, 3, 256),
        (1536, 256, 1, 192),
        (4096, 256, 1, 256),
    ],
)
def test_answers_are_an_eighth_of_the_length_in_training(
    trained_length: int | None, most: int, claims: int, expected: int
) -> None:
    assert prompts.usual_max_tokens(trained_length, most, claims) == expected


def test_the_response_follows_a_space_and_parses() -> None:
    text = prompts.response(ANSWER)
    assert text == " %<In 1874.>%(Ormsby)%[Its lighthouse was built in 1874.]%"
    assert parse(text) == (ANSWER,)
    with pytest.raises(ValueError, match="reserved mark"):
        prompts.response(Evidence("%<", "t", "q"))


def test_prompt_tokens_are_those_of_the_models_own_tokenizer() -> None:
    reference = sentencepiece.SentencePieceProcessor(model_proto=llama_like_model())
    expected = reference.encode(prompts.prompt(QUESTION, [ORMSBY]), add_bos=True)
    llama = SentencePieceVocabulary(llama_like_model())
    assert prompts.encode_prompt(llama, QUESTION, [ORMSBY]) == expected


@settings(deadline=None)
@given(question=st.text(max_size=30), kind=st.sampled_from(sorted(vocabularies())))
def test_prompt_and_response_tokens_spell_their_texts(question: str, kind: str) -> None:
    vocabulary = vocabularies()[kind]
    prompt = vocabulary.decode(prompts.encode_prompt(vocabulary, question, [ILSE]))
    assert prompt.removeprefix(" ") == prompts.prompt(question, [ILSE])
    response = prompts.encode_response(vocabulary, ANSWER, ANSWER)
    assert response[-1] == vocabulary.eos_id
    assert vocabulary.decode(response) == prompts.response(ANSWER, ANSWER)


def test_no_beginning_of_sequence_where_the_vocabulary_has_none() -> None:
    ids = prompts.encode_prompt(trained(), QUESTION, [ORMSBY])
    assert trained().decode(ids[:1]) != ""
