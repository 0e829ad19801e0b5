"""Re-encodes samples in another model's vocabulary, through their text, on the host."""

import dataclasses

import numpy as np
from jaxtyping import Int, Int32

from gophercite import prompts
from gophercite.vocabularies import Vocabulary


def same_tokens(one: Vocabulary, other: Vocabulary) -> bool:
    """Whether the ids of two vocabularies mean the same."""
    if (one.size, one.eos_id, one.pad_id) != (other.size, other.eos_id, other.pad_id):
        return False
    return all(one.token_bytes(id) == other.token_bytes(id) for id in range(one.size))


@dataclasses.dataclass(frozen=True)
class Reencoding:
    """A host function, for `rollouts.Rewards`.

    Attributes:
      policy: the vocabulary that samples are drawn in.
      judge: the reward model's vocabulary.
      longest: maximum number of tokens per sample in the reward model's vocabulary; longer samples
        are truncated before their end of sequence, where rewards are read, so that it is always
        there.
    """

    policy: Vocabulary
    judge: Vocabulary
    longest: int

    def __call__(
        self, tokens: Int[np.ndarray, "rows places"], lengths: Int[np.ndarray, " rows"]
    ) -> tuple[Int32[np.ndarray, "rows longest"], Int32[np.ndarray, " rows"]]:
        """Re-encodes samples as a reward model reads them after their questions.

        Args:
          tokens: the samples' tokens.
          lengths: number of tokens in each sample without padding.

        Returns:
          Their tokens in the other vocabulary, padded on the right, and their numbers without
          padding.
        """
        rows = np.full((len(tokens), self.longest), self.judge.pad_id, np.int32)
        sizes = np.zeros(len(tokens), np.int32)
        for i, (row, length) in enumerate(
            zip(np.asarray(tokens), np.asarray(lengths), strict=True)
        ):
            text = self.policy.decode(row[:length].tolist())
            ids = prompts.encode_response_text(self.judge, text)
            kept = [*ids[: self.longest - 1], self.judge.eos_id]
            rows[i, : len(kept)], sizes[i] = kept, len(kept)
        return rows, sizes
