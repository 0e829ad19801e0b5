"""llguidance and xgrammar behind one protocol: masks of what continues a quote of a page."""

import json
import os
import sys
from pathlib import Path
from typing import Protocol

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite.vocabularies import Vocabulary


class Matchers(Protocol):
    """A peer's matchers of a batch of rows, on the host."""

    def build(self) -> None:
        """Makes what the page needs, up to the first mask of one row."""

    def begin(self, rows: int) -> None:
        """Puts all rows at the beginning of a quote."""

    def advance(self, tokens: list[int]) -> None:
        """Takes a token a row, each of which must be allowed."""

    def masks(self) -> np.ndarray:
        """What may come next, [rows, words of 32 bits], lowest first."""


def substring_grammar(text: str) -> str:
    """Lark's syntax as both peers read it: any run of the page's characters."""
    return "start: Q\nQ: %regex " + json.dumps({"substring_chars": text}, ensure_ascii=False) + "\n"


def spelled(vocabulary: Vocabulary) -> list[bytes]:
    """Each token's bytes; tokens that spell nothing get a name that no page holds."""
    all_bytes = [vocabulary.token_bytes(id) for id in range(vocabulary.size)]
    return [token or b"<special %d>" % id for id, token in enumerate(all_bytes)]


class Tokens:
    """A vocabulary as llguidance wants it."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self.eos_token_id = vocabulary.eos_id
        self.tokens = spelled(vocabulary)
        ids = range(vocabulary.size)
        self.special_token_ids = [id for id in ids if not vocabulary.token_bytes(id)]

    def __call__(self, text: str | bytes) -> list[int]:
        return self.vocabulary.encode(text if isinstance(text, str) else text.decode("utf-8"))


class LLGuidance:
    """Matchers of llguidance, in as many threads as there are cores."""

    def __init__(self, vocabulary: Vocabulary, page: str):
        import llguidance
        import llguidance.numpy

        self.library = llguidance
        self.size = vocabulary.size
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens(vocabulary)))
        self.grammar = llguidance.LLMatcher.grammar_from_lark(substring_grammar(page))
        self.threads = llguidance.LLExecutor(num_threads=os.cpu_count())

    def build(self) -> None:
        self.built = self.library.LLMatcher(self.tokenizer, self.grammar)
        if error := self.built.get_error():
            sys.exit(f"llguidance refuses the grammar: {error}")
        self.begin(1)
        self.masks()

    def begin(self, rows: int) -> None:
        self.rows = [(self.built.deep_copy(), row) for row in range(rows)]
        self.bits = self.library.numpy.allocate_token_bitmask(rows, self.size)

    def advance(self, tokens: list[int]) -> None:
        for (matcher, _), token in zip(self.rows, tokens, strict=True):
            if not matcher.consume_token(token):
                sys.exit(f"llguidance refuses a token of the page: {matcher.get_error()}")

    def masks(self) -> np.ndarray:
        if len(self.rows) == 1:
            self.library.numpy.fill_next_token_bitmask(self.rows[0][0], self.bits, 0)
        else:
            self.library.numpy.fill_next_token_bitmask_par(self.threads, self.rows, self.bits)
        return self.bits


class XGrammar:
    """Matchers of xgrammar, in as many threads as there are cores."""

    def __init__(self, vocabulary: Vocabulary, page: str):
        import xgrammar

        self.library = xgrammar
        self.size = vocabulary.size
        self.tokens = xgrammar.TokenizerInfo(
            spelled(vocabulary),
            xgrammar.VocabType.RAW,
            vocab_size=self.size,
            stop_token_ids=[vocabulary.eos_id],
        )
        self.grammar = substring_grammar(page)
        self.batch = xgrammar.BatchGrammarMatcher(max_threads=os.cpu_count() or 1)

    def build(self) -> None:
        compiler = self.library.GrammarCompiler(
            self.tokens, max_threads=os.cpu_count() or 1, cache_enabled=False
        )
        self.built = compiler.compile_grammar(self.library.Grammar.from_lark(self.grammar))
        self.begin(1)
        self.masks()

    def begin(self, rows: int) -> None:
        self.rows = [self.library.GrammarMatcher(self.built) for _ in range(rows)]
        self.bits = self.library.allocate_token_bitmask(rows, self.size)

    def advance(self, tokens: list[int]) -> None:
        if not all(self.batch.batch_accept_token(self.rows, tokens)):
            sys.exit("xgrammar refuses a token of the page")

    def masks(self) -> np.ndarray:
        if len(self.rows) == 1:
            self.rows[0].fill_next_token_bitmask(self.bits, 0)
        else:
            self.batch.batch_fill_next_token_bitmask(self.rows, self.bits)
        return self.bits.numpy()
