"""A model's parameters: a dictionary of named parts, whose layers lie in two stacks.

    {"embed": {"embedding": [vocab, d_model],
               "positions": [max_positions, d_model],            # where they are learned
               "distance_biases": [heads, distance_buckets]},    # T5's, of all layers
     "frozen_layers": {...: [frozen, ...]},      # absent when nothing is frozen
     "trained_layers": {...: [trained, ...]},
     "adapter_layers": {...: [trained, ...]},    # absent without low-rank adapters (`lora`)
     "final_norm": {"scale": [d_model]},
     "unembed": {"kernel": [d_model, vocab]}}    # absent when embeddings are tied

The two stacks of layers run one after the other, the frozen one under `stop_gradient` in a scan of
its own: it keeps no activations, has no backward pass and no optimiser state. A mask over one
stack's update would save none of these. Checkpoints hold one stack (`merge_layers`), which a run
splits where it freezes (`split_layers`). Where there are adapters they are trained in place of all
that the base model has: the layers that they adapt keep their name, and have no gradient.
"""

from typing import Any

import jax
import jax.numpy as jnp

Params = dict[str, Any]
Axes = dict[str, Any]

FROZEN, TRAINED = "frozen_layers", "trained_layers"
ADAPTERS = "adapter_layers"
HEADS = "heads"  # what a model has beside the language model's: a reward model's linear heads
# What reinforcement learning adds to a policy's parameters, and inference has no use for.
VALUE_HEAD, TEACHER, REWARD_MODEL = "value_head", "teacher", "reward_model"
VALUE_TRUNK = "value_trunk"  # the layers under the value head where they are not the policy's
BESIDE_THE_POLICY = (VALUE_HEAD, VALUE_TRUNK, TEACHER, REWARD_MODEL)
# The matrices that attention's input is multiplied by, and all of them side by side.
PROJECTED, PROJECTIONS = ("query", "key", "value"), "projections"
# What a run with adapters trains, and all of the parameters that its checkpoints hold.
WITH_ADAPTERS = (ADAPTERS, HEADS, VALUE_HEAD)


def frozen_layers(params: Params) -> int:
    """Layers in the frozen stack of a tree of parameters (or of anything shaped like it)."""
    if FROZEN not in params:
        return 0
    return depth(params[FROZEN])


def own_parts(params: Params) -> Params:
    """What a run's checkpoints hold: all parts; with adapters, none of those of the base model."""
    if ADAPTERS not in params:
        return params
    return {name: part for name, part in params.items() if name in WITH_ADAPTERS}


def unstack_layers(params: Params) -> Params:
    """Takes the layers apart, each stack a tuple, for `decode` without a loop over them.

    A loop over tokens would cut the layers out of their stack for every token.
    """
    stacks = (FROZEN, TRAINED, ADAPTERS)
    return {
        name: tuple(layer_at(part, i) for i in range(depth(part))) if name in stacks else part
        for name, part in params.items()
    }


def join_projections(params: Params) -> Params:
    """Lays the matrices of queries, keys and values side by side, in layers that were taken apart.

    One wide product keeps all cores at work where three narrow ones don't. Layers with adapters
    stay as they are; so do all over a mesh, which cuts each matrix by heads.
    """
    if jax.sharding.get_abstract_mesh().size > 1:
        return params

    def joined(layer: Params) -> Params:
        return {**layer, PROJECTIONS: jnp.concatenate([layer[x] for x in PROJECTED], axis=1)}

    stacks = (FROZEN,) if ADAPTERS in params else (FROZEN, TRAINED)
    return {
        name: tuple(map(joined, part)) if name in stacks else part for name, part in params.items()
    }


def layer_at(stack: Any, index: int) -> Any:
    """One layer of a stack, or of a stack taken apart."""
    return stack[index] if isinstance(stack, tuple) else jax.tree.map(lambda x: x[index], stack)


def depth(stack: Any) -> int:
    """The number of layers of a stack, or of a stack taken apart."""
    return len(stack) if isinstance(stack, tuple) else jax.tree.leaves(stack)[0].shape[0]


def split_layers(params: Params, frozen: int) -> Params:
    """Divides the layers into a frozen and a trained stack.

    Args:
      params: parameters with one stack, `trained_layers` (else it is merged first).
      frozen: layers in the frozen stack, from the first.

    Returns:
      The same parameters in the two stacks.

    Raises:
      ValueError: fewer layers than that, or none left to train.
    """
    merged = merge_layers(params)
    layers = depth(merged[TRAINED])
    if not 0 <= frozen < layers:
        raise ValueError(
            f"can't freeze {frozen} of {layers} layers: 0 to {layers - 1} are possible"
        )
    if frozen == 0:
        return merged
    first = jax.tree.map(lambda leaf: leaf[:frozen], merged[TRAINED])
    rest = jax.tree.map(lambda leaf: leaf[frozen:], merged[TRAINED])
    return {FROZEN: first, **merged, TRAINED: rest}


def merge_layers(params: Params) -> Params:
    """Joins the frozen and the trained stack into one, `trained_layers`, as checkpoints hold it."""
    if FROZEN not in params:
        return params
    rest = {name: part for name, part in params.items() if name != FROZEN}
    rest[TRAINED] = jax.tree.map(
        lambda first, second: jnp.concatenate([first, second]), params[FROZEN], params[TRAINED]
    )
    return rest
