"""Vocabularies and documents that try what a constraint can get wrong."""

import functools
import pathlib
import random
from collections.abc import Iterable, Sequence

from gophercite.documents import Document
from gophercite.quoting.run_boundaries import Boundaries
from gophercite.vocabularies import Vocabulary, load_vocabulary
from tests import vocabulary_fixtures
from tests.quoting import answer_judge
from tests.quoting.shown_pages import shown

BUNDLED = pathlib.Path(__file__).parents[2] / "data_pipelines/sample_world/model/vocabulary"


class TokenList(Vocabulary):
    """Tokens by the bytes that they spell, greedily; 0 ends a sequence.

    Every byte has one, but for those that are `missing`.
    """

    def __init__(self, pieces: Iterable[bytes], missing: frozenset[int] = frozenset()) -> None:
        spelled = [None if byte in missing else bytes([byte]) for byte in range(256)]
        ids = [None if byte in missing else byte + 1 for byte in range(256)]
        super().__init__([None, *spelled, *pieces], ids)
        self.pad_id = self.eos_id = 0
        self.bos_id = self.unk_id = None
        self.dummy_prefix = False

    def write_files(self, folder) -> None:
        raise NotImplementedError

    def _tokenize(self, text: str) -> list[int]:
        spelling, ids = text.encode(), []
        while spelling:
            longest = max(
                (
                    id
                    for id in range(1, self.size)
                    if (known := self.token_bytes(id)) and spelling.startswith(known)
                ),
                key=lambda id: len(self.token_bytes(id)),
            )
            ids.append(longest)
            spelling = spelling[len(self.token_bytes(longest)) :]
        return ids


# What published tokenizers lack, and a letter's first byte that `hostile_text` has nothing of.
MISSING = frozenset({0x00, 0x04, 0x7F, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)})

# Marks whole, halved, straddling their neighbours, and characters cut in two.
HOSTILE_PIECES = (
    b" %<", b" %", b"%<", b">%(", b">%", b"%(", b"a>%(", b">%(T", b"(T", b")%[", b"T)%[", b"%[",
    b")%[the ", b"]%", b".]%", b"e]%", b"]", b" x]%", b"]%<", b"]% %<", b"]% %<a", b"the ",
    b"the", b" the ", b"  ", b" \n", b"e the", b"ab", b"\xc3\xa9", b"\xa9", b" \xc3",
    b"\xe2\x98", b"\x98\x83", b"\x83 x", b"\xf0\x9f\x98", b">%(T)%[the", b"the cat]%",
    b" [", b"e [", b" [...", b"...]", b"...]%", b"] ", b"] the", b" [...] ", b"e [...] t",
)  # fmt: skip

_SCRAPS = (
    "the", "cat", "Paris", " ", " ", "  ", "\n", ".", ",", "]", "[", "%", "(", ")", "<", ">", "%<",
    ">%(", ")%[", "]%", "é", "☃", "😀", "\u2003", "\xa0", "\x04", "\x7f", "ß", "中文", "[...]",
    " [...] ", " [", " [...",
)  # fmt: skip


def hostile_text(rng: random.Random, scraps: int) -> str:
    return "".join(rng.choice(_SCRAPS) for _ in range(scraps))


def hostile_documents(rng: random.Random, scraps: int) -> list[Document]:
    titles = ["T", "T", "T)", "Th", "", "The [T]", hostile_text(rng, 3)]
    return [
        Document(str(i), rng.choice(titles), hostile_text(rng, rng.randrange(scraps)))
        for i in range(rng.randrange(1, 5))
    ]


def is_legal(
    text: str,
    documents: Sequence[Document],
    minimum: int = 5,
    triples: int = 1,
    omissions: int = 0,
    boundaries: Boundaries = "words",
) -> bool:
    """Whether a text is an answer that may be given, by `answer_judge`."""
    rules = answer_judge.Rules(len(text), minimum, triples=triples, omissions=omissions)
    pages = [shown(document, boundaries) for document in documents]
    return not answer_judge.faults_of_text(text, pages, rules)


def spell(rng: random.Random, vocabulary: Vocabulary, spelling: bytes) -> list[int]:
    """Some tokens that spell some bytes."""
    known, ids, at = tokens_of(vocabulary), [], 0
    while at < len(spelling):
        lengths = [n for n in range(1, 13) if spelling[at : at + n] in known]
        chosen = spelling[at : at + rng.choice(lengths)]
        ids.append(rng.choice(known[chosen]))
        at += len(chosen)
    return ids


@functools.cache
def tokens_of(vocabulary: Vocabulary) -> dict[bytes | None, list[int]]:
    """Tokens by what they spell."""
    found: dict[bytes | None, list[int]] = {}
    for id in range(vocabulary.size):
        found.setdefault(vocabulary.token_bytes(id), []).append(id)
    return found


@functools.cache
def vocabulary_of_kind(kind: str) -> Vocabulary:
    """A real vocabulary with byte fallback, a byte-level one, bytes alone, or hostile tokens."""
    return {
        "sentencepiece": lambda: load_vocabulary(BUNDLED),
        "byte-level": lambda: vocabulary_fixtures.vocabularies()["byte-level"],
        "bytes": lambda: TokenList([]),
        "hostile": lambda: TokenList(HOSTILE_PIECES),
    }[kind]()
