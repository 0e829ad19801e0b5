"""What tokens spell, as the tokenizers' own libraries say: nothing of gophercite is used here."""

import pathlib
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import sentencepiece
import tokenizers

_BYTE = re.compile("<0x([0-9A-F]{2})>")
_SPACE = "\u2581"


class Spelling(NamedTuple):
    """A tokenizer, read from its file.

    Attributes:
      size: ids that it has.
      silent: those of special tokens.
      of: the bytes that some tokens spell in the midst of a text.
      decoded: the text that the library makes of them.
    """

    size: int
    silent: frozenset[int]
    of: Callable[[Sequence[int]], bytes]
    decoded: Callable[[Sequence[int]], str]


def read(path: pathlib.Path) -> Spelling:
    """Reads a SentencePiece model or a `tokenizer.json`."""
    return _hugging_face(path) if path.suffix == ".json" else _sentencepiece(path)


def _sentencepiece(path: pathlib.Path) -> Spelling:
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    ids = range(model.get_piece_size())
    silent = {id for id in ids if model.is_control(id) or model.is_unknown(id)}
    silent |= {id for id in ids if model.is_unused(id)}
    pieces = {
        id: bytes([int(model.id_to_piece(id)[3:5], 16)])
        if model.is_byte(id)
        else model.id_to_piece(id).replace(_SPACE, " ").encode()
        for id in ids
        if id not in silent
    }
    return Spelling(
        len(ids),
        frozenset(silent),
        lambda tokens: b"".join(pieces.get(id, b"\xff") for id in tokens),
        _after_a_letter(lambda tokens: model.decode(tokens), model.piece_to_id("<0x61>")),
    )


def _hugging_face(path: pathlib.Path) -> Spelling:
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    added = tokenizer.get_added_tokens_decoder()
    silent = frozenset(id for id, token in added.items() if token.special)
    alphabet = _byte_level_alphabet() if '"ByteLevel"' in path.read_text("utf-8") else None
    pieces = {}
    for piece, id in tokenizer.get_vocab().items():
        if id in added:
            pieces[id] = added[id].content.encode()
        elif alphabet is not None:
            pieces[id] = bytes(alphabet[character] for character in piece)
        elif byte := _BYTE.fullmatch(piece):
            pieces[id] = bytes.fromhex(byte[1])
        else:
            pieces[id] = piece.replace(_SPACE, " ").encode()
    letter = tokenizer.token_to_id("a" if alphabet else "<0x61>")
    return Spelling(
        max(pieces) + 1,
        silent,
        lambda tokens: b"".join(pieces.get(id, b"\xff") for id in tokens),
        _after_a_letter(lambda ids: tokenizer.decode(ids, skip_special_tokens=False), letter),
    )


def _after_a_letter(decode: Callable[[list[int]], str], letter: int) -> Callable[..., str]:
    """Decodes behind an "a" of its own, as libraries drop the space that a text begins with."""
    return lambda tokens: decode([letter, *tokens]).removeprefix("a")


def _byte_level_alphabet() -> dict[str, int]:
    """The bytes that GPT-2's characters stand for.

    A byte that is a visible Latin-1 character stands for itself, and the others, in their order,
    have the characters from U+0100 on.
    """
    visible = [chr(byte).isprintable() and not chr(byte).isspace() for byte in range(256)]
    hidden = [byte for byte in range(256) if not visible[byte]]
    own = {chr(byte): byte for byte in range(256) if visible[byte]}
    return own | {chr(0x100 + place): byte for place, byte in enumerate(hidden)}
