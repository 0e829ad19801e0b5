"""Pages that one prompt shows: their windows and its tokens, with each word looked up once.

`tokenised_pages` is for pages that many prompts show.
"""

import random
from collections.abc import Sequence

from gophercite import prompts
from gophercite.documents import Document, Window
from gophercite.retrieval import windows
from gophercite.retrieval.prompt_pieces import Pieces, encode_pieces
from gophercite.retrieval.token_budgets import Span, TokenBudget
from gophercite.retrieval.word_tables import WordTable
from gophercite.vocabularies import Vocabulary


class NewPages:
    """What is known of the tokens of a prompt's pages.

    Args:
      vocabulary: the model's.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._tokens: dict[str, TokenBudget] = {}

    def training_window(
        self, document: Document, span: Span, budget: int, draw: random.Random
    ) -> Window | None:
        """Returns what `windows.training_window` returns."""
        tokens = self._of(document)
        return windows.training_window(document, span, budget, tokens, draw)

    def inference_window(
        self, document: Document, span: Span, budget: int, before: int
    ) -> Window | None:
        """Returns what `windows.inference_window` returns."""
        tokens = self._of(document)
        return windows.inference_window(document, span, budget, tokens, before=before)

    def encode_prompt(self, question: str, shown: Sequence[Window]) -> list[int]:
        """Returns what `prompts.encode_prompt` returns."""
        if not self.vocabulary.splits_words:
            return prompts.encode_prompt(self.vocabulary, question, shown)
        return encode_pieces(self.vocabulary, question, shown, self._pieces)

    def _of(self, document: Document) -> TokenBudget:
        tokens = self._tokens.get(document.id)
        if tokens is None or tokens.text is not document.text:
            tokens = self._tokens[document.id] = windows.token_budget(document, self.vocabulary)
        return tokens

    def _pieces(self, window: Window) -> Pieces:
        tokens = self._of(window.document)
        return tokens.pieces(window) if isinstance(tokens, WordTable) else (window.text, [], "")
