"""Experience: what a policy did in an environment, completion by completion (WebGPT, E).

A row is one completion with its own prompt: each step of an episode is a fresh context. The ids and
the log-probabilities are the sampler's, never those of a text that was tokenised again.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8


class Experience(NamedTuple):
    """Completions as rows, in any order; an episode is the rows that share `episode`.

    Rows without a response carry no token to learn from. Where one follows the others of its
    episode, the episode goes on beyond what is known, and the value of what it reads stands for
    the rest; elsewhere it only fills the batch up.

    Attributes:
      tokens: each prompt with its response, then padding.
      prompt_lengths: tokens of each row's prompt.
      response_lengths: tokens that were sampled behind it, the end of sequence included.
      log_probs: the sampler's own, of each token of the response, in nats: the distribution that
        was sampled from, among the tokens that were allowed.
      rewards: of the environment, by token of the response: 0 but where one is given, on the last
        token of the response at the latest.
      episode: which episode each row is of.
      step: its place in it.
      weights: 1 where the row counts, 0 where it does not.
      ends: 1 where the episode ends with this row, else 0.
      extra: 1 where the episode is one more answer on another's references, else 0.
      allowed: which tokens could be drawn at each place, eight to a byte, the first in the lowest
        bit; None where all could.
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
        """The tokens that were sampled; what lies behind a response's end is of no meaning."""
        return jnp.take_along_axis(self.tokens, self._places() + 1, axis=1)

    @property
    def real(self) -> Bool[Array, "rows places"]:
        """Where a response has a token; nowhere else is anything learnt."""
        inside = jnp.arange(self.rewards.shape[1]) < self.response_lengths[:, None]
        return inside & (self.weights[:, None] > 0)

    def before(
        self, hidden: Float[Array, "rows length d_model"]
    ) -> Float[Array, "rows places d_model"]:
        """The representations from which each token of the responses was drawn."""
        return jnp.take_along_axis(hidden, self._places()[..., None], axis=1)

    def _places(self) -> Int[Array, "rows places"]:
        before = self.prompt_lengths[:, None] - 1 + jnp.arange(self.rewards.shape[1])
        return jnp.clip(before, 0, self.tokens.shape[1] - 2)


def of_batch(batch: Mapping[str, Any]) -> Experience:
    """The experience that a batch's arrays are, by the names of its fields."""
    return Experience(**batch)


def to_batch(experience: Experience) -> dict[str, Any]:
    """The inverse of `of_batch`, without what is not there."""
    return {name: part for name, part in experience._asdict().items() if part is not None}


def nothing(
    rows: int, length: int, places: int, pad_id: int, vocabulary_size: int | None = None
) -> Experience:
    """Room for experience, on the host; no row counts yet.

    Args:
      rows: completions.
      length: tokens of the longest prompt with its response.
      places: tokens of the longest response.
      pad_id: fills the room.
      vocabulary_size: where what could be drawn is to be kept; else None.
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
