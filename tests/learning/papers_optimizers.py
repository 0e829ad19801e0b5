"""Adafactor, AdamW, clipping and averages in NumPy's float64, written from the papers' equations.

They know one matrix at a time, without stacks, low precision or sharding. Nothing here calls Optax:
our Adam and our schedules do, so that a comparison with it would find less.
"""

import dataclasses
from typing import Any, Protocol

import jax
import numpy as np

Moments = dict[str, Any]


class Reference(Protocol):
    """A method's direction for one matrix; `moments`, empty at first, are updated."""

    def direction(self, t: int, g: np.ndarray, x: np.ndarray, moments: Moments) -> np.ndarray: ...


def root_mean_square(x: np.ndarray) -> float:
    """RMS of Shazeer and Stern, section 6."""
    return float(np.sqrt(np.sum(x**2) / x.size))


@dataclasses.dataclass(frozen=True)
class PaperAdafactor:
    """Algorithms 4 (matrices) and 5 (vectors) of Shazeer and Stern 2018.

    They have row sums R, column sums C and the estimate R C / (1ᵀ R). Without `relative`, α_t is
    the learning rate itself. A matrix with a side below `least_side` is treated like a vector.
    """

    decay_rate: float = 0.8
    d: float | None = 1.0
    least_side: int = 128
    relative: bool = False
    epsilon_1: float = 1e-30
    epsilon_2: float = 1e-3

    def direction(self, t: int, g: np.ndarray, x: np.ndarray, moments: Moments) -> np.ndarray:
        beta = 1 - t**-self.decay_rate
        squares = g**2 + self.epsilon_1

        def moved(name: str, new: np.ndarray) -> np.ndarray:
            moments[name] = beta * moments.get(name, 0.0) + (1 - beta) * new
            return moments[name]

        if g.ndim >= 2 and g.shape[-2] >= self.least_side and g.shape[-1] >= self.least_side:
            r, c = moved("R", squares.sum(axis=-1)), moved("C", squares.sum(axis=-2))
            v = r[..., :, None] * c[..., None, :] / r.sum(axis=-1)[..., None, None]
        else:
            v = moved("V", squares)
        u = g / np.sqrt(v)
        if self.d is not None:
            u = u / max(1.0, root_mean_square(u) / self.d)
        return u * max(self.epsilon_2, root_mean_square(x)) if self.relative else u


@dataclasses.dataclass(frozen=True)
class PaperAdam:
    """Algorithm 2 of Loshchilov and Hutter 2019 without the decay (`stepped` has that)."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8

    def direction(self, t: int, g: np.ndarray, x: np.ndarray, moments: Moments) -> np.ndarray:
        m = moments["m"] = self.beta_1 * moments.get("m", 0.0) + (1 - self.beta_1) * g
        v = moments["v"] = self.beta_2 * moments.get("v", 0.0) + (1 - self.beta_2) * g**2
        m, v = m / (1 - self.beta_1**t), v / (1 - self.beta_2**t)
        return m / (np.sqrt(v) + self.epsilon)


def stepped(x: np.ndarray, direction: np.ndarray, rate: float, weight_decay: float) -> np.ndarray:
    """One step, with the decoupled decay of matrices alone (their algorithm 2, line 12)."""
    decay = weight_decay if x.ndim >= 2 else 0.0
    return x - rate * (direction + decay * x)


def matrices(tree: Any) -> dict[str, np.ndarray]:
    """A tree's arrays by name in float64, with each layer of a stack by itself."""
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name, x = jax.tree_util.keystr(path, simple=True, separator="/"), np.asarray(leaf, float)
        is_stack = name.partition("/")[0].endswith("_layers")
        found |= {f"{name}/{i}": layer for i, layer in enumerate(x)} if is_stack else {name: x}
    return found


def clipped(grads: dict[str, np.ndarray], limit: float) -> tuple[dict[str, np.ndarray], float]:
    """Pascanu, Mikolov and Bengio 2013, algorithm 1; also the norm before."""
    norm = float(np.sqrt(sum(np.sum(g**2) for g in grads.values())))
    if norm > limit:
        grads = {name: limit / norm * g for name, g in grads.items()}
    return grads, norm
