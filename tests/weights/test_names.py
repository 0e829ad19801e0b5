"""Where parameters lie in tensors that several share, and in files without a prefix."""

import numpy as np
import pytest

from gophercite.weights.names import NAMES, Fused, Place


@pytest.mark.parametrize("by_head", [True, False])
def test_fused_parts_cover_their_tensor_once(by_head: bool) -> None:
    heads, width = 3, 6
    parts = [Fused(part, 3, by_head).columns(width, heads) for part in range(3)]
    outputs = np.arange(3 * width)
    found = [np.concatenate([outputs[columns] for columns in part]) for part in parts]
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), outputs)
    first_key = width // heads if by_head else width
    assert [part[0] for part in found] == [0, first_key, 2 * first_key]


def test_shape_of_a_shared_tensor() -> None:
    place = Place("query_key_value.weight", transposed=True, fused=Fused(0, 3, by_head=True))
    assert place.tensor_shape((4, 6)) == (18, 4)
    assert place._replace(transposed=False).tensor_shape((6,)) == (18,)


def test_files_without_a_head_lack_the_prefix() -> None:
    names = NAMES["llama"]
    assert names.of_files(["model.norm.weight"]) is names
    bare = names.of_files(["norm.weight"]).places
    assert bare["final_norm/scale"].tensor == "norm.weight"
    assert bare["trained_layers/up"].tensor == "layers.{}.mlp.up_proj.weight"
