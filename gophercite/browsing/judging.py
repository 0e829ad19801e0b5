"""What a reward model thinks of answered episodes (WebGPT, 3.2)."""

import dataclasses
from collections.abc import Sequence

from gophercite.browser.encoding import PREFIX_TOKENS, long_answer
from gophercite.browser.state import State
from gophercite.decoding.rerank import Scorer
from gophercite.model_folders.folder import Model
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.records import LongAnswer
from gophercite.vocabularies import Vocabulary

_WIDTHS = 128  # judged texts are padded to a multiple of this, so that few programs are compiled


@dataclasses.dataclass(frozen=True)
class Judge:
    """A reward model, whose parameters are the entry `reward_model`.

    Attributes:
      transformer: its trunk.
      vocabulary: its tokenizer.
      prefix_tokens: maximum tokens of question and references, as in its training.
      batch_size: number of answers per batch.
    """

    transformer: Transformer
    vocabulary: Vocabulary
    prefix_tokens: int = PREFIX_TOKENS
    batch_size: int = 16

    def scores(self, params: Params, states: Sequence[State]) -> list[float]:
        """Returns the score of each answered episode."""
        if not states:
            return []
        model = Model(self.transformer, params, self.vocabulary, {})
        scorer = Scorer(model, self.batch_size, self.prefix_tokens, _WIDTHS)
        return list(scorer.score_each([judged(state) for state in states]).reward)


def judged(state: State) -> tuple[str, LongAnswer]:
    """What a reward model reads of an answered episode: question, and answer with references."""
    return state.question, long_answer(state)
