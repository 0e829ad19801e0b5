"""Plans for slices, and the command that makes them."""

import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import jax
import plan
import pytest

from gophercite.planning.chips import (
    CHIPS,
    GIB,
    TopologyError,
    _no_slice,
    simulated_devices,
    topology,
)
from gophercite.planning.compiled import Costs
from gophercite.planning.exchanges import Collective
from gophercite.planning.plan import _problem, estimate

ROOT = pathlib.Path(__file__).parents[2]
LIBTPU = ROOT / ".venv" / "libtpu"  # where launch/test.sh puts it
LOCK = pathlib.Path("/tmp/libtpu_lockfile")  # libtpu's own, on any machine
COMMAND = [sys.executable, str(ROOT / "launch" / "plan.py")]
SMALL = [
    "--gin_file=gin_configs/sft_sample_world.gin",
    "--gin.INITIAL_CHECKPOINT=None",
    "--gin.TransformerConfig.num_layers=2",
    "--gin.TransformerConfig.d_model=64",
    "--gin.LENGTH=64",
]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("v7:2x2", "is not a slice: give a TPU's kind"),
        ("v5e", "is not a slice"),
        ("v5e:2", "is not a slice"),
        ("v5e:2x2; rm", "is not a slice"),
        ("cpu-", "the number of devices is missing or wrong; write it as in cpu-64"),
        ("gpu-0", "the number of devices is missing or wrong; write it as in gpu-64"),
        ("cpu-999999", "set XLA_FLAGS=--xla_force_host_platform_device_count=999999"),
    ],
)
def test_what_is_no_slice_is_named(name: str, said: str) -> None:
    with pytest.raises(TopologyError) as refused:
        topology(name)
    assert said in str(refused.value)


def test_simulated_slices() -> None:
    assert simulated_devices("gpu-64") == 64
    assert simulated_devices("v3:8x8") is None
    found = topology(f"gpu-{len(jax.devices())}")
    assert found.devices == jax.devices()
    assert found.chip is CHIPS["gpu"]


def test_a_step_s_time_is_the_slowest_part_and_what_cannot_be_hidden() -> None:
    slice_ = topology("cpu-1")
    chip = slice_.chip

    def sent(seconds: float, hidden: bool) -> Collective:
        return Collective("all-reduce", ("data",), round(seconds * chip.links), 1, hidden)

    work = Costs(round(2 * chip.flops), round(3 * chip.bandwidth), (), 0)
    assert estimate(work, slice_)["step"] == pytest.approx(3)
    work = work._replace(collectives=(sent(1, True), sent(0.5, False)))
    found = estimate(work, slice_)
    assert found["step"] == pytest.approx(3.5)
    assert (found["compute"], found["exchanges"], found["hidden"]) == pytest.approx((2, 1.5, 1))
    slow = work._replace(collectives=(sent(5, True),))
    assert estimate(slow, slice_)["step"] == pytest.approx(5)


def run(*flags: str, path: pathlib.Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | ({"PYTHONPATH": str(path)} if path else {})
    return subprocess.run(
        [*COMMAND, *SMALL, *flags], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_a_search_tries_meshes_microbatches_and_recomputed_layers() -> None:
    flags = ["--topology=v3:2x2", "--gin_file=x.gin", "--search=PPOLearner", "--most_cuts=4"]
    tried = plan._tried(plan._parse([*flags, "--try=remat_every=3"])[0], "v3:2x2")
    assert tried == {
        "remat_every": ["3"],  # what is given takes precedence
        "partitioner.model": ["1", "2", "4"],
        "PPOLearner.microbatches": ["1", "4", "16"],
    }
    assert plan._tried(plan._parse(flags)[0], "v3:2x2")["remat_every"] == ["0", "1", "4"]


def test_plans_with_several_settings_are_compared_and_kept(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--topology=cpu-4", "--try=partitioner.model=2,3", "--try=remat_every=1",
        f"--cache={tmp_path / 'plans'}", f"--output={tmp_path / 'plans.jsonl'}",
    ]  # fmt: skip
    done = run(*flags)
    assert done.returncode == 0, done.stderr
    # What can't be planned is named, and the others go on.
    assert "partitioner.model=3, remat_every=1: plan: " in done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| cpu-4")]
    assert {row.split("|")[3].strip() for row in rows} == {"fsdp 2 × model 2"}
    plans = [json.loads(line) for line in (tmp_path / "plans.jsonl").read_text().splitlines()]
    for found in plans:
        memory = found["memory"]
        assert found["fits"]
        assert memory["usable"] == 16 * GIB
        parts = memory["parameters"] + memory["optimizer"] + memory["temporaries"]
        assert memory["peak"] >= parts
        assert 1.2 < found["flops"] / found["needed_flops"] < 1.5, "one more forward pass"
        assert found["settings"]["remat_every"] == "1"
        assert 0 < found["mfu"] <= 1
        assert all(axes for _, axes, *_ in found["exchanges"]), found["exchanges"]
    axes = {axis for found in plans for _, names, *_ in found["exchanges"] for axis in names}
    assert axes == {"fsdp", "model"}
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "plans").iterdir()}
    assert len(kept) == 1
    assert plan.main([*SMALL, *flags[:1], "--try=partitioner.model=2", *flags[2:]]) == 0
    assert "model 2, remat_every 1 | fsdp 2 × model 2" in capsys.readouterr().out
    (same,) = (tmp_path / "plans.jsonl").read_text().splitlines()
    assert json.loads(same) in plans
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "plans").iterdir()} == kept


@contextlib.contextmanager
def another_process_with_libtpu() -> Iterator[None]:
    """Holds the lock by which libtpu knows that another process has loaded it."""
    with LOCK.open("a") as file:
        with contextlib.suppress(BlockingIOError):  # there is such a process
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@pytest.mark.skipif(
    not (LIBTPU / "installed").is_file(), reason="libtpu is not in .venv/libtpu (launch/test.sh)"
)
def test_the_tpu_s_own_compiler_plans_a_step_without_a_tpu() -> None:
    with another_process_with_libtpu():
        done = run("--topology=v5e:2x2", "--gin.partitioner.model=2", "--json", path=LIBTPU)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["devices"], found["mesh"]) == (4, {"data": 1, "fsdp": 2, "model": 2})
    assert found["fits"]
    assert 0.8 < found["flops"] / found["needed_flops"] < 1.2
    assert any(hidden for *_, hidden in found["exchanges"])
    assert {axis for _, axes, *_ in found["exchanges"] for axis in axes} == {"fsdp", "model"}
    assert {"all-gather", "reduce-scatter"} <= {kind for kind, *_ in found["exchanges"]}


# Plans programs that take 8 GiB of temporaries and, by slice, so many GiB of inputs.
INPUTS_AND_TEMPORARIES = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from gophercite.planning.chips import GIB, topology
from gophercite.planning.plan import Step, plan_step

def program(held, column):
    order = jnp.sort(jnp.outer(column, jnp.arange(8192.0)), axis=0)
    return held[0, :8], order[7, :8]

for asked in sys.argv[1:]:
    name, _, gibibytes = asked.partition("=")
    slice_ = topology(name)
    whole = NamedSharding(Mesh(np.array(slice_.devices), ("data",)), PartitionSpec())
    rows = int(float(gibibytes) * GIB) // 4 // 8192
    shapes = (rows, 8192), (2**17,)
    inputs = [jax.ShapeDtypeStruct(shape, "float32", sharding=whole) for shape in shapes]
    compile = lambda: jax.jit(program).lower(*inputs).compile()
    plan = plan_step(Step({"data": len(slice_.devices)}, compile, 0), slice_)
    print(plan.fits, round(plan.memory.peak / GIB, 1) if plan.memory else plan.problem)
"""


@pytest.mark.skipif(
    not (LIBTPU / "installed").is_file(), reason="libtpu is not in .venv/libtpu (launch/test.sh)"
)
def test_inputs_and_temporaries_have_to_fit_what_the_compiler_leaves() -> None:
    """It takes 15.5 GiB and refuses 16 on v5e; and 208 GiB on each other kind of TPU."""
    tpu = {"PYTHONPATH": str(LIBTPU), "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    slices = {"v3": "2x2", "v4": "2x2x1", "v5e": "2x2", "v5p": "2x2x1", "v6e": "2x2"}
    assert slices.keys() == {name for name in CHIPS if name.startswith("v")}
    assert CHIPS["v5e"].memory == 15.75 * GIB
    asked = ["v5e:2x2=7.5", "v5e:2x2=8"]
    others = slices.keys() - {"v5e"}
    asked += [f"{kind}:{slices[kind]}=200" for kind in others]
    done = subprocess.run(
        [sys.executable, "-c", INPUTS_AND_TEMPORARIES, *asked],
        cwd=ROOT, env=dict(os.environ) | tpu, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    near, refused, *far = done.stdout.splitlines()
    assert (near, refused) == ("True 15.5", "False needs 16.00 GiB, has 15.75 GiB")
    for kind, said in zip(others, far, strict=True):
        assert said.startswith("False needs 208.")
        assert said.endswith(f" has {CHIPS[kind].memory / GIB:.2f} GiB"), kind


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
            "temporaries (144.33G) exceeds available HBM (15.75G).",
            "needs 144.33 GiB, has 15.75 GiB",
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory "
            "space hbm. Used 512.00M of 15.48G hbm. Exceeded hbm capacity by 1.2G.",
            "needs 0.50 GiB, has 15.48 GiB",
        ),
        ("RESOURCE_EXHAUSTED: Exceeded hbm capacity by 1.50G.", "exceeds the memory by 1.50 GiB"),
        ("trace\nRESOURCE_EXHAUSTED: something new", "RESOURCE_EXHAUSTED: something new"),
    ],
)
def test_what_the_compiler_says_of_missing_room_is_read(said: str, problem: str) -> None:
    assert _problem(said) == problem


def test_a_process_that_uses_libtpu_is_not_taken_for_a_missing_slice() -> None:
    said = 'ABORTED: Internal error when accessing libtpu multi-process lockfile. Run "$ sudo rm …'
    assert str(_no_slice("v5e:2x2", RuntimeError(said))) == (
        "v5e:2x2: another process uses libtpu; set ALLOW_MULTIPLE_LIBTPU_LOAD=1"
    )
    said = "INVALID_ARGUMENT: Unsupported shape\ntrace"
    assert str(_no_slice("v5e:9x9", RuntimeError(said))) == (
        "v5e:9x9: there is no such slice (INVALID_ARGUMENT: Unsupported shape)"
    )


def test_without_libtpu_the_message_says_what_to_install() -> None:
    done = run("--topology=v5e:2x2")
    if done.returncode == 0:
        pytest.skip("libtpu is installed")
    assert done.returncode == 1
    assert "pip install 'gophercite[tpu]'" in done.stderr
