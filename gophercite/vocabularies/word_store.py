"""The tokens of the words of long texts, found in machine code.

Words are cut before spaces that follow anything but white space. Where `Vocabulary.splits_words` is
true, the tokens of such a word are the same in every text, and most words of a text were seen
before: then a word costs a hash and a comparison, a tenth of what Python's dictionaries take.
"""

import dataclasses
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int32, Int64, UInt32

from gophercite.native import native

# What a table has room for; it is begun anew when it is full. Memory is taken when it is used.
_WORDS = 1 << 17
_CHARACTERS = 1 << 21
_IDS = 1 << 20
_MOST_IDS = 4  # of a character: its bytes

# Hashes have 40 bits and the factor 22, so that 64 hold the product.
_FACTOR = 0x2C1B3D
_BITS = (1 << 40) - 1
_SEED = random.SystemRandom().getrandbits(40)  # so that no page can be written to collide


@dataclasses.dataclass(frozen=True)
class _Table:
    """A hash table of words, with linear probing.

    Attributes:
      slots: at a word's hash or behind: its number + 1, below 30 bits of the hash; 0 is free.
      entries: for each word: where its characters begin, how many it has; the same of its tokens.
      characters: of all words, in order.
      ids: the tokens of all words, in order.
    """

    slots: Int64[np.ndarray, " slots"]
    entries: Int32[np.ndarray, "words 4"]
    characters: UInt32[np.ndarray, " characters"]
    ids: Int32[np.ndarray, " ids"]

    @classmethod
    def for_text(cls, length: int) -> "_Table":
        """A free table that can hold the words of any text of `length` characters."""
        words = max(_WORDS, length)
        return cls(
            np.zeros(2 << (words - 1).bit_length(), np.int64),
            np.zeros((words, 4), np.int32),
            np.zeros(max(_CHARACTERS, length), np.uint32),
            np.zeros(max(_IDS, _MOST_IDS * length), np.int32),
        )


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of a text, in order.

    Attributes:
      bounds: where each word starts, and where the last one ends: offsets in the text.
      sums: the number of tokens before each of these places.
    """

    bounds: Int32[np.ndarray, " words_and_one"]
    sums: Int32[np.ndarray, " words_and_one"]
    _numbers: Int32[np.ndarray, " words"]
    _table: _Table

    def ids(self, first: int, last: int) -> list[int]:
        """Returns the tokens of the words from number `first` up to, not including, `last`."""
        ids = np.empty(self.sums[last] - self.sums[first], np.int32)
        _gather(self._numbers[first:last], self._table.entries, self._table.ids, ids)
        return ids.tolist()


class WordStore:
    """Finds the words of texts and their tokens.

    Args:
      encode: gives the tokens of a word that is met for the first time.
    """

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._lock = threading.Lock()  # of what is added; who only looks needs none
        self._begin(_Table.for_text(0))

    def words(self, text: str) -> Words:
        """Returns the words of a text, which starts where a word does.

        Raises:
          UnicodeEncodeError: when the text holds a lone surrogate.
        """
        characters = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        numbers = np.empty(len(text), np.int32)
        bounds, sums = np.zeros((2, len(text) + 1), np.int32)
        table, count = self._table, 0
        while True:
            # Up to a word that the table lacks.
            count, end, stop = _look_up(
                characters, table.slots, table.entries, table.characters, _SEED,
                numbers, bounds, sums, count,
            )  # fmt: skip
            if end == len(text):
                return Words(bounds[: count + 1], sums[: count + 1], numbers[:count], table)
            if not self._add(table, text[end:stop], characters[end:stop]):
                with self._lock:
                    self._begin(_Table.for_text(len(text)))
                    table, count = self._table, 0

    def _begin(self, table: _Table) -> None:
        self._table = table
        self._words = self._characters = self._ids = 0  # how much of the table is used

    def _add(self, table: _Table, word: str, characters: UInt32[np.ndarray, " length"]) -> bool:
        """Adds a word; returns False, and doesn't, if the table has no room or is an old one."""
        ids = self._encode(word)
        with self._lock:
            number, begin, first = self._words, self._characters, self._ids
            if (
                table is not self._table
                or number == len(table.entries)
                or begin + len(word) > len(table.characters)
                or first + len(ids) > len(table.ids)
            ):
                return False
            table.characters[begin : begin + len(word)] = characters
            table.ids[first : first + len(ids)] = ids
            table.entries[number] = begin, len(word), first, len(ids)
            # The slot comes last: another thread may be looking.
            _put(table.slots, characters, _SEED, number)
            self._words += 1
            self._characters += len(word)
            self._ids += len(ids)
        return True


@native
def _is_space(character: Any) -> bool:
    """What `str.isspace` says."""
    if character < 0x85:
        return character == 0x20 or 0x09 <= character <= 0x0D or 0x1C <= character <= 0x1F
    return (
        character in (0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000)
        or 0x2000 <= character <= 0x200A
    )


@native
def _mix(hashed: Any, character: Any) -> Any:
    """The hash of a word with one more character."""
    return ((hashed ^ character) * _FACTOR) & _BITS


@native
def _first_slot(hashed: Any, slots: int) -> Any:
    return (hashed ^ (hashed >> 20)) & (slots - 1)


@native
def _look_up(
    text: np.ndarray,
    slots: np.ndarray,
    entries: np.ndarray,
    characters: np.ndarray,
    seed: int,
    numbers: np.ndarray,
    bounds: np.ndarray,
    sums: np.ndarray,
    count: int,
) -> tuple[Any, Any, Any]:
    """Goes on after the first `count` words of a text, up to its end or a word that is not known.

    Fills `numbers`, `bounds` and `sums`; returns how many words there are now, where they end and
    where the next word ends.
    """
    start: Any = np.int64(bounds[count])
    while start < len(text):
        last = np.int64(text[start])
        hashed = _mix(seed, last)
        end = start + 1
        while end < len(text):
            character = np.int64(text[end])
            if character == 0x20 and not _is_space(last):
                break
            hashed = _mix(hashed, character)
            last = character
            end += 1
        upper, slot = hashed >> 10, _first_slot(hashed, len(slots))
        number = -1
        while slots[slot] != 0:
            if slots[slot] >> 32 == upper:
                number = (slots[slot] & 0xFFFFFFFF) - 1
                begin = entries[number, 0]
                same = entries[number, 1] == end - start
                place = 0
                while same and place < end - start:
                    same = characters[begin + place] == text[start + place]
                    place += 1
                if same:
                    break
                number = -1
            slot = (slot + 1) & (len(slots) - 1)
        if number < 0:
            return count, start, end
        numbers[count] = number
        sums[count + 1] = sums[count] + entries[number, 3]
        count += 1
        bounds[count] = end
        start = end
    return count, start, start


@native
def _put(slots: np.ndarray, word: np.ndarray, seed: int, number: int) -> None:
    """Enters a word into the first free slot for it."""
    hashed: Any = seed
    for place in range(len(word)):
        hashed = _mix(hashed, np.int64(word[place]))
    slot = _first_slot(hashed, len(slots))
    while slots[slot] != 0:
        slot = (slot + 1) & (len(slots) - 1)
    slots[slot] = (hashed >> 10 << 32) | (number + 1)


@native
def _gather(numbers: np.ndarray, entries: np.ndarray, ids: np.ndarray, found: np.ndarray) -> None:
    """Fills `found` with the tokens of words."""
    place = 0
    for word in range(len(numbers)):
        first, count = entries[numbers[word], 2], entries[numbers[word], 3]
        for each in range(count):
            found[place + each] = ids[first + each]
        place += count
