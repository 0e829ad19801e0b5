"""Advantages where a time step is a completion and the baseline is per token (WebGPT, E).

Between the completions of an episode, this is generalised advantage estimation (Schulman et al.
2016). Inside a completion nothing is bootstrapped or discounted: a token's return is the sum of the
rewards from it to the end of the completion, plus the estimate from there on. The baseline is the
value before the token.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Advantages(NamedTuple):
    """Estimates for each token; 0 where there is no token.

    Attributes:
      advantages: the estimated return minus the value before the token.
      returns: the target of the value before the token: the advantage plus that value.
    """

    advantages: Float[Array, "rows places"]
    returns: Float[Array, "rows places"]


def completion_advantages(
    rewards: Float[Array, "rows places"],
    values: Float[Array, "rows places"],
    real: Bool[Array, "rows places"],
    episode: Int[Array, " rows"],
    step: Int[Array, " rows"],
    trace: float = 0.95,
    discount: float = 1.0,
) -> Advantages:
    """Estimates the advantages of tokens.

    With r the rewards and V the values, token i of completion t has the advantage

        A[t, i] = Σ_{j ≥ i} r[t, j] + γ (V[t+1, 0] + λ A[t+1, 0]) − V[t, i]

    where completion t + 1 is the next one of the same episode; the last completion has no such
    term. A row without tokens has the advantage 0: it ends a truncated episode, and its value
    stands for what comes after.

    Args:
      rewards: reward of each token; entries after the end of a completion are ignored.
      values: value before each token.
      real: where there is a token.
      episode: which episode each row belongs to; rows may be in any order.
      step: the row's index in its episode.
      trace: λ.
      discount: γ.
    """
    order = jnp.lexsort((step, episode))
    rewards, values, sorted_real, of = (part[order] for part in (rewards, values, real, episode))
    counted = jnp.where(sorted_real, rewards, 0)
    to_go = jnp.cumsum(counted[:, ::-1], axis=1)[:, ::-1]
    goes_on = jnp.append(of[1:] == of[:-1], jnp.zeros((), bool))

    def back(
        after: tuple[Array, Array], row: tuple[Array, Array, Array, Array]
    ) -> tuple[tuple[Array, Array], Array]:
        value_after, advantage_after = after
        to_go, values, real, goes_on = row
        beyond = jnp.where(goes_on, discount * (value_after + trace * advantage_after), 0)
        advantages = jnp.where(real, to_go + beyond - values, 0)
        return (values[0], advantages[0]), advantages

    zero = jnp.zeros((), values.dtype)
    leaves = (to_go, values, sorted_real, goes_on)
    _, in_order = jax.lax.scan(back, (zero, zero), leaves, reverse=True)
    returns = jnp.where(sorted_real, in_order + values, 0)
    back_again = jnp.argsort(order)
    return Advantages(in_order[back_again], returns[back_again])


def normalised(
    advantages: Float[Array, "rows places"], real: Bool[Array, "rows places"]
) -> Float[Array, "rows places"]:
    """Normalises advantages to mean 0 and variance 1 over all real tokens; 0 elsewhere."""
    count = jnp.maximum(jnp.sum(real), 1)
    mean = jnp.sum(jnp.where(real, advantages, 0)) / count
    centred = jnp.where(real, advantages - mean, 0)
    deviation = jnp.sqrt(jnp.sum(jnp.square(centred)) / count)
    return centred / (deviation + 1e-8)
