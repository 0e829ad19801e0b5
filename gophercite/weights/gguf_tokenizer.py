"""Converts the tokenizer in a GGUF file's metadata to one of our vocabularies."""

from collections.abc import Callable
from typing import Any

import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from gophercite.storage.json_fields import describe
from gophercite.vocabularies import (
    HuggingFaceVocabulary,
    SentencePieceVocabulary,
    Vocabulary,
    VocabularyError,
)
from gophercite.vocabularies.hugging_face import LLAMA_3_WORDS, QWEN_WORDS
from gophercite.weights.gguf_file import GGUFFile

# Types of tokens, numbered as in SentencePiece.
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_KINDS = range(1, 7)

# By `tokenizer.ggml.pre`; the second first splits texts at each digit.
_GPT_2, _SMOLLM, _QWEN = "gpt-2", "smollm", "qwen2"
_LLAMA_3 = ("llama-bpe", "llama3", "llama-v3")
_WORDS = {
    _GPT_2: None,
    _SMOLLM: None,
    _QWEN: QWEN_WORDS,
    **dict.fromkeys(_LLAMA_3, LLAMA_3_WORDS),
}


def read_tokenizer(file: GGUFFile) -> Vocabulary:
    """The tokenizer of a GGUF file, with its end-of-sequence tokens and its chat template.

    Args:
      file: the file.

    Raises:
      VocabularyError: the tokenizer is of an unknown kind, a key is missing or of the wrong type,
        or the tokenizer can't represent texts exactly; the message names the file.
    """
    metadata = _Metadata(file)
    try:
        kind = metadata.text("model")
        if kind not in _READERS:
            raise VocabularyError(
                f"tokenizer.ggml.model is {kind!r}, not among the known ones "
                f"({', '.join(_READERS)})"
            )
        vocabulary = _READERS[kind](metadata)
        ends = (metadata.token(name) for name in ("eos", "eot", "eom"))
        vocabulary.end_by(end for end in ends if end is not None)
    except VocabularyError as error:
        raise VocabularyError(f"{file.path}: {error}") from None
    template = file.fields.get("tokenizer.chat_template")
    vocabulary.chat_template = template if isinstance(template, str) else None
    return vocabulary


class _Metadata:
    """The keys under `tokenizer.ggml`, checked."""

    def __init__(self, file: GGUFFile) -> None:
        self._fields = file.fields

    def get(self, name: str) -> Any:
        return self._fields.get(f"tokenizer.ggml.{name}")

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str):
            raise VocabularyError(f"tokenizer.ggml.{name}: expected a text, got {describe(value)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise VocabularyError(
                f"tokenizer.ggml.{name}: expected true or false, got {describe(value)}"
            )
        return default if value is None else value

    def list_of(self, name: str, kind: type) -> list[Any]:
        value = self.get(name)
        if not isinstance(value, list) or not all(type(each) is kind for each in value):
            raise VocabularyError(
                f"tokenizer.ggml.{name}: expected a list of {kind.__name__}, got {describe(value)}"
            )
        return value

    def tokens(self) -> tuple[list[str], list[int]]:
        """All tokens and their types."""
        tokens = self.list_of("tokens", str)
        kinds = self.list_of("token_type", int) if self.get("token_type") else []
        kinds = kinds or [_NORMAL] * len(tokens)
        if len(kinds) != len(tokens) or not set(kinds) <= set(_KINDS):
            raise VocabularyError(
                f"tokenizer.ggml.token_type: expected {len(tokens)} numbers from {_KINDS[0]} to "
                f"{_KINDS[-1]}, one for each token"
            )
        return tokens, kinds

    def token(self, name: str) -> int | None:
        """The id of a special token; None if there is none."""
        key, size = f"{name}_token_id", len(self.get("tokens") or ())
        value = self.get(key)
        if value is None:
            return None
        if type(value) is not int or not 0 <= value < size:
            raise VocabularyError(
                f"tokenizer.ggml.{key}: expected one of {size} ids, got {describe(value)}"
            )
        return value


def _byte_level(metadata: _Metadata) -> Vocabulary:
    """Builds a tokenizer of GPT-2's kind: byte-level BPE."""
    pre = metadata.text("pre")
    if pre not in _WORDS:
        raise VocabularyError(
            f"tokenizer.ggml.pre is {pre!r}, not among the known ones ({', '.join(_WORDS)})"
        )
    tokens, kinds = metadata.tokens()
    ids = {token: id for id, token in enumerate(tokens)}
    if len(ids) < len(tokens):
        raise VocabularyError("tokenizer.ggml.tokens: some token is there twice")
    merges = [tuple(merge.split(" ")) for merge in metadata.list_of("merges", str)]
    if any(len(merge) != 2 for merge in merges):
        raise VocabularyError("tokenizer.ggml.merges: expected two tokens and a space each")
    try:
        tokenizer = tokenizers.Tokenizer(BPE(ids, merges, ignore_merges=pre in _LLAMA_3))
    except Exception as error:  # the library raises plain `Exception`
        raise VocabularyError(f"tokenizer.ggml.merges: {error}") from None
    if pre == _QWEN:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(pre)
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, kinds, strict=True) if kind in (_CONTROL, _UNUSED)]
    tokenizer.add_special_tokens([_added(token) for token in special])
    added = [t for t, kind in zip(tokens, kinds, strict=True) if kind == _USER_DEFINED]
    tokenizer.add_tokens([_added(token) for token in added])

    def name(which: str) -> str | None:
        id = metadata.token(which)
        return None if id is None else tokens[id]

    return HuggingFaceVocabulary(
        tokenizer.to_str(),
        eos_token=name("eos"),
        bos_token=name("bos"),
        pad_token=name("padding"),
        add_bos_token=metadata.flag("add_bos_token", default=pre in _LLAMA_3),
    )


def _pre_tokenizer(pre: str) -> pre_tokenizers.PreTokenizer:
    words = _WORDS[pre]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words is None)
    if words is not None:
        cut = pre_tokenizers.Split(tokenizers.Regex(words), "isolated")
        return pre_tokenizers.Sequence([cut, byte_level])
    if pre == _SMOLLM:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    return byte_level


def _added(token: str) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(token, normalized=False)


def _sentence_piece(metadata: _Metadata) -> Vocabulary:
    """Builds a tokenizer of Llama 2's and Gemma's kind: pieces with scores, and byte fallback."""
    tokens, kinds = metadata.tokens()
    scores = metadata.list_of("scores", float)
    if len(scores) != len(tokens):
        raise VocabularyError(
            f"tokenizer.ggml.scores: expected {len(tokens)} numbers, one for each token"
        )
    proto = sentencepiece_model_pb2.ModelProto()
    for token, score, kind in zip(tokens, scores, kinds, strict=True):
        proto.pieces.add(piece=token, score=score, type=kind)
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    trainer.model_type = sentencepiece_model_pb2.TrainerSpec.BPE
    trainer.vocab_size, trainer.byte_fallback = len(tokens), True
    for name, field in (("unknown", "unk"), ("bos", "bos"), ("eos", "eos"), ("padding", "pad")):
        id = metadata.token(name)
        setattr(trainer, f"{field}_id", -1 if id is None else id)
        if id is not None:
            setattr(trainer, f"{field}_piece", tokens[id])
    normalizer.name = "identity"
    normalizer.add_dummy_prefix = metadata.flag("add_space_prefix", default=True)
    normalizer.remove_extra_whitespaces = False
    normalizer.escape_whitespaces = True
    add_bos = metadata.flag("add_bos_token", default=True)
    return SentencePieceVocabulary(proto.SerializeToString(), add_bos_token=add_bos)


_READERS: dict[str, Callable[[_Metadata], Vocabulary]] = {
    "gpt2": _byte_level,
    "llama": _sentence_piece,
}
