"""What an optimiser's update needs beside its arguments, as the compiler counts it.

    JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 python benchmarks/optimizer_memory.py [SLICE]

Compiles the donated update of one stack of square matrices for one core of a TPU slice, with no TPU
present (`pip install 'jax[tpu]'`), and prints temporary bytes for each parameter *of one layer*:
what does not grow with the number of layers stays constant along a row. The last rows are Optax's
own Adafactor on the same stack, as a control.
"""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import topologies

from gophercite.learning.optimizers import adafactor, adam

WIDTH = 2048
LAYERS = (2, 8, 32)

Update = Callable[[Any, Any, Any, jax.Array], tuple[Any, Any]]


def ours(optimizer: Any) -> tuple[Callable[[Any], Any], Update]:
    def update(grads: Any, state: Any, params: Any, key: jax.Array) -> tuple[Any, Any]:
        return optimizer.update(grads, state, params, learning_rate=3e-6, key=key)

    return optimizer.init, update


def optax_adafactor() -> tuple[Callable[[Any], Any], Update]:
    transformation = optax.adafactor(3e-6, multiply_by_parameter_scale=False)

    def update(grads: Any, state: Any, params: Any, key: jax.Array) -> tuple[Any, Any]:
        del key
        updates, state = transformation.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return transformation.init, update


def temporary_bytes(
    init: Callable[[Any], Any], update: Update, dtype: Any, layers: int, sharding: Any
) -> int:
    def place(shape: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)

    params = {"trained_layers": {"kernel": jnp.zeros((), dtype)}}
    params = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((layers, WIDTH, WIDTH), x.dtype, sharding=sharding), params
    )
    state = jax.tree.map(place, jax.eval_shape(init, params))
    key = place(jax.eval_shape(lambda: jax.random.key(0)))
    step = jax.jit(update, donate_argnums=(1, 2))
    return step.lower(params, state, params, key).compile().memory_analysis().temp_size_in_bytes


def main() -> None:
    slice_name = sys.argv[1] if len(sys.argv) > 1 else "v3:2x2"
    device = topologies.get_topology_desc(slice_name, platform="tpu").devices[0]
    sharding = jax.NamedSharding(jax.sharding.Mesh(np.array([device]), ("x",)), jax.P())
    print(f"temporary bytes for each parameter of one layer, {device.device_kind}")
    print("| optimiser | parameters | " + " | ".join(f"{n} layers" for n in LAYERS) + " |")
    print("|---" * (2 + len(LAYERS)) + "|")
    for name, (init, update) in {
        "adafactor": ours(adafactor()),
        "adam": ours(adam()),
        "optax.adafactor": optax_adafactor(),
    }.items():
        for dtype in (jnp.float32, jnp.bfloat16):
            counts = [
                temporary_bytes(init, update, dtype, layers, sharding) / WIDTH**2
                for layers in LAYERS
            ]
            cells = " | ".join(f"{count:.2f}" for count in counts)
            print(f"| {name} | {jnp.dtype(dtype).name} | {cells} |")


if __name__ == "__main__":
    main()
