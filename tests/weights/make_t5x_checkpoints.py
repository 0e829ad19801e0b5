"""Makes the small checkpoints in `t5x_checkpoints/` and the logits that T5X has for them.

Needs T5X on the path (docs/t5x.md names the versions), which the tests themselves don't:

    python -m tests.weights.make_t5x_checkpoints

T5X's own network draws the weights and computes the logits in float32, its own checkpointer writes
the folders, as a training run would, and its own functions what stands beside them (`config.gin`,
`model-info.txt`). The longest sequence passes the last bucket of distances.
"""

import pathlib
import shutil
import tempfile

import gin
import jax
import jax.numpy as jnp
import numpy as np
from t5x import adafactor, checkpoints, gin_utils, partitioning, train_state, utils
from t5x.examples.decoder_only import network

CHECKPOINTS = pathlib.Path(__file__).parent / "t5x_checkpoints"
STEP = 1000

SIZES = {"vocab_size": 288, "emb_dim": 16, "num_heads": 4, "head_dim": 6, "mlp_dim": 24}
# By name: what its network is, the lengths of the sequences, and the dtype that it is saved in.
KINDS = {
    "gated": (
        SIZES
        | {"num_layers": 3, "mlp_activations": ("gelu", "linear"), "logits_via_embedding": True},
        (134, 7, 3),
        jnp.float32,
    ),
    "plain": (
        SIZES | {"num_layers": 2, "mlp_activations": ("relu",), "logits_via_embedding": False},
        (24, 7, 3),
        jnp.bfloat16,
    ),
}


def bind(fields: dict[str, object]) -> None:
    """Says the sizes in gin, in the form of T5X's own files of models."""
    gin.clear_config()
    lines = [
        "from __gin__ import dynamic_registration",
        "from t5x.examples.decoder_only import network",
        "network.DecoderWrapper.config = @network.TransformerConfig()",
        "network.TransformerConfig:",
        *(f"  {name} = {value!r}" for name, value in fields.items()),
        "  dropout_rate = 0.0",
        "  dtype = 'float32'",
    ]
    gin.parse_config(lines)


def moved(params: object, seed: int, save_dtype: object) -> object:
    """Scales off their ones, and all values such that the file's dtype holds them."""
    draws = np.random.default_rng(seed)

    def move(leaf: jax.Array) -> jax.Array:
        if leaf.ndim == 1:
            leaf = leaf + 0.3 * draws.normal(size=leaf.shape)
        return jnp.asarray(leaf, save_dtype).astype(jnp.float32)

    return jax.tree.map(move, params)


def make(name: str, seed: int) -> None:
    """Writes one run's folder and its logits."""
    fields, lengths, save_dtype = KINDS[name]
    bind(fields)
    module = network.DecoderWrapper(network.TransformerConfig(**fields, dropout_rate=0.0))
    ones = jnp.ones((1, lengths[0]), jnp.int32)
    variables = dict(module.init(jax.random.key(seed), ones, ones, enable_dropout=False))
    # The query starts small, the embedding wide: so that all parts show in the logits.
    variables["params"] = moved(variables["params"], seed, save_dtype)
    rules = adafactor.standard_logical_factor_rules()
    optimizer = adafactor.Adafactor(learning_rate=1e-3, logical_factor_rules=rules)
    state = train_state.FlaxOptimTrainState.create(optimizer, variables)
    state = state.replace_step(jnp.asarray(STEP))
    folder = pathlib.Path(tempfile.mkdtemp()) / name
    partitioner = partitioning.PjitPartitioner(num_partitions=1)
    with partitioner.mesh:
        checkpoints.Checkpointer(state, partitioner, str(folder), save_dtype=save_dtype).save(state)
    utils.log_model_info(str(folder / "model-info.txt"), state, partitioner)
    gin_utils.summarize_gin_config(str(folder), None, 0)

    tokens = np.random.default_rng(seed).integers(2, fields["vocab_size"], (3, lengths[0]))
    tokens[:, 0] = 0  # how all of T5X's sequences begin
    logits = {}
    for row, length in enumerate(lengths):
        ids = jnp.asarray(tokens[row : row + 1, :length])
        found = module.apply(variables, ids, jnp.ones_like(ids), enable_dropout=False)
        logits[f"logits_{length}"] = np.asarray(found[0], np.float32)
    CHECKPOINTS.mkdir(exist_ok=True)
    shutil.make_archive(str(CHECKPOINTS / name), "zip", folder)
    np.savez_compressed(CHECKPOINTS / f"{name}.npz", tokens=tokens, **logits)


if __name__ == "__main__":
    for number, kind in enumerate(KINDS):
        make(kind, number)
