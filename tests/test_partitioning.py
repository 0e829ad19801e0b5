import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec

from gophercite.partitioning import DEFAULT_RULES, Partitioner, constrain, make_mesh


def test_a_size_of_minus_one_takes_what_is_left():
    assert dict(make_mesh(data=2, fsdp=-1, model=2).shape) == {"data": 2, "fsdp": 2, "model": 2}


@pytest.mark.parametrize("sizes", [(3, -1, 1), (2, 2, 1), (-1, -1, 1), (0, -1, 1)])
def test_sizes_that_miss_the_devices_are_refused(sizes):
    with pytest.raises(ValueError, match="does not match 8 devices"):
        make_mesh(*sizes)


def test_names_become_mesh_axes():
    partitioner = Partitioner(make_mesh(2, 2, 2))
    assert partitioner.spec(("layers", "embed", "mlp")) == PartitionSpec(None, "fsdp", "model")
    assert partitioner.spec(("batch", "length")) == PartitionSpec(("data", "fsdp"), None)


def test_an_axis_that_does_not_divide_is_left_whole():
    partitioner = Partitioner(make_mesh(1, 4, 2))
    assert partitioner.spec(("embed", "kv_heads"), (6, 3)) == PartitionSpec(None, None)
    assert partitioner.spec(("embed", "kv_heads"), (8, 2)) == PartitionSpec("fsdp", "model")


def test_a_mesh_axis_cuts_an_array_only_once():
    partitioner = Partitioner(make_mesh(1, 4, 2))
    assert partitioner.spec(("heads", "mlp"), (8, 8)) == PartitionSpec("model", None)


def test_an_axis_without_a_rule_is_named():
    partitioner = Partitioner(make_mesh())
    with pytest.raises(ValueError, match="'embedd' has no rule"):
        partitioner.spec(("embedd",))


def test_constraints_hold_inside_and_vanish_outside():
    x = jnp.zeros((8, 4, 4))
    assert constrain(x, "batch", "length", None) is x
    partitioner = Partitioner(make_mesh(2, 2, 2), (("batch", "model"), *DEFAULT_RULES))
    with partitioner.activate():
        y = jax.jit(lambda x: constrain(x + 1, "batch", "length", None))(x)
    assert y.sharding.spec[0] == "model"
