"""The trie of a vocabulary's tokens, beside sets of prefixes."""

from hypothesis import given
from hypothesis import strategies as st

from gophercite.quoting.token_trie import TokenTrie, trie_child


class _Spellings:
    def __init__(self, spellings: list[bytes | None]) -> None:
        self.size = len(spellings)
        self._spellings = spellings

    def token_bytes(self, id: int) -> bytes | None:
        return self._spellings[id]


# Few different bytes, so that tokens share beginnings; 31 to 33 are in two words of a bit mask.
_BYTES = st.lists(st.sampled_from((0, 31, 32, 33, 97, 255)), max_size=6).map(bytes)


@given(st.lists(st.none() | _BYTES, min_size=1, max_size=30).filter(any))
def test_paths_are_the_prefixes_of_tokens_and_end_at_those_that_they_spell(spellings):
    trie = TokenTrie.build(_Spellings(spellings))
    tokens = {id: spelling for id, spelling in enumerate(spellings) if spelling}
    prefixes = {spelling[:length] for spelling in tokens.values() for length in range(7)}
    reached = {b"": 0}
    for path in sorted(prefixes, key=len)[1:]:
        reached[path] = _child(trie, reached[path[:-1]], path[-1])
    assert sorted(reached.values()) == list(range(len(trie.children) - 1))
    for path, node in reached.items():
        ending = trie.token[trie.ends[node] : trie.ends[node + 1]]
        assert sorted(ending) == [id for id, spelling in tokens.items() if spelling == path]
        for byte in {0, 1, 31, 32, 33, 64, 97, 254, 255}:
            if path + bytes([byte]) not in prefixes:
                assert _child(trie, node, byte) == -1


def _child(trie: TokenTrie, node: int, byte: int) -> int:
    return int(trie_child(trie.children, trie.child, trie.follows, trie.before, node, byte))
