"""What is read off compiled programs, against what the programs were written to do."""

import math
import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from gophercite.partitioning import make_mesh
from gophercite.planning.compiled import _valid_products, costs
from gophercite.planning.exchanges import Collective, by_kind_and_axis, groups_of

MESH = {"data": 2, "fsdp": 2, "model": 2}


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return make_mesh(**MESH)


def shape(*sizes: int, dtype: object = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def test_products_are_counted_loops_by_their_turns_and_branches_all() -> None:
    def step(x: jax.Array, weights: jax.Array, flag: jax.Array) -> jax.Array:
        def layer(x: jax.Array, weight: jax.Array) -> tuple[jax.Array, None]:
            inner = jax.lax.fori_loop(0, 3, lambda _, y: jnp.tanh(y @ weight), x)
            return inner, None

        x, _ = jax.lax.scan(layer, x, weights)
        return jax.lax.cond(flag, lambda y: y @ weights[0], lambda y: jnp.sin(y @ weights[1]), x)

    lowered = jax.jit(step).lower(shape(16, 32), shape(5, 32, 32), shape(dtype=bool))
    found = costs(lowered.compile().as_text() or "")
    assert found.flops == (5 * 3 + 2) * 2 * 16 * 32 * 32
    assert found.unknown_loops == 0
    assert found.collectives == ()


@pytest.mark.parametrize("counter", [jnp.int32, jnp.uint32])
def test_a_loop_s_bound_is_read_off_its_condition(counter: type) -> None:
    """The partitioner's own loops, over parts of a product, count without a sign."""

    def step(x: jax.Array, weight: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(counter(0), counter(5), lambda _, y: jnp.tanh(y @ weight), x)

    text = jax.jit(step).lower(shape(8, 16), shape(16, 16)).compile().as_text() or ""
    unsaid = re.sub(r'"known_trip_count":\{"n":"5"\},?', "", text)
    assert "known_trip_count" not in unsaid
    found = costs(unsaid)
    assert found.flops == 5 * 2 * 8 * 16 * 16
    assert found.unknown_loops == 0


@pytest.mark.parametrize(("bound", "step", "turns"), [(8, 2, 4), (7, 2, 4), (9, 3, 3)])
def test_counters_may_go_in_larger_steps(bound: int, step: int, turns: int) -> None:
    """As those of the partitioner's loops do, which are unrolled by two."""

    def turn(carried: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        count, x, weight = carried
        return count + jnp.uint32(step), jnp.tanh(x @ weight), weight

    def run(x: jax.Array, weight: jax.Array) -> jax.Array:
        start = (jnp.uint32(0), x, weight)
        return jax.lax.while_loop(lambda carried: carried[0] < bound, turn, start)[1]

    text = jax.jit(run).lower(shape(8, 16), shape(16, 16)).compile().as_text() or ""
    unsaid = re.sub(r'"known_trip_count":\{"n":"\d+"\},?', "", text)
    assert "known_trip_count" not in unsaid
    found = costs(unsaid)
    assert found.flops == turns * 2 * 8 * 16 * 16
    assert found.unknown_loops == 0


def test_calls_of_kernels_are_counted_as_often_as_they_run() -> None:
    """As a TPU's compiler writes them: nothing says how much they compute."""

    def run(x: jax.Array, weight: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 5, lambda _, x: jnp.tanh(x @ weight), x)

    text = jax.jit(run).lower(shape(8, 16), shape(16, 16)).compile().as_text() or ""
    kernel = r'custom-call(\1), custom_call_target="tpu_custom_call"'
    replaced, products = re.subn(r"\bdot\(([^)]*)\), [^\n]*", kernel, text)
    assert products == 1
    found = costs(replaced)
    assert (found.kernel_calls, found.flops) == (5, 0)
    assert costs(text).kernel_calls == 0
    other = costs(replaced.replace("tpu_custom_call", "Sharding"))
    assert other.kernel_calls == 0


def test_a_gradient_takes_three_times_as_much() -> None:
    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(lambda x, weight: (jnp.tanh(x @ weight), None), x, weights)
        return x.sum()

    lowered = jax.jit(jax.grad(loss, (0, 1))).lower(shape(6, 24, 24), shape(8, 24))
    assert costs(lowered.compile().as_text() or "").flops == 3 * 6 * 2 * 8 * 24 * 24


def test_loops_that_data_ends_count_as_often_as_their_names_say() -> None:
    def until(bound: int, body: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < bound, body, x)

    def step(x: jax.Array, weight: jax.Array) -> jax.Array:
        with jax.named_scope("at_most.7"):
            # The loop inside has no number of its own.
            x = until(9, lambda x: until(99, lambda x: x @ weight, x @ weight), x)
        return until(999, lambda x: x @ weight, x)

    text = jax.jit(step).lower(shape(4, 16), shape(16, 16)).compile().as_text() or ""
    found = costs(text)
    assert found.flops == (7 * 2 + 1) * 2 * 4 * 16 * 16
    assert found.unknown_loops == 3


def test_a_named_loop_counts_by_its_name_though_its_condition_has_a_bound() -> None:
    """Each row has two samples, and ends them when its data says so."""

    def step(x: jax.Array, weight: jax.Array) -> jax.Array:
        def draw(rows: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            x, ended = rows
            return x @ weight, ended + (x.sum(axis=1) > 0)

        with jax.named_scope("at_most.7"):
            begun = x, jnp.zeros(4, jnp.int32)
            return jax.lax.while_loop(lambda rows: jnp.any(rows[1] < 2), draw, begun)[0]

    text = jax.jit(step).lower(shape(4, 16), shape(16, 16)).compile().as_text() or ""
    found = costs(text)
    assert found.flops == 7 * 2 * 4 * 16 * 16
    assert found.unknown_loops == 1


@pytest.mark.parametrize("axes", [("data",), ("fsdp",), ("model",), ("data", "model")])
def test_a_sum_over_axes_is_an_all_reduce_along_them(
    mesh: jax.sharding.Mesh, axes: tuple[str, ...]
) -> None:
    """Every device sends its part to the others' sum, and gets the sum: twice (n - 1) / n."""
    place = NamedSharding(mesh, P(None, axes))
    whole = NamedSharding(mesh, P())
    step = jax.jit(
        lambda x, w: jax.lax.scan(lambda c, _: (jnp.tanh(x @ (w + c)).mean(), None), 0.0, None, 4),
        in_shardings=(place, NamedSharding(mesh, P(axes, None))),
        out_shardings=whole,
    )
    text = step.lower(shape(8, 64), shape(64, 16)).compile().as_text() or ""
    found = costs(text, MESH)
    count = math.prod(MESH[axis] for axis in axes)
    reduced = [each for each in found.collectives if each.times == 4 and each.sent > 100]
    assert {(each.kind, each.axes) for each in reduced} == {("all-reduce", axes)}
    assert sum(each.sent for each in reduced) == 2 * 4 * 8 * 16 * (count - 1) // count
    assert found.flops == 4 * 2 * 8 * 16 * 64 // count


def test_a_cut_parameter_is_gathered(mesh: jax.sharding.Mesh) -> None:
    place = NamedSharding(mesh, P("fsdp", None))
    step = jax.jit(
        lambda x, w: x @ w,
        in_shardings=(NamedSharding(mesh, P()), place),
        out_shardings=NamedSharding(mesh, P()),
    )
    text = step.lower(shape(512, 32), shape(32, 16)).compile().as_text() or ""
    table = by_kind_and_axis(costs(text, MESH).collectives)
    assert set(table) <= {("all-gather", ("fsdp",)), ("all-reduce", ("fsdp",))}
    if ("all-gather", ("fsdp",)) in table:
        assert table["all-gather", ("fsdp",)] == (32 * 16 * 4 // 2, 1, 0)


def test_traffic_of_a_loop_over_layers_is_a_layer_a_turn() -> None:
    """A weight of all is read in each turn, not all of them."""

    def step(x: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    text = jax.jit(step).lower(shape(4, 256), shape(32, 256, 256)).compile().as_text() or ""
    weights = 32 * 256 * 256 * 4
    # A turn cuts its layer out, which reads and writes it, and multiplies by it.
    assert weights <= costs(text).traffic <= 4 * weights


# A TPU's own way to write products and exchanges, in small.
TPU = """HloModule jit_f, is_scheduled=true

%add.clone (x: f32[], y: f32[]) -> f32[] {
  %x = f32[]{:T(128)} parameter(0)
  %y = f32[]{:T(128)} parameter(1)
  ROOT %sum = f32[]{:T(128)} add(%x, %y)
}

%async_computation (a: bf16[64,32]) -> bf16[64,64] {
  %a = bf16[64,32]{1,0:T(8,128)(2,1)} parameter(0)
  ROOT %all-gather.4 = bf16[64,64]{1,0:T(8,128)(2,1)} all-gather(%a), \
    channel_id=3, replica_groups=[4,2]<=[8], dimensions={1}, frontend_attributes={chain_id="0"}
}

%body (state: (s32[], bf16[16,64])) -> (s32[], bf16[16,64]) {
  %state = (s32[]{:T(128)}, bf16[16,64]{1,0}) parameter(0)
  %turn = s32[]{:T(128)} get-tuple-element(%state), index=0
  %rows = bf16[16,64]{1,0:T(8,128)(2,1)} get-tuple-element(%state), index=1
  %part = bf16[64,32]{1,0:T(8,128)(2,1)} constant({...})
  %async-collective-start = (bf16[64,32]{1,0}, bf16[64,64]{1,0}) fusion(%part), \
    kind=kCustom, calls=%async_computation
  %weight = bf16[64,64]{1,0:T(8,128)(2,1)} \
    fusion(%async-collective-start), kind=kCustom, calls=%async_computation
  %product = bf16[16,64]{1,0:T(8,128)(2,1)} convolution(%rows, %weight), dim_labels=bf_io->bf
  %reduced = bf16[16,64]{1,0:T(8,128)(2,1)} all-reduce(%product), \
    channel_id=5, replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}, to_apply=%add.clone
  %next = s32[]{:T(128)} add(%turn, %turn)
  ROOT %out = (s32[]{:T(128)}, bf16[16,64]{1,0}) tuple(%next, %reduced)
}

%condition (state.1: (s32[], bf16[16,64])) -> pred[] {
  %state.1 = (s32[]{:T(128)}, bf16[16,64]{1,0}) parameter(0)
  %turn.1 = s32[]{:T(128)} get-tuple-element(%state.1), index=0
  %most = s32[]{:T(128)} constant(6)
  ROOT %less = pred[]{:T(512)} compare(%turn.1, %most), direction=LT
}

%all-reduce-scatter.2 (input: bf16[16,64]) -> bf16[4,64] {
  %input = bf16[16,64]{1,0:T(8,128)(2,1)} parameter(0)
  %whole = bf16[16,64]{1,0:T(8,128)(2,1)} all-reduce(%input), \
    channel_id=7, replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0'}, to_apply=%add.clone
  %place = s32[]{:T(128)} constant(0)
  ROOT %share = bf16[4,64]{1,0} dynamic-slice(%whole, %place, %place), dynamic_slice_sizes={4,64}
}

ENTRY %main (p: bf16[16,64], q: bf16[3,16,8], r: bf16[3,8,4]) -> bf16[16,64] {
  %p = bf16[16,64]{1,0:T(8,128)(2,1)} parameter(0)
  %q = bf16[3,16,8]{2,1,0} parameter(1)
  %r = bf16[3,8,4]{2,1,0} parameter(2)
  %zero = s32[]{:T(128)} constant(0)
  %scattered = bf16[4,64]{1,0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.2
  %batched = bf16[3,16,4]{2,1,0} convolution(%q, %r), \
    window={size=3 stride=2 pad=0_0 lhs_dilate=3}, dim_labels=0bf_0io->0bf
  %start = (s32[]{:T(128)}, bf16[16,64]{1,0}) tuple(%zero, %p)
  %loop = (s32[]{:T(128)}, bf16[16,64]{1,0}) while(%start), condition=%condition, body=%body
  ROOT %result = bf16[16,64]{1,0} get-tuple-element(%loop), index=1
}
"""


@pytest.mark.parametrize("cut", [False, True])
def test_a_reduce_scatter_sends_alike_however_it_is_written(cut: bool) -> None:
    """In one operation, or started first and done later, when the result has the operand, too."""
    how = "channel_id=1, replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}, to_apply=%add"
    pair = "(f32[1024]{0}, f32[128]{0})"
    lines = [
        f"%start = {pair} reduce-scatter-start(f32[1024]{{0}} %p), {how}",
        f"ROOT %done = f32[128]{{0}} reduce-scatter-done({pair} %start)",
    ]
    if not cut:
        lines = [f"ROOT %whole = f32[128]{{0}} reduce-scatter(f32[1024]{{0}} %p), {how}"]
    body = "\n  ".join(["%p = f32[1024]{0} parameter(0)", *lines])
    text = f"HloModule m\nENTRY %main (p: f32[1024]) -> f32[128] {{\n  {body}\n}}\n"
    (found,) = costs(text, {"data": 1, "fsdp": 8, "model": 1}).collectives
    assert found == Collective("reduce-scatter", ("fsdp",), 4 * 1024 * 7 // 8, 1, cut)


def test_a_tpu_s_program_is_read() -> None:
    found = costs(TPU, {"data": 1, "fsdp": 4, "model": 2})
    assert set(found.collectives) == {
        # Cut into start and end, it stands there twice and is done once a turn, beside others.
        Collective("all-gather", ("model",), 64 * 64 * 2 // 2, 6, True),
        Collective("all-reduce", ("fsdp",), 2 * 16 * 64 * 2 * 3 // 4, 6, False),
        # An all-reduce of which each device takes a share sends half as much.
        Collective("reduce-scatter", ("fsdp",), 16 * 64 * 2 * 3 // 4, 1, False),
    }
    # Of the batched product, in each of three places one of the kernel's meets a value: not nine.
    assert found.flops == 6 * 2 * 16 * 64 * 64 + 3 * 2 * 16 * 8 * 4


@pytest.mark.parametrize("seed", range(5))
def test_convolutions_count_products_with_values_alone(seed: int) -> None:
    """Against a product of ones, whose sum is the number of products."""
    draw = np.random.default_rng(seed)
    for _ in range(20):
        size, kernel = int(draw.integers(1, 7)), int(draw.integers(1, 5))
        stride, holes, dilation = (int(each) for each in draw.integers(1, 4, 3))
        low, high = (int(each) for each in draw.integers(0, 4, 2))
        spread = (size - 1) * holes + 1 + low + high
        if spread < (kernel - 1) * dilation + 1:
            continue
        counted = jax.lax.conv_general_dilated(
            jnp.ones((1, 1, size)), jnp.ones((1, 1, kernel)), (stride,), [(low, high)],
            lhs_dilation=(holes,), rhs_dilation=(dilation,),
        )  # fmt: skip
        window = {
            "stride": str(stride), "rhs_dilate": str(dilation), "lhs_dilate": str(holes),
            "pad": f"{low}_{high}",
        }  # fmt: skip
        assert _valid_products(size, kernel, counted.shape[-1], window) == int(counted.sum())


@pytest.mark.parametrize(
    ("said", "groups"),
    [
        ("{{0,1},{2,3},{4,5},{6,7}}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("[4,2]<=[8]", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("[2,4]<=[4,2]T(1,0)", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("mesh['a'=2,'b'=4] {'a'}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['a'=2,'b'=4] {'b'}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("mesh['a'=8] {'a':(2)2}", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("mesh['a'=4,'b'=2], device_ids=([4,2]T(1,0)) {'b'}", [[0, 2], [4, 6], [1, 3], [5, 7]]),
    ],
)
def test_groups_are_read_in_all_their_forms(said: str, groups: list[list[int]]) -> None:
    assert (
        groups_of(f"%x), channel_id=1, replica_groups={said}, use_global_device_ids=true") == groups
    )
