"""How often and how much devices send, from texts as compilers write them."""

import pytest

from gophercite.planning.compiled import costs
from gophercite.planning.exchanges import Collective

MESH = {"data": 4}
ONE = "f32[1024]{0}"
ALL = "f32[4096]{0}"
HOW = "channel_id=1, replica_groups={{0,1,2,3}}"


def program(*lines: str) -> tuple[Collective, ...]:
    body = "\n  ".join([f"%x = {ONE} parameter(0)", *lines])
    return costs(f"HloModule m\nENTRY %main (x: f32[1024]) -> f32[] {{\n  {body}\n}}\n", MESH)[2]


def test_a_function_that_is_called_twice_sends_twice_in_the_same_channel() -> None:
    sums = [f"%r.{n} = {ONE} all-reduce(%x), {HOW}, to_apply=%add" for n in range(3)]
    (each, *others) = program(*sums)
    assert each == Collective("all-reduce", ("data",), 2 * 4096 * 3 // 4, 1, False)
    assert others == [each, each]


def test_a_computation_that_is_called_twice_sends_twice() -> None:
    """And each loop as often as it turns."""
    text = f"""HloModule m
%sum (y: f32[1024]) -> f32[1024] {{
  %y = {ONE} parameter(0)
  ROOT %r = {ONE} all-reduce(%y), {HOW}, to_apply=%add
}}

ENTRY %main (x: f32[1024]) -> f32[1024] {{
  %x = {ONE} parameter(0)
  %once = {ONE} call(%x), to_apply=%sum
  %thrice = {ONE} while(%once), body=%sum, backend_config={{"known_trip_count":{{"n":"3"}}}}
  ROOT %again = {ONE} while(%thrice), body=%sum, backend_config={{"known_trip_count":{{"n":"5"}}}}
}}
"""
    found = costs(text, MESH).collectives
    assert [each.times for each in found] == [1, 3, 5]
    assert {each.sent for each in found} == {2 * 4096 * 3 // 4}


def test_pieces_of_a_chain_are_one_collective() -> None:
    """A TPU's program in which one function is called three times, shortened: two of the gathers
    are in three pieces each, and all have one channel."""
    gather = f"{ALL} all-gather(%part), {HOW}, dimensions={{0}}, frontend_attributes="
    pieces = [
        f"%{kind}.{chain} (part: f32[1024]) -> f32[4096] {{\n"
        f"  %part = {ONE} parameter(0)\n"
        f'  ROOT %g = {gather}{{chain_id="{chain}"}}\n}}\n'
        for chain in (0, 1)
        for kind in ("fused_start", "async_collective_fusion", "fused_done")
    ]
    fusions = [
        f"  %{name}.{chain} = {ALL} fusion(%part), kind=kCustom, calls=%{called}.{chain}"
        for chain in (0, 1)
        for name, called in (
            ("async-collective-start", "fused_start"),
            ("fusion", "async_collective_fusion"),
            ("async-collective-done", "fused_done"),
        )
    ]
    entry = [
        "ENTRY %main (part: f32[1024]) -> f32[4096] {",
        f"  %part = {ONE} parameter(0)",
        f'  %whole = {gather}{{async_collective_name="all-gather-start"}}',
        *fusions,
        "}",
    ]
    found = costs("\n".join(["HloModule m", *pieces, *entry]), MESH).collectives
    assert found == (Collective("all-gather", ("data",), 4096 * 3, 1, True),) * 3


@pytest.mark.parametrize(
    ("kind", "takes", "yields", "sent"),
    [
        ("all-reduce", ONE, ONE, 2 * 4096 * 3 // 4),
        ("all-gather", ONE, ALL, 4096 * 3),
        ("reduce-scatter", ALL, ONE, 4096 * 3),
        ("all-to-all", ONE, ONE, 4096 * 3 // 4),
        ("collective-permute", ONE, ONE, 4096),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
def test_combined_collectives_send_all_their_arrays(
    kind: str, takes: str, yields: str, sent: int, count: int
) -> None:
    """In one operation, or started first and done later."""
    how = HOW.replace("replica_groups", "source_target_pairs") if "permute" in kind else HOW
    how = how.replace("{{0,1,2,3}}", "{{0,1},{1,2},{2,3},{3,0}}") if "permute" in kind else how
    together = lambda one: one if count == 1 else f"({', '.join([one] * count)})"  # noqa: E731
    pair = f"({together(takes)}, {together(yields)}, u32[]{{:S(2)}}, u32[]{{:S(2)}})"
    result = together(yields) if kind == "all-reduce" else pair
    (whole,) = program(f"ROOT %r = {together(yields)} {kind}(%x), {how}")
    (started,) = program(f"%r = {result} {kind}-start(%x), {how}")
    assert (whole.sent, whole.asynchronous) == (count * sent, False)
    assert (started.sent, started.asynchronous) == (count * sent, True)
