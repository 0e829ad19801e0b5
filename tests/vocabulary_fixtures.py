"""Tokenizers of every supported kind, trained in memory on a few lines of our own."""

import functools
import io
import itertools
import json

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from gophercite.vocabularies import (
    HuggingFaceVocabulary,
    SentencePieceVocabulary,
    Vocabulary,
    train_sentencepiece,
)

TEXTS = [
    "The lighthouse of Ormsby was built in 1874 by the engineer Ada Fenwick.",
    "It stands 31 metres above the harbour; its lamp was lit with whale oil until 1902.",
    "Ormsby is a small fishing town. Most families work in the harbour or in the salt yards.",
    "Page: Ormsby\nThe town lies on the river Ilse.\n\nQuestion: Where is Ormsby?\nAnswer:",
    "Çà et là, naïve façades — “quoted” – 100 % €5.",
    "  indented text with   several spaces  and\ttabs",
] * 4

BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]


@functools.cache
def trained(model_type: str = "unigram") -> SentencePieceVocabulary:
    return train_sentencepiece(TEXTS, 480, model_type)  # type: ignore[arg-type]


@functools.cache
def llama_like_model() -> bytes:
    """A SentencePiece model as Llama's: BPE, byte fallback, dummy prefix, begin of sequence."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        model_type="bpe",
        vocab_size=420,
        hard_vocab_limit=False,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return model.getvalue()


@functools.cache
def normalising_model() -> bytes:
    """A SentencePiece model as T5's, but with byte fallback: NFKC, and spaces collapsed."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=model,
        vocab_size=420,
        hard_vocab_limit=False,
        byte_fallback=True,
        minloglevel=2,
    )
    return model.getvalue()


def trained_bytes(tokenizer: tokenizers.Tokenizer, texts: list[str], size: int) -> str:
    """The JSON of a byte-level tokenizer, trained on texts."""
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str()


@functools.cache
def byte_level_json(add_prefix_space: bool = False) -> str:
    """A tokenizer as GPT-2's."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    return trained_bytes(tokenizer, TEXTS, 400)


# What tokenizers may split or join: words, marks, digits and white space of every kind.
PIECES_OF_TEXT = [
    *("The", "mill", "s", "é", "中", "\u0301", "18", "7", ".", "]%", "%<", "'", "\u200b", "\x1c"),
    *(" ", "  ", "\n", "\n\n", "\t", "\r", "\xa0", "\u2003", "\x85"),
]
BYTE_LEVEL = {
    "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True
}  # fmt: skip


def splits_by(words: str) -> list[dict[str, object]]:
    """Pre-tokenizers of a byte-level tokenizer that splits texts by a pattern."""
    cut = {"type": "Split", "pattern": {"Regex": words}, "behavior": "Isolated", "invert": False}
    return [cut, BYTE_LEVEL | {"use_regex": False}]


def split_json(splits: list[dict[str, object]]) -> str:
    """A byte-level tokenizer with these pre-tokenizers, with tokens for what they leave whole."""
    parts = json.loads(byte_level_json())
    parts["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": splits}
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(parts))
    texts = ["".join(each) for each in itertools.product(PIECES_OF_TEXT, repeat=3)]
    return trained_bytes(tokenizer, texts, 2000)


@functools.cache
def metaspace_json(prefix: str) -> str:
    """A tokenizer as Llama's (`prefix` "prepend" or "metaspace") or Gemma's ("none")."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    if prefix == "metaspace":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    elif prefix == "prepend":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    trainer = trainers.BpeTrainer(
        vocab_size=200, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    settings = json.loads(tokenizer.to_str())
    vocabulary = settings["model"]["vocab"]
    for piece in BYTE_PIECES:
        vocabulary[piece] = len(vocabulary)
    return json.dumps(settings)


@functools.cache
def nfc_byte_level_json() -> str:
    """A tokenizer as Qwen's: byte-level, with a normaliser that composes."""
    settings = json.loads(byte_level_json())
    settings["normalizer"] = {"type": "NFC"}
    return json.dumps(settings)


@functools.cache
def vocabularies() -> dict[str, Vocabulary]:
    """One vocabulary of each kind, by name."""
    return {
        "unigram": trained("unigram"),
        "bpe": trained("bpe"),
        "llama": SentencePieceVocabulary(llama_like_model()),
        "normalising": SentencePieceVocabulary(normalising_model()),
        "byte-level": HuggingFaceVocabulary(byte_level_json()),
        "byte-level, prefix": HuggingFaceVocabulary(byte_level_json(add_prefix_space=True)),
        "byte-level, NFC": HuggingFaceVocabulary(nfc_byte_level_json()),
        "metaspace": HuggingFaceVocabulary(metaspace_json("metaspace")),
        "metaspace, prepend": HuggingFaceVocabulary(metaspace_json("prepend")),
        "metaspace, none": HuggingFaceVocabulary(metaspace_json("none")),
    }
