"""SentencePiece models as `tokenizer.json`: the same tokens, there and read back from there."""

import io
import pathlib
import random

import pytest
import sentencepiece
import tokenizers
from vocabulary_fixtures import TEXTS, trained

from gophercite.vocabularies import SentencePieceVocabulary, load_vocabulary


def test_a_model_reads_the_same_when_it_comes_back_as_a_tokenizer_json(
    tmp_path: pathlib.Path,
) -> None:
    trained("bpe").export(tmp_path)
    (tmp_path / "tokenizer.model").unlink()
    again = load_vocabulary(tmp_path)
    for text in (" %<It stands in the harbour.>%(Ormsby)%[salt  yards]%", *TEXTS):
        assert again.encode(text) == trained("bpe").encode(text)
    every = range(again.size)
    assert [again.token_bytes(i) for i in every] == [trained("bpe").token_bytes(i) for i in every]


@pytest.mark.parametrize("dummy_prefix", [False, True])
def test_symbols_of_one_s_own_stay_whole_in_an_exported_model(
    dummy_prefix: bool, tmp_path: pathlib.Path
) -> None:
    model = io.BytesIO()
    symbols = ["\n", "[A-Z]", "\u2581%<"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        model_type="bpe",
        vocab_size=420,
        hard_vocab_limit=False,
        byte_fallback=True,
        normalization_rule_name="identity",
        add_dummy_prefix=dummy_prefix,
        remove_extra_whitespaces=False,
        user_defined_symbols=symbols,
        minloglevel=2,
    )
    own = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    vocabulary = SentencePieceVocabulary(model.getvalue())
    vocabulary.export(tmp_path)
    exported = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    exported.post_processor = tokenizers.processors.TemplateProcessing("$A")
    draw = random.Random(0)
    for _ in range(500):
        text = "".join(
            draw.choices([*"abAZ. ", *symbols, " ", " %<", "the "], k=draw.randint(1, 9))
        )
        if text in symbols:
            continue
        assert exported.encode(text).ids == own.encode(text), repr(text)
        assert exported.decode(exported.encode(text).ids) == text.replace("\u2581", " ")
    (tmp_path / "tokenizer.model").unlink()
    again = load_vocabulary(tmp_path)
    assert again.dummy_prefix == dummy_prefix
    for text in (*TEXTS, "\n", "a[A-Z]\nb %<c"):
        assert again.encode(text) == vocabulary.encode(text), repr(text)
