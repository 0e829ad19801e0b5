"""Actor-critic's terms in the next-token distributions (GopherCite, 2.8 and F.1).

Policy gradients are those of the distribution that was sampled from, renormalised over the tokens
that the quote constraint allowed. The KL divergence from the teacher is between the models' full
next-token distributions. As in `cross_entropy`, tokens are processed in chunks, and a chunk's
gradient is computed while its logits are in memory.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from gophercite.learning.cross_entropy import in_chunks
from gophercite.models.attention import MASKED
from gophercite.models.unembedding import Unembedding
from gophercite.quoting.quote_state import QuoteState, QuoteTables, allowed


class Places(NamedTuple):
    """The positions of samples, each with the token drawn there.

    Attributes:
      tokens: the drawn tokens.
      tokens_left: number of tokens that the sample could still have there, including this one.
      weights: 1 for a token, 0 after a sample's end.
      advantages: the sample's reward minus the reward expected at this position.
      quote: the sample's state in its prompt's graph; None without a constraint.
    """

    tokens: Int[Array, "rows places"]
    tokens_left: Int[Array, "rows places"]
    weights: Float[Array, "rows places"]
    advantages: Float[Array, "rows places"]
    quote: QuoteState | None


class PolicySums(NamedTuple):
    """Weighted sums over positions.

    Attributes:
      log_prob: log-probability of the drawn tokens, renormalised over the allowed ones, in nats.
      advantage_log_prob: the same times the advantages.
      kl: KL divergence of the policy from the teacher, over all tokens, in nats.
      entropy: entropy of the policy, over all tokens, in nats.
      outside_claims: number of positions where only text of a title, a quote or a mark could
        follow.
      forced: number of positions where only one token was allowed.
    """

    log_prob: Float[Array, ""]
    advantage_log_prob: Float[Array, ""]
    kl: Float[Array, ""]
    entropy: Float[Array, ""]
    outside_claims: Float[Array, ""]
    forced: Float[Array, ""]


class Readouts(NamedTuple):
    """Representations before each position, and the unembedding to apply to them.

    Attributes:
      hidden: final representations.
      unembedding: maps them to logits.
    """

    hidden: Float[Array, "rows places d_model"]
    unembedding: Unembedding


@partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def policy_terms(
    policy: Readouts,
    teacher: Readouts,
    places: Places,
    quotes: QuoteTables | None,
    kl_weight: float,
    vocabulary_size: int,
    chunk: int | None,
) -> tuple[Float[Array, ""], PolicySums]:
    """The policy-gradient term and the KL divergence from the teacher.

    A position where only one token is allowed has no policy gradient, whatever its advantage,
    because that token's probability among the allowed ones is 1. The KL divergence counts there,
    too.

    Args:
      policy: the policy's representations.
      teacher: the teacher's representations; they have no gradient.
      places: the sampled tokens.
      quotes: the tables that constrained the samples; None without a constraint.
      kl_weight: α.
      vocabulary_size: the model's ids from here on are unused.
      chunk: number of positions whose logits are in memory at once, over all rows; None is the
        platform's usual number.

    Returns:
      α · KL − (1 − α) · Σ advantage · log π, which is differentiable in `policy` alone, and sums,
      which are not differentiable.
    """

    def body(carry: tuple[Array, PolicySums], leaf: tuple[Array, Array, Places]) -> tuple:
        x, reference, at = leaf
        both = (policy.unembedding, reference, teacher.unembedding)
        term = _term(x, *both, at, quotes, kl_weight, vocabulary_size)
        return jax.tree.map(jnp.add, carry, term), None

    return jax.lax.scan(body, _nothing(), _leaves(chunk, policy, teacher, places))[0]


def _forward(
    policy: Readouts,
    teacher: Readouts,
    places: Places,
    quotes: QuoteTables | None,
    kl_weight: float,
    vocabulary_size: int,
    chunk: int | None,
) -> tuple[tuple[Array, PolicySums], Readouts]:
    slope = jax.value_and_grad(_term, argnums=(0, 1), has_aux=True)

    def body(
        carry: tuple[tuple[Array, PolicySums], Unembedding], leaf: tuple[Array, Array, Places]
    ) -> tuple[tuple[tuple[Array, PolicySums], Unembedding], Array]:
        x, reference, at = leaf
        both = (policy.unembedding, reference, teacher.unembedding)
        term, (for_hidden, new) = slope(x, *both, at, quotes, kl_weight, vocabulary_size)
        sums = jax.tree.map(jnp.add, carry[0], term)
        added = jax.tree.map(lambda old, new: old + new.astype(jnp.float32), carry[1], new)
        return (sums, added), for_hidden

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), policy.unembedding)
    (sums, for_unembedding), for_hidden = jax.lax.scan(
        body, (_nothing(), zeros), _leaves(chunk, policy, teacher, places)
    )
    for_unembedding = jax.tree.map(
        lambda slope, x: slope.astype(x.dtype), for_unembedding, policy.unembedding
    )
    rows, length, width = policy.hidden.shape
    for_hidden = jnp.moveaxis(for_hidden, 0, 1).reshape(rows, -1, width)[:, :length]
    return sums, Readouts(for_hidden, for_unembedding)


def _backward(
    kl_weight: float,
    vocabulary_size: int,
    chunk: int | None,
    slopes: Readouts,
    gradients: tuple[Array, PolicySums],
) -> tuple[Readouts, None, None, None]:
    of_objective = gradients[0]  # the sums are not differentiable (see the docstring)
    scaled = jax.tree.map(lambda slope: slope * of_objective.astype(slope.dtype), slopes)
    return scaled, None, None, None


policy_terms.defvjp(_forward, _backward)


def _term(
    x: Array,
    unembedding: Unembedding,
    reference: Array,
    of_reference: Unembedding,
    at: Places,
    quotes: QuoteTables | None,
    kl_weight: float,
    vocabulary_size: int,
) -> tuple[Array, PolicySums]:
    """The objective and the sums of one chunk."""
    logits = unembedding.logits_by_row(x)[..., :vocabulary_size]
    log_p = jax.nn.log_softmax(logits)
    log_q = jax.nn.log_softmax(of_reference.logits_by_row(reference)[..., :vocabulary_size])
    p = jnp.exp(log_p)
    kl = jnp.sum(p * (log_p - log_q), axis=-1)
    if quotes is None or at.quote is None:
        log_prob = _at(log_p, at.tokens)
        outside = forced = jnp.zeros(at.tokens.shape)
    else:
        flat = jax.tree.map(lambda part: part.reshape(-1), at.quote)
        mask = allowed(quotes, flat, at.tokens_left.reshape(-1)).reshape(logits.shape)
        log_prob = _at(jax.nn.log_softmax(jnp.where(mask, logits, MASKED)), at.tokens)
        outside = quotes.claim[at.quote.node] < 0
        forced = jnp.sum(mask, axis=-1) == 1
    total = lambda values: jnp.sum(at.weights * values)  # noqa: E731
    sums = PolicySums(
        log_prob=total(log_prob),
        advantage_log_prob=total(at.advantages * log_prob),
        kl=total(kl),
        entropy=total(-jnp.sum(p * log_p, axis=-1)),
        outside_claims=total(outside),
        forced=total(forced),
    )
    return kl_weight * sums.kl - (1 - kl_weight) * sums.advantage_log_prob, sums


def _at(values: Array, tokens: Array) -> Array:
    return jnp.take_along_axis(values, tokens[..., None], axis=-1)[..., 0]


def _nothing() -> tuple[Array, PolicySums]:
    zero = jnp.zeros(())
    return zero, PolicySums(*(zero for _ in PolicySums._fields))


def _leaves(
    chunk: int | None, policy: Readouts, teacher: Readouts, places: Places
) -> tuple[Array, Array, Places]:
    leaves, tree = jax.tree.flatten((policy.hidden, teacher.hidden, places))
    cut: tuple[Array, Array, Places] = jax.tree.unflatten(tree, in_chunks(chunk, *leaves))
    return cut
