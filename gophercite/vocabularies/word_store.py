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
_NUMBERS = 1 << 22  # of all records
_MOST_NUMBERS = 7  # of a record, for each character: two, itself and its bytes as tokens

# Hashes have 40 bits and the factor 22, so that 64 hold the product.
_FACTOR = 0x2C1B3D
_BITS = (1 << 40) - 1
_SEED = random.SystemRandom().getrandbits(40)  # so that no page can be written to collide


@dataclasses.dataclass(frozen=True)
class _Table:
    """A hash table of words, with linear probing.

    Attributes:
      slots: at a word's hash or behind: where its record is, + 1; above, 30 bits of the hash.
      records: for each word: how many characters and tokens it has, the tokens, the characters.
        They stand together, as most of the time is that of fetching them from memory.
    """

    slots: Int64[np.ndarray, " slots"]
    records: Int32[np.ndarray, " numbers"]

    @classmethod
    def for_text(cls, length: int) -> "_Table":
        """A free table that can hold the words of any text of `length` characters."""
        slots = 2 << (max(_WORDS, length) - 1).bit_length()  # twice as many as words
        numbers = max(_NUMBERS, _MOST_NUMBERS * length)
        return cls(np.zeros(slots, np.int64), np.zeros(numbers, np.int32))


@dataclasses.dataclass(frozen=True)
class Words:
    """The words of a text, in order.

    Attributes:
      bounds: where each word starts, and where the last one ends: offsets in the text.
      sums: the number of tokens before each of these places.
    """

    bounds: Int32[np.ndarray, " words_and_one"]
    sums: Int32[np.ndarray, " words_and_one"]
    _places: Int32[np.ndarray, " words"]
    _table: _Table

    def ids(self, first: int, last: int) -> list[int]:
        """Returns the tokens of the words from number `first` up to, not including, `last`."""
        ids = np.empty(self.sums[last] - self.sums[first], np.int32)
        _gather(self._places[first:last], self._table.records, ids)
        return ids.tolist()


class WordStore:
    """Finds the words of texts and their tokens.

    Args:
      encode: gives the tokens of a word that is met for the first time.
    """

    def __init__(self, encode: Callable[[str], list[int]]) -> None:
        self._encode = encode
        self._lock = threading.Lock()  # nobody looks while a word is added
        self._begin(_Table.for_text(0))

    def words(self, text: str) -> Words:
        """Returns the words of a text, which starts where a word does.

        Raises:
          UnicodeEncodeError: when the text holds a lone surrogate.
        """
        characters = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        places = np.empty(len(text), np.int32)
        bounds, sums = np.zeros((2, len(text) + 1), np.int32)
        table, count = self._table, 0
        while True:
            # Up to a word that the table lacks.
            with self._lock:
                count, end, stop = _look_up(
                    characters, table.slots, table.records, _SEED, places, bounds, sums, count
                )
            if end == len(text):
                return Words(bounds[: count + 1], sums[: count + 1], places[:count], table)
            if not self._add(table, text[end:stop], characters[end:stop]):
                table, count = self._after(table, len(text)), 0

    def _after(self, table: _Table, length: int) -> _Table:
        """Returns the table after one that is full or old; a new one has room for `length`."""
        with self._lock:
            if table is self._table:  # otherwise another thread has begun one
                self._begin(_Table.for_text(length))
            return self._table

    def _begin(self, table: _Table) -> None:
        self._table = table
        self._words = self._used = 0  # words in the table, and numbers of its records

    def _add(self, table: _Table, word: str, characters: UInt32[np.ndarray, " length"]) -> bool:
        """Adds a word; returns False, and doesn't, if the table has no room or is an old one."""
        ids = self._encode(word)
        with self._lock:
            first, last = self._used, self._used + 2 + len(ids) + len(word)
            full = 2 * self._words >= len(table.slots) or last > len(table.records)
            if table is not self._table or full:
                return False
            record = table.records[first:last]
            record[:2] = len(word), len(ids)
            record[2 : 2 + len(ids)] = ids
            record[2 + len(ids) :] = characters
            _put(table.slots, characters, _SEED, first)
            self._words += 1
            self._used = last
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
    records: np.ndarray,
    seed: int,
    places: np.ndarray,
    bounds: np.ndarray,
    sums: np.ndarray,
    count: int,
) -> tuple[Any, Any, Any]:
    """Goes on after the first `count` words of a text, up to its end or a word that is not known.

    Fills `places`, `bounds` and `sums`; returns how many words there are now, where they end and
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
        found = -1
        while slots[slot] != 0:
            if slots[slot] >> 32 == upper:
                found = (slots[slot] & 0xFFFFFFFF) - 1
                same = records[found] == end - start
                own = found + 2 + records[found + 1] - start  # its characters, from the text's
                place = start
                while same and place < end:
                    same = records[own + place] == np.int64(text[place])
                    place += 1
                if same:
                    break
                found = -1
            slot = (slot + 1) & (len(slots) - 1)
        if found < 0:
            return count, start, end
        places[count] = found
        sums[count + 1] = sums[count] + records[found + 1]
        count += 1
        bounds[count] = end
        start = end
    return count, start, start


@native
def _put(slots: np.ndarray, word: np.ndarray, seed: int, record: int) -> None:
    """Enters a word into the first free slot for it."""
    hashed: Any = seed
    for place in range(len(word)):
        hashed = _mix(hashed, np.int64(word[place]))
    slot = _first_slot(hashed, len(slots))
    while slots[slot] != 0:
        slot = (slot + 1) & (len(slots) - 1)
    slots[slot] = (hashed >> 10 << 32) | (record + 1)


@native
def _gather(places: np.ndarray, records: np.ndarray, ids: np.ndarray) -> None:
    """Fills `ids` with the tokens of words."""
    filled = 0
    for word in range(len(places)):
        first = places[word] + 2
        for each in range(first, first + records[first - 1]):
            ids[filled] = records[each]
            filled += 1
