"""Vocabularies, documents and a judge of answers that knows nothing of automata."""

import random
from collections.abc import Iterable, Sequence

from gophercite import evidence
from gophercite.documents import Document
from gophercite.vocabularies import Vocabulary


class TokenList(Vocabulary):
    """Tokens by the bytes that they spell, greedily; every byte has one, and 0 ends a sequence."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        spellings = [None, *(bytes([byte]) for byte in range(256)), *pieces]
        super().__init__(spellings, range(1, 257))
        self.pad_id = self.eos_id = 0
        self.bos_id = self.unk_id = None
        self.dummy_prefix = False

    def save(self, folder) -> None:
        raise NotImplementedError

    def _tokenize(self, text: str) -> list[int]:
        spelling, ids = text.encode(), []
        while spelling:
            longest = max(
                (id for id in range(1, self.size) if spelling.startswith(self.token_bytes(id))),
                key=lambda id: len(self.token_bytes(id)),
            )
            ids.append(longest)
            spelling = spelling[len(self.token_bytes(longest)) :]
        return ids


# Marks whole, halved, straddling their neighbours, and characters cut in two.
HOSTILE_PIECES = (
    b" %<", b" %", b"%<", b">%(", b">%", b"%(", b"a>%(", b">%(T", b"(T", b")%[", b"T)%[", b"%[",
    b")%[the ", b"]%", b".]%", b"e]%", b"]", b" x]%", b"]%<", b"]% %<", b"]% %<a", b"the ",
    b"the", b" the ", b"  ", b" \n", b"e the", b"ab", b"\xc3\xa9", b"\xa9", b" \xc3",
    b"\xe2\x98", b"\x98\x83", b"\x83 x", b"\xf0\x9f\x98", b">%(T)%[the", b"the cat]%",
)  # fmt: skip

_SCRAPS = (
    "the", "cat", "Paris", " ", " ", "  ", "\n", ".", ",", "]", "[", "%", "(", ")", "<", ">", "%<",
    ">%(", ")%[", "]%", "é", "☃", "😀", "\u2003", "\xa0", "\x00", "\x7f", "ß", "中文", "[...]",
)  # fmt: skip


def hostile_text(rng: random.Random, scraps: int) -> str:
    return "".join(rng.choice(_SCRAPS) for _ in range(scraps))


def hostile_documents(rng: random.Random, scraps: int) -> list[Document]:
    titles = ["T", "T", "T)", "Th", "", "The [T]", hostile_text(rng, 3)]
    return [
        Document(str(i), rng.choice(titles), hostile_text(rng, rng.randrange(scraps)))
        for i in range(rng.randrange(1, 5))
    ]


def is_legal(text: str, documents: Sequence[Document], minimum: int = 5, triples: int = 1) -> bool:
    """Whether a text is an answer that may be given: in form, and with verbatim quotes."""
    if evidence.faults(text, documents, minimum_quote_length=minimum):
        return False
    found = evidence.parse(text)
    return (
        text == " " + evidence.format(*found)
        and len(found) <= triples
        and all(
            any(each.quote in d.text for d in documents if d.title == each.title) for each in found
        )
    )
