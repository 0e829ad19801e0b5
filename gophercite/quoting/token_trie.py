"""A vocabulary's tokens as a trie of their bytes, for walking them along an automaton."""

import dataclasses
from typing import Any, Protocol

import numpy as np
from jaxtyping import Int, Int32, UInt8, UInt32
from numpy.typing import ArrayLike

from gophercite.native import native
from gophercite.quoting.claims import CLOSED, DEAD, ClaimAutomaton


class Spellings(Protocol):
    """The bytes of tokens; a `Vocabulary` has them."""

    @property
    def size(self) -> int:
        """The number of tokens."""

    def token_bytes(self, id: int) -> bytes | None:
        """The bytes of a token; None if it has none."""


@dataclasses.dataclass(frozen=True)
class TokenTrie:
    """A trie as flat arrays; node 0 is the root.

    Attributes:
      children: start of each node's children in `child`; one more entry than nodes.
      child: the nodes of the children, in order of their bytes within a node.
      follows: bit mask of the bytes that have a child, 32 per word, because most look-ups fail.
      before: for each word of `follows`, number of the node's children in the words before it.
      ends: start of each node's tokens in `token`; one more entry than nodes.
      token: tokens that spell exactly the path to their node.
      spelled: start of each token's bytes in `spelling`; one more entry than tokens.
      spelling: the bytes of all tokens; special tokens have none.
    """

    children: Int[np.ndarray, " nodes_and_one"]
    child: Int[np.ndarray, " edges"]
    follows: UInt32[np.ndarray, "nodes 8"]
    before: UInt8[np.ndarray, "nodes 8"]
    ends: Int[np.ndarray, " nodes_and_one"]
    token: Int[np.ndarray, " tokens"]
    spelled: Int[np.ndarray, " size_and_one"]
    spelling: Int[np.ndarray, " bytes"]

    @classmethod
    def build(cls, vocabulary: Spellings) -> "TokenTrie":
        """Builds a vocabulary's trie; special tokens, which have no bytes, are not in it."""
        spellings = [vocabulary.token_bytes(id) or b"" for id in range(vocabulary.size)]
        spelled, spelling = _joined(spellings)
        rank = sorted((id for id, text in enumerate(spellings) if text), key=spellings.__getitem__)
        token = np.array(rank, np.int32)
        parents, bytes_, ends_at = _grow(token, spelled, spelling)
        nodes = len(parents) + 1
        order = np.argsort(parents, kind="stable")  # bytes rise within a node
        word = parents * 8 + (bytes_ >> 5)
        follows = np.zeros(nodes * 8, np.uint32)
        np.bitwise_or.at(follows, word, np.uint32(1) << (bytes_ & 31).astype(np.uint32))
        in_word = np.bincount(word, minlength=nodes * 8).astype(np.uint8).reshape(nodes, 8)
        return cls(
            children=_starts(parents, nodes),
            child=(order + 1).astype(np.int32),
            follows=follows.reshape(nodes, 8),
            before=np.cumsum(in_word, axis=1, dtype=np.uint8) - in_word,
            ends=_starts(ends_at, nodes),
            token=token[np.argsort(ends_at, kind="stable")],
            spelled=spelled,
            spelling=spelling,
        )


def spell_tokens(
    vocabulary: Spellings,
) -> tuple[Int32[np.ndarray, " size_and_one"], UInt8[np.ndarray, " bytes"]]:
    """Where each token's bytes begin, and the bytes of all tokens; special tokens have none."""
    return _joined([vocabulary.token_bytes(id) or b"" for id in range(vocabulary.size)])


def _joined(
    spellings: list[bytes],
) -> tuple[Int32[np.ndarray, " size_and_one"], UInt8[np.ndarray, " bytes"]]:
    spelled = np.zeros(len(spellings) + 1, np.int32)
    np.cumsum([len(spelling) for spelling in spellings], out=spelled[1:])
    return spelled, np.frombuffer(b"".join(spellings), np.uint8)


@native
def _grow(
    token: np.ndarray, spelled: np.ndarray, spelling: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Adds tokens, which are sorted by their bytes, to an empty trie.

    Returns:
      The parent and the byte of each node but the root, and the node at which each token ends.
    """
    parents = np.empty(len(spelling), np.int32)
    bytes_ = np.empty(len(spelling), np.uint8)
    ends_at = np.empty(len(token), np.int32)
    path = np.zeros(1, np.int32)  # nodes along the previous token, which may share a prefix
    nodes, before, length_before = 1, 0, 0
    for index in range(len(token)):
        begin = spelled[token[index]]
        length = spelled[token[index] + 1] - begin
        if length >= len(path):
            longer = np.zeros(2 * length, np.int32)
            longer[: len(path)] = path
            path = longer
        shared = 0
        while (
            shared < min(length, length_before)
            and spelling[begin + shared] == spelling[before + shared]
        ):
            shared += 1
        for depth in range(shared, length):
            parents[nodes - 1] = path[depth]
            bytes_[nodes - 1] = spelling[begin + depth]
            path[depth + 1] = nodes  # the root is 0
            nodes += 1
        ends_at[index] = path[length]
        before, length_before = begin, length
    return parents[: nodes - 1], bytes_[: nodes - 1], ends_at


@native
def trie_child(
    children: np.ndarray,
    child: np.ndarray,
    follows: np.ndarray,
    before: np.ndarray,
    node: int | np.int64,
    byte: int,
) -> int:
    """The child for a byte in a `TokenTrie` (the first four arguments); -1 for none."""
    word, bit = byte >> 5, byte & 31
    bits: Any = np.int64(follows[node, word])  # some NumPy releases have no types for its shifts
    if not (bits >> bit) & 1:
        return -1
    bits &= (1 << bit) - 1  # population count follows, in pairs, fours and eights
    bits -= (bits >> 1) & 0x55555555
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F
    return child[children[node] + before[node, word] + ((bits * 0x01010101 >> 24) & 0xFF)]


def _starts(owners: ArrayLike, nodes: int) -> Int[np.ndarray, " nodes_and_one"]:
    starts = np.zeros(nodes + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=nodes), out=starts[1:])
    return starts


@dataclasses.dataclass(frozen=True)
class ClaimTokens:
    """Where each token leads inside a claim; the same for all prompts of a vocabulary.

    Attributes:
      next: the claim state after each token; `REFUSED` if the token is not allowed; `LEAVES` if it
        ends the claim, so that what follows depends on the prompt.
      added: number of characters that each token adds to the claim.
      leaving: start of each state's entries in the next two; one more entry than states.
      leaving_token: the tokens that end the claim.
      leaving_read: number of their bytes up to the end of the mark.
    """

    next: Int[np.ndarray, "states vocab"]
    added: Int[np.ndarray, "states vocab"]
    leaving: Int[np.ndarray, " states_and_one"]
    leaving_token: Int[np.ndarray, " leaving"]
    leaving_read: Int[np.ndarray, " leaving"]

    @classmethod
    def build(cls, automaton: ClaimAutomaton, trie: TokenTrie) -> "ClaimTokens":
        """Walks every token from every state."""
        states = automaton.next.shape[0]
        next_, added, read = _walk(automaton.next, automaton.pending, trie.spelled, trie.spelling)
        state, token = np.nonzero(next_ == LEAVES)
        return cls(
            next_,
            added,
            _starts(state.tolist(), states),
            token.astype(np.int32),
            read[state, token],
        )


REFUSED, LEAVES = 255, 254  # values in `ClaimTokens.next` that are not states


@native
def _walk(
    next_state: np.ndarray, pending: np.ndarray, spelled: np.ndarray, spelling: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    states, tokens = next_state.shape[0], spelled.shape[0] - 1
    after = np.full((states, tokens), REFUSED, np.uint8)
    added = np.zeros((states, tokens), np.int16)
    bytes_read = np.zeros((states, tokens), np.int16)
    for start in range(states):
        for token in range(tokens):
            state, characters = start, pending[start]
            for place in range(spelled[token], spelled[token + 1]):
                byte = spelling[place]
                state = next_state[state, byte]
                if state == DEAD:
                    break
                characters += (byte & 0xC0) != 0x80
                if state == CLOSED:
                    after[start, token] = LEAVES
                    added[start, token] = characters - 3  # without the mark's three
                    bytes_read[start, token] = place + 1 - spelled[token]
                    break
            if state >= 0 and spelled[token] < spelled[token + 1]:
                after[start, token] = state
                added[start, token] = characters - pending[state]
    return after, added, bytes_read
