"""What a rollout over episodes of completions was like: scores, divergence, values, lengths."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from gophercite.learning.advantages import Advantages
from gophercite.learning.experience import Experience
from gophercite.learning.state import Metrics


def episode_metrics(
    experience: Experience, kl_samples: Float[Array, "rows places"], estimated: Advantages
) -> Metrics:
    """Metrics of a rollout before training on it.

    Args:
      experience: the rollout.
      kl_samples: log-probability of each token under the sampler minus that under the
        behaviour-cloned policy; 0 where there is no token.
      estimated: the advantages, not normalised, and the returns.

    Returns:
      Metrics by name (docs/learning_to_browse.md says what they are).
    """
    real, weights = experience.real, experience.weights
    tokens = jnp.maximum(jnp.sum(real), 1)
    own = weights * (1 - experience.extra)
    episodes = jnp.maximum(jnp.sum(own * experience.ends), 1)
    total = lambda part: jnp.sum(jnp.where(real, part, 0))  # noqa: E731
    of_row = lambda part: jnp.sum(jnp.where(real, part, 0), axis=1)  # noqa: E731
    surprise = total(estimated.advantages) / tokens
    errors = total(jnp.square(estimated.advantages)) / tokens - jnp.square(surprise)
    mean = total(estimated.returns) / tokens
    spread = total(jnp.square(estimated.returns - mean)) / tokens
    answers = jnp.maximum(jnp.sum(weights * experience.ends), 1)
    return {
        "objective/scores": jnp.sum(weights * of_row(experience.rewards)) / answers,
        "objective/kl": jnp.sum(own * of_row(kl_samples)) / episodes,
        "policy/kl_avg": total(kl_samples) / tokens,
        "critic/vf_explained_var": jnp.where(spread > 1e-9, 1 - errors / spread, 0),
        "advantage/mean": surprise,
        "advantage/std": jnp.sqrt(jnp.maximum(errors, 0)),
        "samples/length": jnp.sum(real) / jnp.maximum(jnp.sum(weights), 1),
        "samples/completions": jnp.sum(own) / episodes,
        "throughput/episodes": jnp.sum(weights * experience.ends),
        "throughput/tokens": tokens.astype(jnp.float32),
    }
