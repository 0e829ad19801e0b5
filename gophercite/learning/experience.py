"""Experience: a policy's actions in an environment, completion by completion (WebGPT, E).

A row is one completion with its own prompt, because each step of an episode has a fresh context.
The token ids and log-probabilities are the sampler's; texts are never tokenised again.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8


class Experience(NamedTuple):
    """Completions as rows, in any order; an episode is the rows that share `episode`.

    Rows without a response have no tokens to learn from. At the end of an episode, such a row means
    that the episode was truncated, and the value of its prompt is used to bootstrap the rest; any
    other such row only pads the batch.

    Attributes:
      tokens: each prompt with its response, then padding.
      prompt_lengths: number of tokens in each row's prompt.
      response_lengths: number of tokens sampled after it, including the end of sequence.
      log_probs: the sampler's log-probability of each token of the response, in nats, under the
        distribution that was sampled from, renormalised over the allowed tokens.
      rewards: the environment's rewards, by token of the response; nonzero only where a reward is
        given, at the latest on the last token of the response.
      episode: which episode each row belongs to.
      step: the row's index in its episode.
      weights: 1 if the row counts, else 0.
      ends: 1 if the episode ends with this row, else 0.
      extra: 1 if the episode is a further answer from another episode's references, else 0.
      allowed: bit mask of the tokens that could be drawn at each position, eight to a byte, the
        first in the lowest bit; None if all could.
    """

    tokens: Int[Array, "rows length"]
    prompt_lengths: Int[Array, " rows"]
    response_lengths: Int[Array, " rows"]
    log_probs: Float[Array, "rows places"]
    rewards: Float[Array, "rows places"]
    episode: Int[Array, " rows"]
    step: Int[Array, " rows"]
    weights: Float[Array, " rows"]
    ends: Float[Array, " rows"]
    extra: Float[Array, " rows"]
    allowed: UInt8[Array, "rows places bytes"] | None = None

    @property
    def responses(self) -> Int[Array, "rows places"]:
        """The sampled tokens; entries after the end of a response are meaningless."""
        return jnp.take_along_axis(self.tokens, self._places() + 1, axis=1)

    @property
    def real(self) -> Bool[Array, "rows places"]:
        """Where a response has a token; only these positions are trained on."""
        inside = jnp.arange(self.rewards.shape[1]) < self.response_lengths[:, None]
        return inside & (self.weights[:, None] > 0)

    def before(
        self, hidden: Float[Array, "rows length d_model"]
    ) -> Float[Array, "rows places d_model"]:
        """The representations that predict each token of the responses."""
        return jnp.take_along_axis(hidden, self._places()[..., None], axis=1)

    def _places(self) -> Int[Array, "rows places"]:
        before = self.prompt_lengths[:, None] - 1 + jnp.arange(self.rewards.shape[1])
        return jnp.clip(before, 0, self.tokens.shape[1] - 2)


def of_batch(batch: Mapping[str, Any]) -> Experience:
    """Converts a batch's arrays, named like the fields, to experience."""
    return Experience(**batch)


def to_batch(experience: Experience) -> dict[str, Any]:
    """The inverse of `of_batch`, without fields that are None."""
    return {name: part for name, part in experience._asdict().items() if part is not None}


def nothing(
    rows: int, length: int, places: int, pad_id: int, vocabulary_size: int | None = None
) -> Experience:
    """Allocates experience on the host; no row counts yet.

    Args:
      rows: number of completions.
      length: maximum number of tokens in a prompt with its response.
      places: maximum number of tokens in a response.
      pad_id: fills the tokens.
      vocabulary_size: the vocabulary's size, to record which tokens were allowed; None not to.
    """
    of_row = np.zeros(rows, np.float32)
    allowed = None
    if vocabulary_size is not None:
        allowed = np.zeros((rows, places, -(-vocabulary_size // 8)), np.uint8)
    fields: dict[str, Any] = {
        "tokens": np.full((rows, length), pad_id, np.int32),
        "prompt_lengths": np.ones(rows, np.int32),
        "response_lengths": np.zeros(rows, np.int32),
        "log_probs": np.zeros((rows, places), np.float32),
        "rewards": np.zeros((rows, places), np.float32),
        "episode": np.full(rows, -1, np.int32),
        "step": np.arange(rows, dtype=np.int32),
        "weights": of_row,
        "ends": of_row.copy(),
        "extra": of_row.copy(),
        "allowed": allowed,
    }
    return Experience(**fields)
