"""A model's parameters: a dictionary of named parts, with the layers in two stacks.

    {"embed": {"embedding": [vocab, d_model],
               "positions": [max_positions, d_model],            # where they are learned
               "distance_biases": [heads, distance_buckets]},    # T5's, of all layers
     "frozen_layers": {...: [frozen, ...]},      # absent when nothing is frozen
     "trained_layers": {...: [trained, ...]},
     "adapter_layers": {...: [trained, ...]},    # absent without low-rank adapters (`lora`)
     "final_norm": {"scale": [d_model]},
     "unembed": {"kernel": [d_model, vocab]}}    # absent when embeddings are tied

The two stacks of layers run one after the other, the frozen one under `stop_gradient` in its own
scan: it keeps no activations, and has no backward pass and no optimiser state. Masking the update
of a single stack would save none of these. Checkpoints hold one stack (`merge_layers`), which a run
that freezes layers splits (`split_layers`). If there are adapters, they are trained instead of all
of the base model's parameters: the layers that they adapt keep their name but have no gradient.
"""

from typing import Any

import jax
import jax.numpy as jnp

Params = dict[str, Any]
Axes = dict[str, Any]

FROZEN, TRAINED = "frozen_layers", "trained_layers"
ADAPTERS = "adapter_layers"
HEADS = "heads"  # an additional part: a reward model's linear heads
# Parts that reinforcement learning adds to a policy's parameters and inference does not use.
VALUE_HEAD, TEACHER, REWARD_MODEL = "value_head", "teacher", "reward_model"
VALUE_TRUNK = "value_trunk"  # the layers under the value head, if not shared with the policy
BESIDE_THE_POLICY = (VALUE_HEAD, VALUE_TRUNK, TEACHER, REWARD_MODEL)
# The matrices that multiply attention's input, and their concatenation.
PROJECTED, PROJECTIONS = ("query", "key", "value"), "projections"
# The parts that a run with adapters trains, and the only ones in its checkpoints.
WITH_ADAPTERS = (ADAPTERS, HEADS, VALUE_HEAD, VALUE_TRUNK)


def frozen_layers(params: Params) -> int:
    """Number of layers in the frozen stack of parameters (or of a tree like them)."""
    if FROZEN not in params:
        return 0
    return depth(params[FROZEN])


def initial_policy(params: Params) -> Params:
    """The policy with which a run of reinforcement learning began.

    Args:
      params: the run's parameters, whose part `teacher` has initial values of what is trained. If
        these are adapters, it is empty: without them, the policy is what it was.
    """
    return {name: part for name, part in params.items() if name != ADAPTERS} | params[TEACHER]


def own_parts(params: Params) -> Params:
    """The parts that a run's checkpoints hold: all; with adapters, not the base model's."""
    if ADAPTERS not in params:
        return params
    return {name: part for name, part in params.items() if name in WITH_ADAPTERS}


def unstack_layers(params: Params) -> Params:
    """Unstacks the layers, each stack into a tuple, for `decode` without a loop over layers.

    A loop over tokens would slice the layers out of their stack for every token.
    """
    stacks = (FROZEN, TRAINED, ADAPTERS)
    return {
        name: tuple(layer_at(part, i) for i in range(depth(part))) if name in stacks else part
        for name, part in params.items()
    }


def join_projections(params: Params) -> Params:
    """Concatenates the query, key and value matrices of unstacked layers.

    One wide product keeps all cores busy where three narrow ones don't. Layers with adapters are
    unchanged, and so are all layers on a mesh, which shards each matrix by heads.
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
    """One layer of a stack, stacked or not."""
    return stack[index] if isinstance(stack, tuple) else jax.tree.map(lambda x: x[index], stack)


def depth(stack: Any) -> int:
    """The number of layers in a stack, stacked or not."""
    return len(stack) if isinstance(stack, tuple) else jax.tree.leaves(stack)[0].shape[0]


def split_layers(params: Params, frozen: int) -> Params:
    """Divides the layers into a frozen and a trained stack.

    Args:
      params: parameters with one stack, `trained_layers` (two stacks are merged first).
      frozen: number of first layers that form the frozen stack.

    Returns:
      The same parameters in the two stacks.

    Raises:
      ValueError: there are fewer layers than that, or none left to train.
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
    """Joins the frozen and the trained stack into one, `trained_layers`, as in checkpoints."""
    if FROZEN not in params:
        return params
    rest = {name: part for name, part in params.items() if name != FROZEN}
    rest[TRAINED] = jax.tree.map(
        lambda first, second: jnp.concatenate([first, second]), params[FROZEN], params[TRAINED]
    )
    return rest
