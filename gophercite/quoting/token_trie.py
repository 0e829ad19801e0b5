"""A vocabulary's tokens as a trie of their bytes, to walk them along an automaton."""

import dataclasses
from typing import Any, Protocol

import numpy as np
from jaxtyping import Int, Int32, UInt8, UInt32

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
      child: the children's nodes, by rising byte within a node.
      follows: bit mask of the bytes that have a child, 32 per word, because most look-ups fail.
      before: number of children of the bytes in the words before each word.
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
        spelled, spelling = spell_tokens(vocabulary)
        rank = sorted((id for id, text in enumerate(spellings) if text), key=spellings.__getitem__)
        parents, bytes_, ends_at = [], [], []
        path: list[int] = []  # nodes along the previous spelling, which shares a prefix with it
        before = b""
        for id in rank:
            text = spellings[id]
            shared = 0
            while shared < min(len(text), len(before)) and text[shared] == before[shared]:
                shared += 1
            del path[shared:]
            for byte in text[shared:]:
                parents.append(path[-1] if path else 0)
                bytes_.append(byte)
                path.append(len(parents))  # the root is 0
            ends_at.append(path[-1])
            before = text
        nodes = len(parents) + 1
        order = np.argsort(np.array(parents, np.int64), kind="stable")  # bytes rise within a node
        word = (np.array(parents), np.array(bytes_, np.uint8) >> 5)
        follows = np.zeros((nodes, 8), np.uint32)
        in_word = np.zeros((nodes, 8), np.uint8)
        np.bitwise_or.at(follows, word, np.uint32(1) << (np.array(bytes_, np.uint32) & 31))
        np.add.at(in_word, word, 1)
        return cls(
            children=_starts(parents, nodes),
            child=(order + 1).astype(np.int32),
            follows=follows,
            before=np.cumsum(in_word, axis=1, dtype=np.uint8) - in_word,
            ends=_starts(ends_at, nodes),
            token=np.array(rank, np.int32)[np.argsort(ends_at, kind="stable")],
            spelled=spelled,
            spelling=spelling,
        )


def spell_tokens(
    vocabulary: Spellings,
) -> tuple[Int32[np.ndarray, " size_and_one"], UInt8[np.ndarray, " bytes"]]:
    """Where each token's bytes begin, and the bytes of all tokens; special tokens have none."""
    spellings = [vocabulary.token_bytes(id) or b"" for id in range(vocabulary.size)]
    spelled = np.zeros(len(spellings) + 1, np.int32)
    np.cumsum([len(spelling) for spelling in spellings], out=spelled[1:])
    return spelled, np.frombuffer(b"".join(spellings), np.uint8)


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


def _starts(owners: list[int], nodes: int) -> Int[np.ndarray, " nodes_and_one"]:
    starts = np.zeros(nodes + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=nodes), out=starts[1:])
    return starts


@dataclasses.dataclass(frozen=True)
class ClaimTokens:
    """Where each token leads inside a claim; the same for all prompts of a vocabulary.

    Attributes:
      next: the claim state after each token; `REFUSED` if the token is not allowed, `LEAVES` if it
        ends the claim, so that the rest depends on the prompt.
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


REFUSED, LEAVES = 255, 254  # besides the states, in `ClaimTokens.next`


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
