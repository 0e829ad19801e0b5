"""Two processes share the environments of one: the same episodes, rows, metrics and checkpoints."""

import functools
import json
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any

import jax
import numpy as np
import pytest

from gophercite.browsing.own_copy import own_part
from gophercite.learning.state import Collected
from gophercite.models.parameters import HEADS, REWARD_MODEL
from gophercite.models.reward_model import RewardModel
from gophercite.partitioning import Partitioner, make_mesh
from tests.browsing import test_collecting as tiny
from tests.long_forms import LONG

SCRIPT = pathlib.Path(__file__).with_name("share_environments.py")
PATIENCE = 600  # seconds, on the slowest of machines


@pytest.fixture(scope="module")
def shares(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[dict[str, np.ndarray], Any]]:
    """What each of two processes collected: arrays by name, and the rest as JSON."""
    folder = tmp_path_factory.mktemp("shares")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2])}
    pair = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), "2", str(port)],
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert pair.returncode == 0, pair.stderr
    found = []
    for index in (0, 1):
        with np.load(folder / f"{index}.npz") as file:
            arrays = {name: file[name] for name in file.files}
        found.append((arrays, json.loads(str(arrays.pop("said")))))
    return found


@functools.cache
def alone() -> tuple[list[Collected], Any]:
    """What one process on one device collects in two goes, and the environments after them."""
    of = tiny.collector(steps=tiny.FEW_STEPS)
    made = [tiny.collect(of, seed) for seed in range(2)]
    experience = [each.experience for each in made]
    assert sum(part["extra"].sum() for part in experience) > 3, "further answers"
    assert sum(part["ends"].sum() for part in experience) > 6, "episodes begin and end"
    return made, of.environments()


def in_order(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rows of episodes in their order, without those that only fill the batch."""
    order = np.lexsort((rows["step"], rows["episode"]))
    order = order[rows["episode"][order] >= 0]
    return {name: part[order] for name, part in rows.items() if name != "episode"}


def together(shares: list[Any], kind: str) -> dict[str, np.ndarray]:
    """The rows of both processes, as they are put on the devices."""
    names = [name for name in shares[0][0] if name.startswith(f"{kind}/")]
    arrays = {name: np.concatenate([arrays[name] for arrays, _ in shares]) for name in names}
    return {name.removeprefix(f"{kind}/"): part for name, part in arrays.items()}


def same(rows: dict[str, np.ndarray], whole: dict[str, np.ndarray]) -> None:
    ours, theirs = in_order(rows), in_order(whole)
    assert set(ours) == set(theirs)
    for name, part in theirs.items():
        np.testing.assert_allclose(ours[name], part, atol=1e-4, err_msg=name)


def totals_are(found: dict[str, Any], whole: dict[str, Any]) -> None:
    assert set(found) == set(whole)
    for name, value in whole.items():
        assert found[name] == pytest.approx(list(value), rel=1e-4), name


def test_two_processes_collect_what_one_does(shares: list[Any]) -> None:
    made, lanes = alone()
    for number in range(2):
        rows = together(shares, str(number))
        same(rows, dict(made[number].experience))
        # The learner's order of rows must not depend on who collected them.
        assert len(rows["tokens"]) == len(made[number].experience["tokens"])
        for _, said in shares:
            totals_are(said[number], made[number].totals)
    for _, said in shares:
        assert said[-2] == json.loads(json.dumps(lanes))
        assert said[-1] == said[-2], "a checkpoint of both, restored by both"


def test_they_evaluate_what_one_does_and_stop_together(shares: list[Any]) -> None:
    batch = {"questions": np.array([0, 1, 2, -1])}
    of = tiny.collector()
    whole = of.rehearse(tiny.parameters(), batch, jax.random.key(0), tiny.NEVER)
    assert whole is not None
    same(together(shares, "evaluated"), dict(whole.experience))
    for arrays, said in shares:
        totals_are(said[2], whole.totals)
        assert said[3] is True, "stopped at the same question, and left the environments alone"
        assert "partitioner.model = 4: the devices of one process must hold" in said[4]
        assert said[5] == [64, 64], "they ask equally often, whatever they have played"
        # One process has no question, and as many rows as the other.
        assert len(arrays["evaluated/tokens"]) == len(shares[0][0]["evaluated/tokens"])


def spread(partitioner: Partitioner) -> Any:
    params = tiny.parameters()
    axes = tiny.TRUNK.logical_axes()
    judge = {**axes, HEADS: RewardModel(tiny.TRUNK).heads_axes()}
    policy = tiny.TRUNK.logical_axes(tiny.FROZEN_LAYERS)
    axes = {**policy, REWARD_MODEL: judge, "value_head": {}, "teacher": {}}
    return jax.device_put(params, partitioner.shardings(axes, params))


@LONG  # each of the two processes above has several devices
def test_eight_devices_collect_what_one_does() -> None:
    made, _ = alone()
    partitioner = Partitioner(make_mesh(fsdp=4, model=2))
    assert dict(own_part(partitioner).mesh.shape) == {"data": 4, "fsdp": 1, "model": 2}
    params = spread(partitioner)
    of = tiny.collector(steps=tiny.FEW_STEPS, partitioner=partitioner)
    for number in range(2):
        found = of.collect(params, {}, jax.random.key(number), tiny.NEVER)
        assert isinstance(found, Collected)
        same(dict(found.experience), dict(made[number].experience))
        totals_are(found.totals, dict(made[number].totals))
