"""A learner of a few thousand parameters with all the parts of a real one, for tests of training.

It has a stack of layers that can be split, a frozen part, factored and unfactored statistics of the
real Adafactor, and bfloat16 parameters rounded at random, so that a state that came back with the
wrong key, step or order of batches shows in the bits of the parameters.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from gophercite.learning.optimizers import Optimizer, adafactor
from gophercite.learning.state import Batch, HostTotals, Metrics, Totals, TrainState, means
from gophercite.models.parameters import FROZEN, TRAINED, Params, split_layers
from gophercite.partitioning import Partitioner, make_mesh

# Wide enough that TensorStore keeps a kernel in a data file of its own, not in its index.
VOCABULARY, WIDTH, LAYERS, ROWS, LENGTH = 16, 32, 4, 8, 6


@dataclasses.dataclass(frozen=True)
class TinyLearner:
    """Predicts the next token from this one through a few tanh layers.

    Attributes:
      optimizer: a real one.
      poison_from: from this step on the loss is NaN.
      frozen_parts: parts without optimiser state.
    """

    optimizer: Optimizer = dataclasses.field(
        default_factory=lambda: adafactor(min_dim_size_to_factor=16)
    )
    poison_from: int = 10**6
    frozen_parts: tuple[str, ...] = ()

    def _trained(self, params: Params) -> Params:
        frozen = {FROZEN, *self.frozen_parts}
        return {name: part for name, part in params.items() if name not in frozen}

    def init_state(self, params: Params, key: jax.Array) -> TrainState:
        optimizer = self.optimizer.init(self._trained(params))
        return TrainState(jnp.zeros((), jnp.int32), params, optimizer, None, key)

    def state_axes(self, params: Params) -> TrainState:
        axes = {
            "embed": {"embedding": ("vocab", "embed")},
            FROZEN: {"kernel": ("layers", "embed", "mlp")},
            TRAINED: {"kernel": ("layers", "embed", "mlp")},
            "final_norm": {"scale": ("embed",)},
        }
        axes = {name: axes[name] for name in params}
        trained = self._trained(params)
        optimizer = self.optimizer.state_axes(self._trained(axes), trained)
        return TrainState((), axes, optimizer, None, ())

    def _nll(self, params: Params, batch: Batch) -> jax.Array:
        def layer(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, None]:
            return x + jnp.tanh(x @ kernel.astype(jnp.float32)), None

        embedding = params["embed"]["embedding"].astype(jnp.float32)
        x = embedding[batch["tokens"]]
        for name in (FROZEN, TRAINED):
            if name in params:
                x, _ = jax.lax.scan(layer, x, params[name]["kernel"])
        logits = (x * params["final_norm"]["scale"].astype(jnp.float32)) @ embedding.T
        chosen = jnp.take_along_axis(logits, batch["targets"][..., None], -1)[..., 0]
        return jax.nn.logsumexp(logits, axis=-1) - chosen

    def update(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        def loss(trained: Params) -> jax.Array:
            value = jnp.mean(self._nll({**state.params, **trained}, batch))
            return jnp.where(state.step >= self.poison_from, jnp.nan, value)

        trained = self._trained(state.params)
        value, grads = jax.value_and_grad(loss)(trained)
        key = jax.random.fold_in(state.key, state.step)
        trained, optimizer = self.optimizer.update(
            grads, state.optimizer, trained, learning_rate=jnp.float32(0.01), key=key
        )
        params = {**state.params, **trained}
        state = TrainState(state.step + 1, params, optimizer, None, state.key)
        return state, {"loss/total": value}

    def evaluate(self, params: Params, batch: Batch) -> Totals:
        real = (batch["segments"] > 0).astype(jnp.float32)
        return {"loss": (jnp.sum(self._nll(params, batch) * real), jnp.sum(real))}

    def summarise(self, totals: HostTotals) -> dict[str, float]:
        return means(totals)


@dataclasses.dataclass(frozen=True)
class TinyInitialisation:
    """Random parameters, the same however many layers are frozen."""

    frozen_layers: int = 0

    def _draw(self, seed: np.ndarray) -> Params:
        draws = np.random.default_rng(seed)
        params = {
            "embed": {"embedding": draws.normal(size=(VOCABULARY, WIDTH))},
            TRAINED: {"kernel": draws.normal(size=(LAYERS, WIDTH, WIDTH)) * WIDTH**-0.5},
            "final_norm": {"scale": np.ones(WIDTH)},
        }
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
        return split_layers(params, self.frozen_layers)

    def shapes(self) -> Params:
        return jax.eval_shape(lambda: jax.tree.map(jnp.asarray, self._draw(np.zeros(2, int))))

    def parameters(self, key: jax.Array, shardings: Params) -> Params:
        drawn = self._draw(np.asarray(jax.random.key_data(key)))
        return jax.tree.map(
            lambda leaf, place: jax.make_array_from_callback(
                leaf.shape, place, lambda index: leaf[index]
            ),
            drawn,
            shardings,
        )

    def base(self) -> None:
        """There are no adapters."""


def batch(number: int, rows: slice = slice(None)) -> dict[str, np.ndarray]:
    """The batch of a number, or some rows of it."""
    draws = np.random.default_rng([7, number])
    tokens = draws.integers(0, VOCABULARY, (ROWS, LENGTH), dtype=np.int32)[rows]
    return {
        "tokens": tokens,
        "targets": (tokens * 3 + 1) % VOCABULARY,
        "segments": np.ones_like(tokens),
    }


def batches(rows: slice = slice(None), pause: float = 0.0) -> Callable[[int], Iterator]:
    """The endless sequence of batches, from a number on, each after a pause."""

    def iterate(start: int) -> Iterator[dict[str, np.ndarray]]:
        number = start
        while True:
            time.sleep(pause)
            yield batch(number, rows)
            number += 1

    return iterate


def evaluation(rows: slice = slice(None)) -> Callable[[], Iterator]:
    """Two held-out batches, the second half padding."""

    def one_pass() -> Iterator[dict[str, np.ndarray]]:
        yield batch(10**6, rows)
        last = batch(10**6 + 1, rows)
        last["segments"][:, LENGTH // 2 :] = 0
        yield last

    return one_pass


def partitioner(**axes: int) -> Partitioner:
    """A mesh over all devices."""
    return Partitioner(make_mesh(**axes))


def two_devices() -> Partitioner:
    """A mesh over two devices, whose programs take less time than those of eight."""
    return Partitioner(make_mesh(devices=jax.devices()[:2]))


def bits(tree: object) -> dict[str, bytes]:
    """Each leaf's bytes by its path, keys as integers."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)

    def raw(leaf: jax.Array) -> bytes:
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        return np.asarray(leaf).tobytes()

    return {jax.tree_util.keystr(path): raw(leaf) for path, leaf in leaves}
