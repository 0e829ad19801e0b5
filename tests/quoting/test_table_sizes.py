"""Sizes of tables: what a run fixes holds nearly all batches, and powers of two the others."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gophercite.quoting.table_sizes import LEAST, TableSizes, usual_sizes


@given(st.integers(0, 1 << 24), st.integers(1, 1 << 24))
def test_tables_hold_what_they_should(size, need):
    held = TableSizes(size, 0).holding(need, need)
    nodes = max(need, LEAST.nodes)
    assert held.nodes == size if size >= nodes else nodes <= held.nodes <= 2 * nodes
    assert need <= held.edges <= max(LEAST.edges, 2 * need)
    assert held.edges.bit_count() == 1


@pytest.mark.parametrize("prompts", [1, 4, 64])
def test_usual_sizes_hold_nearly_every_batch_without_waste(prompts):
    draw = random.Random(0)

    def graph():
        nodes = draw.randrange(2000, 9000)
        return TableSizes(nodes, nodes * draw.randrange(4, 12))

    sizes = usual_sizes([graph() for _ in range(32)], prompts)
    batches = 1000
    changed = 0
    for _ in range(batches):
        graphs = [graph() for _ in range(prompts)]
        need = [sum(each) for each in zip(*graphs, strict=True)]
        changed += sizes.holding(*need) != sizes
    assert changed <= batches / 100
    if prompts == 64:
        assert sizes.nodes < 1.6 * 64 * 5500
        assert sizes.edges < 1.8 * 64 * 5500 * 7.5


@given(st.integers(0, 1 << 24), st.integers(1, 100))
def test_graphs_of_one_size_are_rounded_up_by_an_eighth_at_most(nodes, prompts):
    sizes = usual_sizes([TableSizes(nodes, 1)] * 3, prompts)
    need = max(LEAST.nodes, nodes * prompts)
    assert need <= sizes.nodes <= need * 9 / 8
    assert sizes.edges == LEAST.edges
