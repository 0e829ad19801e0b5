"""SentencePiece models with byte fallback: our own, and those of Gopher, Llama and Gemma."""

import os
import pathlib
import re

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2

from gophercite.vocabularies.beginnings import (
    TOKENIZER_JSON,
    adds_bos_token,
    read_tokenizer_json,
)
from gophercite.vocabularies.conversion import to_tokenizer_json
from gophercite.vocabularies.end_tokens import write_end_tokens
from gophercite.vocabularies.prompt_form import PromptForm
from gophercite.vocabularies.tokenizer_config import TEMPLATE_NAME, write_config
from gophercite.vocabularies.vocabulary import (
    BYTES,
    Vocabulary,
    VocabularyError,
    byte_of_piece,
)

FILE_NAME = "vocabulary.model"
PUBLISHED_NAME = "tokenizer.model"  # Llama's and Gemma's

_MOST_RENAMED = 0.1  # share of the pieces that a conversion may name otherwise

SPACE = "\u2581"  # the pieces' character for a space
_OVER_WORDS = re.compile(rf"[^{SPACE}\n][{SPACE}\n]")  # a word and the white space that follows it
_PieceType = sentencepiece_model_pb2.ModelProto.SentencePiece.Type


class SentencePieceVocabulary(Vocabulary):
    """A SentencePiece model, unigram or BPE.

    Args:
      model: the serialised model, as in a `.model` file.
      add_bos_token: texts begin with the beginning-of-sequence piece, if there is one.

    Raises:
      VocabularyError: when this is not a SentencePiece model, or one without byte fallback or
        end-of-sequence piece.
    """

    def __init__(self, model: bytes, *, add_bos_token: bool = True) -> None:
        proto = _read_proto(model)
        self._model = model  # written back unchanged by `save`
        self.dummy_prefix = proto.normalizer_spec.add_dummy_prefix
        self.splits_words = not any(_OVER_WORDS.search(piece.piece) for piece in proto.pieces)

        pieces = proto.pieces
        byte_ids = {
            byte: id
            for id, piece in enumerate(pieces)
            if piece.type == _PieceType.BYTE and (byte := byte_of_piece(piece.piece)) is not None
        }
        if len(byte_ids) != BYTES:
            raise VocabularyError(
                f"the SentencePiece model has {len(byte_ids)} of {BYTES} byte pieces: it cannot "
                "spell every text, so quotes would not be exact; train it with byte fallback"
            )
        super().__init__(
            [_bytes_of_piece(piece) for piece in pieces], [byte_ids[b] for b in range(BYTES)]
        )

        # Only these two settings make the encoding of a text depend on where the text starts.
        proto.normalizer_spec.add_dummy_prefix = False
        proto.normalizer_spec.remove_extra_whitespaces = False
        try:
            self._processor = sentencepiece.SentencePieceProcessor(
                model_proto=proto.SerializeToString()
            )
        except RuntimeError as error:  # duplicate pieces, no unknown piece …
            raise VocabularyError(f"the SentencePiece model cannot be used ({error})") from None
        if self._processor.eos_id() < 0:
            raise VocabularyError("the SentencePiece model has no end-of-sequence piece")
        self.eos_id = self._processor.eos_id()
        self.pad_id = self._processor.pad_id() if self._processor.pad_id() >= 0 else self.eos_id
        self.bos_id = _id_or_none(self._processor.bos_id()) if add_bos_token else None
        self.unk_id = _id_or_none(self._processor.unk_id())

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "SentencePieceVocabulary":
        """Reads a `.model` file, and from the files next to it whether texts have a beginning."""
        path = pathlib.Path(path)
        converted = read_tokenizer_json(path.parent)
        add_bos_token = adds_bos_token(path.parent, converted)
        try:
            vocabulary = cls(path.read_bytes(), add_bos_token=add_bos_token)
            if converted is not None:
                vocabulary._check_same(converted)
            return vocabulary
        except OSError as error:
            raise VocabularyError(f"{path}: can't be read: {error.strerror or error}") from None
        except VocabularyError as error:
            raise VocabularyError(f"{path}: {error}") from None

    def write_files(self, folder: str | os.PathLike[str]) -> None:
        """Writes `vocabulary.model`, and next to it what else is known of special tokens."""
        folder = pathlib.Path(folder)
        (folder / FILE_NAME).write_bytes(self._model)
        if self.bos_id is None and self._processor.bos_id() >= 0:
            write_config(folder, self._processor.id_to_piece, self)
        elif self.chat_template is not None:
            (folder / TEMPLATE_NAME).write_text(self.chat_template, "utf-8")
        write_end_tokens(folder, self)
        if (form := PromptForm.of(self)) != PromptForm():
            form.write(folder)

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Writes `tokenizer.model` and the same tokenizer as `tokenizer.json`."""
        folder = pathlib.Path(folder)
        (folder / PUBLISHED_NAME).write_bytes(self._model)
        bos = None if self.bos_id is None else self._processor.id_to_piece(self.bos_id)
        content = to_tokenizer_json(_read_proto(self._model), bos)
        (folder / TOKENIZER_JSON).write_text(content, "utf-8")
        write_config(folder, self._processor.id_to_piece, self)
        if (form := PromptForm.of(self)) != PromptForm():
            form.write(folder)

    def _tokenize(self, text: str) -> list[int]:
        return list(self._processor.encode(text))

    def _check_same(self, converted: tokenizers.Tokenizer) -> None:
        """Refuses another tokenizer's `tokenizer.json`: programs differ in which file they read."""
        ids = range(self._processor.get_piece_size())
        pieces = map(self._processor.id_to_piece, ids)
        names = map(converted.id_to_token, ids)
        other = [pair for pair in zip(ids, pieces, names, strict=True) if pair[1] != pair[2]]
        if len(other) > _MOST_RENAMED * len(ids):
            id, piece, name = other[0]
            raise VocabularyError(
                f"token {id} is {piece!r} here and {name!r} in {TOKENIZER_JSON}: they are not the "
                "same tokenizer; move away the one that is not the model's"
            )


def _read_proto(model: bytes) -> sentencepiece_model_pb2.ModelProto:
    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model)
    except Exception as error:  # protobuf's implementations each raise their own DecodeError
        raise VocabularyError(f"this is not a SentencePiece model ({error})") from None
    if not proto.pieces:
        raise VocabularyError("this is not a SentencePiece model: it has no pieces")
    for id, piece in enumerate(proto.pieces):
        if not isinstance(piece.piece, str):  # protobuf gives bytes where a text is none
            raise VocabularyError(
                f"the SentencePiece model's piece {id} is not text in UTF-8: {piece.piece!r}"
            )
    if not proto.normalizer_spec.escape_whitespaces:
        raise VocabularyError(
            f"the SentencePiece model does not write spaces as {SPACE!r} (escape_whitespaces is "
            "off), which is not supported"
        )
    return proto


def _bytes_of_piece(piece: sentencepiece_model_pb2.ModelProto.SentencePiece) -> bytes | None:
    if piece.type == _PieceType.BYTE:
        byte = byte_of_piece(piece.piece)
        return None if byte is None else bytes([byte])
    if piece.type in (_PieceType.NORMAL, _PieceType.USER_DEFINED):
        return piece.piece.replace(SPACE, " ").encode("utf-8")
    return None  # control, unknown and unused pieces


def _id_or_none(id: int) -> int | None:
    return id if id >= 0 else None
