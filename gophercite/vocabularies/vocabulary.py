"""The interface of all tokenizers: exact, byte by byte."""

import abc
import os
import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gophercite.vocabularies.errors import VocabularyError
from gophercite.vocabularies.listing import write_listing

if TYPE_CHECKING:
    from gophercite.vocabularies.word_store import Words, WordStore

__all__ = ["BYTES", "MAXIMUM_SIZE", "WORD", "Vocabulary", "VocabularyError", "byte_of_piece"]

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")

# A word with the white space before it; a text may end with white space only.
WORD = re.compile(r"[ \n]*+[^ \n]++|[ \n]++")
_HELD_WORDS = 1 << 17  # maximum number of words whose tokens are cached
_LONGEST_HELD = 64  # characters

BYTES = 256
MAXIMUM_SIZE = 1 << 24  # a file that claims more ids would only fill the memory

_REPLACEMENT = "\ufffd"
# Without these, marks or whole scripts could not be spelled: printable ASCII and the line feed,
# continuation bytes, and the first bytes of characters of two or three bytes and of emoji.
_NEEDED_BYTES = frozenset({0x0A, *range(0x20, 0x7F), *range(0x80, 0xC0), *range(0xC2, 0xF1)})

_BYTE_PIECE = re.compile("<0x([0-9A-Fa-f]{2})>")


class Vocabulary(abc.ABC):
    """A tokenizer that spells every text exactly.

    For every string `x` that UTF-8 can hold and the tokenizer can spell (`spells(x)`):

        decode(encode(x)) == x
        b"".join(token_bytes(id) for id in encode(x)) == x.encode("utf-8")

    Nearly all tokenizers spell everything. Some published ones lack bytes that hardly ever occur in
    text, such as control characters: the model then sees a replacement for each character that
    needs one, and no quote may contain it.

    Quotes must be verbatim, so a tokenizer's own normalisation (Unicode forms, stripped or
    collapsed spaces, unknown characters) never applies: characters that it would change are spelled
    by byte tokens. A dummy prefix, the space that some models expect before the first word, is not
    added here but at the start of a prompt (see `gophercite.prompts`).

    Text never encodes to a special token: `</s>` in a page is just four characters.

    Attributes:
      size: one more than the largest id, of the tokenizer or of `other_eos_ids`.
      pad_id: pads rows; the end-of-sequence token if the tokenizer has no padding token.
      eos_id: ends a response.
      bos_id: begins a prompt, for models that were trained with one.
      unk_id: the tokenizer's unknown token, which `encode` never returns.
      dummy_prefix: whether the model was trained with a space before the first word of a text.
      splits_words: whether no token extends from a word over the white space that follows it. If
        so, texts are tokenised word by word: what `word` matches has the same tokens everywhere.
      word: matches a word with the white space before it, so that matches cover a text.
      other_eos_ids: other tokens that end the published model's answers, such as the end of a turn.
      missing_bytes: bytes that have no token of their own; texts with a character that needs one of
        them are not spelled exactly.
      chat_template: the published model's chat template, in Jinja; stored, but never applied. None
        if there is none.
      question_first: whether the model was trained with prompts that begin with the question
        (`gophercite.prompts`). Like a chat template, it is stored with the tokenizer.
      trained_length: number of tokens that a prompt and its answer had at most when the model was
        trained to answer, stored likewise; None if that isn't known.
      several_pages: whether the model was also trained with prompts that show several pages, stored
        likewise.
    """

    size: int
    pad_id: int
    eos_id: int
    bos_id: int | None
    unk_id: int | None
    dummy_prefix: bool
    splits_words: bool = False
    word: re.Pattern[str] = WORD
    other_eos_ids: tuple[int, ...] = ()
    chat_template: str | None = None
    question_first: bool = False
    trained_length: int | None = None
    several_pages: bool = False

    def __init__(self, token_bytes: Sequence[bytes | None], byte_ids: Sequence[int | None]) -> None:
        """Called by subclasses.

        Args:
          token_bytes: the bytes that each token id spells; None for tokens that spell nothing.
          byte_ids: [256] the id of the token that spells each byte alone; None if there is none.

        Raises:
          VocabularyError: a byte is missing that whole scripts, or the marks of evidence, need.
        """
        self._token_bytes = tuple(token_bytes)
        self._byte_ids = tuple(byte_ids)
        self.missing_bytes = frozenset(b for b, id in enumerate(self._byte_ids) if id is None)
        self._unspelled = _unspelled(self.missing_bytes)
        self._is_kept: dict[str, bool] = {}
        self._words: dict[str, list[int]] = {}
        self._store: WordStore | None = None
        self.size = len(self._token_bytes)

    def end_by(self, ids: Iterable[int]) -> None:
        """Sets further tokens that end an answer; from now on they spell nothing.

        A tokenizer's file may lack them: a fine-tuned model often comes with that of its base.
        """
        self.other_eos_ids = tuple(id for id in ids if id != self.eos_id)
        ends = frozenset(self.other_eos_ids)
        missing = max(ends, default=0) + 1 - self.size
        if self.size + missing <= MAXIMUM_SIZE:  # otherwise no model has a row for them
            self._token_bytes += (None,) * missing
        self._token_bytes = tuple(
            None if id in ends else spelled for id, spelled in enumerate(self._token_bytes)
        )
        self.size = len(self._token_bytes)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the files that `load_vocabulary(folder)` reads, and their list with digests.

        Args:
          folder: created if missing.
        """
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.write_files(folder)
        write_listing(folder)

    @abc.abstractmethod
    def write_files(self, folder: str | os.PathLike[str]) -> None:
        """Writes the files for `load_vocabulary(folder)`, without their list; the folder exists."""

    def export(self, folder: str | os.PathLike[str]) -> None:
        """Writes the files that `transformers` reads; the folder exists."""
        self.write_files(folder)

    @abc.abstractmethod
    def _tokenize(self, text: str) -> list[int]:
        """Returns the tokenizer's own tokens of `text`, which may not spell it exactly."""

    def spells(self, text: str) -> bool:
        """Whether `text` is encoded exactly: always, unless bytes are missing."""
        return self._unspelled is None or not self._unspelled.search(text)

    def spelled_parts(self, text: str) -> list[tuple[int, int]]:
        """The spans of `text` that are encoded exactly, between characters that are not."""
        walls = [] if self._unspelled is None else self._unspelled.finditer(text)
        bounds = [0, *(place for wall in walls for place in wall.span()), len(text)]
        spans = zip(bounds[::2], bounds[1::2], strict=True)
        return [(start, end) for start, end in spans if start < end]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`, without beginning or end of sequence.

        Each character that can't be spelled is replaced by one U+FFFD.

        Raises:
          VocabularyError: when `text` holds a lone surrogate, which no bytes can spell.
        """
        if self._unspelled is not None:
            text = self._unspelled.sub(_REPLACEMENT, text)
        try:
            expected = text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise _surrogate_error(text, error) from None
        if not self.splits_words:
            return self._encode_whole(text, expected)
        ids: list[int] = []
        for word in self.word.findall(text):
            ids += self._words.get(word) or self._encode_word(word)
        return ids

    def words(self, text: str) -> "Words":
        """Returns the words of a text with their tokens, fast where the text is long.

        Args:
          text: starts where a word of the page does: at a space after anything but white space.

        Raises:
          ValueError: when the vocabulary doesn't tokenise word by word (`splits_words`).
          VocabularyError: when `text` holds a lone surrogate.
        """
        if self._store is None:
            if not self.splits_words:
                raise ValueError("the vocabulary has tokens that span several words")
            from gophercite.vocabularies.word_store import WordStore  # numba takes long to load

            self._store = WordStore(self.encode)
        try:
            return self._store.words(text)
        except UnicodeEncodeError as error:
            raise _surrogate_error(text, error) from None

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of `ids`; special tokens add nothing to it.

        Invalid UTF-8, such as the end of a sequence that was cut inside a character, gives U+FFFD.
        """
        spelled = (self._token_bytes[int(id)] or b"" for id in ids)
        return b"".join(spelled).decode("utf-8", errors="replace")

    def token_bytes(self, id: int) -> bytes | None:
        """Returns the bytes that token `id` contributes to a text, None for special tokens.

        A byte token gives its byte, which may not be valid UTF-8 by itself; a piece with a leading
        space includes that space, even at the start of a text.
        """
        return self._token_bytes[id]

    def _encode_word(self, word: str) -> list[int]:
        """Returns the ids of a word, and caches them: most words of a text are frequent."""
        ids = self._encode_whole(word, word.encode("utf-8"))
        if len(word) <= _LONGEST_HELD:
            if len(self._words) >= _HELD_WORDS:
                self._words.clear()
            self._words[word] = ids
        return ids

    def _encode_whole(self, text: str, expected: bytes) -> list[int]:
        ids = self._tokenize(text)
        return ids if self._spell(ids) == expected else self._encode_around_changes(text)

    def _spell(self, ids: Iterable[int]) -> bytes | None:
        """Returns the bytes of `ids`, or None when a special token is among them."""
        spelled = [self._token_bytes[id] for id in ids]
        return None if None in spelled else b"".join(spelled)  # type: ignore[arg-type]

    def _encode_around_changes(self, text: str) -> list[int]:
        """Encodes runs of characters that the tokenizer preserves, and spells the rest by bytes."""
        ids: list[int] = []
        start = 0
        for position, character in enumerate(text):
            if not self._keeps(character):
                ids += self._encode_run(text[start:position])
                ids += self._bytes_of(character)
                start = position + 1
        return ids + self._encode_run(text[start:])

    def _encode_run(self, run: str) -> list[int]:
        ids = self._tokenize(run) if run else []
        if self._spell(ids) == run.encode("utf-8"):
            return ids
        if len(run) == 1:
            return self._bytes_of(run)
        # Each character is kept alone, but not all together: some are composed, collapsed or a
        # special token. Halves narrow the place down, and spare the rest of a page.
        middle = len(run) // 2
        return self._encode_run(run[:middle]) + self._encode_run(run[middle:])

    def _keeps(self, character: str) -> bool:
        if character not in self._is_kept:
            ids = self._tokenize(character)
            self._is_kept[character] = self._spell(ids) == character.encode("utf-8")
        return self._is_kept[character]

    def _bytes_of(self, character: str) -> list[int]:
        ids = (self._byte_ids[byte] for byte in character.encode("utf-8"))
        return [id for id in ids if id is not None]  # all exist, since the text can be spelled


def _surrogate_error(text: str, error: UnicodeEncodeError) -> VocabularyError:
    return VocabularyError(
        f"the text holds the lone surrogate {text[error.start]!r} at character "
        f"{error.start}: pass it through gophercite.documents.normalise_text first"
    )


def _unspelled(missing: frozenset[int]) -> re.Pattern[str] | None:
    """A pattern that matches characters that need a missing byte; None if no character does."""
    if needed := _NEEDED_BYTES & missing:
        raise VocabularyError(
            f"the tokenizer lacks {len(missing)} of {BYTES} byte tokens, 0x{min(needed):02X} among "
            "them: it cannot spell every text, so quotes would not be exact; use a byte-level one "
            "or one with byte fallback"
        )
    ranges = [(byte, byte) for byte in sorted(missing) if byte < 0x80]
    # Each first byte of four-byte characters begins 2 ** 18 of them.
    firsts = (byte for byte in sorted(missing) if 0xF1 <= byte <= 0xF4)
    ranges += [((first & 7) << 18, min(((first & 7) + 1) << 18, 0x110000) - 1) for first in firsts]
    if not ranges:
        return None  # UTF-8 does not use the missing bytes
    return re.compile("[" + "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges) + "]")


def byte_of_piece(piece: str) -> int | None:
    """Returns the byte that a piece such as `<0x0A>` stands for, None for other pieces."""
    match = _BYTE_PIECE.fullmatch(piece)
    return int(match[1], 16) if match else None
