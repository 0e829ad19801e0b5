"""Plans for slices, and the command that makes them."""

import contextlib
import fcntl
import io
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import plan
import plan_search
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
HAS_LIBTPU = (LIBTPU / "installed").is_file()
NEEDS_LIBTPU = pytest.mark.skipif(
    not HAS_LIBTPU, reason="libtpu is not in .venv/libtpu (launch/test.sh)"
)
LOCK = pathlib.Path("/tmp/libtpu_lockfile")  # libtpu's own, on any machine
COMMAND = [sys.executable, str(ROOT / "launch" / "plan.py")]
SMALL = [
    "--gin_file=gin_configs/sft_sample_world.gin",
    "--gin.INITIAL_CHECKPOINT=None",
    "--gin.TransformerConfig.num_layers=2",
    "--gin.TransformerConfig.d_model=64",
    "--gin.LENGTH=64",
    "--gin.SupervisedLearner.microbatches=1",
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


def test_a_search_tries_meshes_microbatches_and_recomputed_layers() -> None:
    file = "--gin_file=gin_configs/ppo_webgpt.gin"
    flags = ["--topology=v3:2x2", file, "--search", "--most_cuts=4"]
    given, bindings = plan._parse([*flags, "--try=remat_every=3"])
    learner = plan_search.learner_of(given, bindings)
    assert plan_search.tried_of(given, "v3:2x2", learner) == {
        "remat_every": ["3"],  # what is given takes precedence
        "partitioner.model": ["1", "2", "4"],
        "PPOLearner.microbatches": ["1", "4", "16"],
    }
    assert plan_search.tried_of(plan._parse(flags)[0], "v3:2x2", learner)["remat_every"] == [
        "0",
        "1",
        "4",
    ]
    # Where nothing is trained, there are no microbatches.
    for more in (["--gin_file=gin_configs/models/sample_world.gin"], [file, "--sampling"]):
        given, bindings = plan._parse(["--topology=v3:2x2", *more, "--search"])
        tried = plan_search.tried_of(given, "v3:2x2", plan_search.learner_of(given, bindings))
        assert tried.keys() == {"partitioner.model", "remat_every"}


@pytest.fixture
def as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes back what a plan that is made in this process says to JAX."""
    for name in ("XLA_FLAGS", "TPU_SKIP_MDS_QUERY", "ALLOW_MULTIPLE_LIBTPU_LOAD"):
        monkeypatch.setenv(name, os.environ.get(name, ""))


def is_whole(found: dict[str, Any]) -> None:
    assert found["fits"]
    assert found["memory"]["usable"] == CHIPS[found["topology"][:3]].memory
    assert 0 < found["mfu"] <= 1
    assert all(axes for _, axes, *_ in found["exchanges"]), found["exchanges"]
    assert {axis for _, axes, *_ in found["exchanges"] for axis in axes} == {"fsdp", "model"}


@pytest.mark.usefixtures("as_before")
def test_a_plan_is_made_for_simulated_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main([*SMALL, "--topology=cpu-4", "--gin.partitioner.model=2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["devices"], found["mesh"]) == (4, {"data": 1, "fsdp": 2, "model": 2})
    is_whole(found)
    memory = found["memory"]
    assert memory["peak"] >= memory["parameters"] + memory["optimizer"] + memory["temporaries"]
    assert 0.8 < found["flops"] / found["needed_flops"] < 1.2


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--sampling", "--prompts=0"], "--prompts is 0: must be at least 1"),
        (["--sampling", "--slots=-3"], "--slots is -3"),
        (["--search", "--most_cuts=0"], "--most_cuts is 0"),
        (["--remat_every=-1"], "--remat_every is -1: must be at least 0"),
        (["--output=/nowhere/plans.jsonl"], "--output is '/nowhere/plans.jsonl': its folder"),
        ([f"--output={ROOT}"], "this is a folder"),
        (["--json", "--search"], "--json prints a single plan"),
        (["--samples=64"], "--samples is for --sampling, which is not given"),
        (["--unconstrained"], "--unconstrained is for --sampling"),
        (["--slots=2"], "--slots is for --sampling"),
        (["--try=LENGTH=16", "--try=LENGTH=32"], "--try=LENGTH is given twice"),
    ],
)
def test_flags_that_cannot_be_are_refused_before_anything_is_planned(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        plan.main([*SMALL, "--topology=cpu-4", *flags])
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([*SMALL, "--gin.partitioner.model=3"], "model=3 does not match 4 devices"),
        ([*SMALL, "--gin.BATCH_SIZE=0"], "--gin.BATCH_SIZE = 0: must be at least 1"),
        ([*SMALL, "--gin.Input.batch_size=-8"], "--gin.Input.batch_size = -8: must be at least 1"),
        ([*SMALL, "--gin.LENGTH=0"], "--gin.LENGTH = 0: must be at least 1"),
        (
            ["--gin_file=gin_configs/sft_imported.gin", "--gin.INITIAL_CHECKPOINT=models/none"],
            "models/none: not a model folder: there is no model.json in it",
        ),
        (
            ["--gin_file=gin_configs/rm_imported.gin", "--gin.INITIAL_CHECKPOINT=None"],
            "--gin.INITIAL_CHECKPOINT = None: the architecture is read from this folder",
        ),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan.main([*flags, "--topology=cpu-4"]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("plan: ")
    assert said in line


@contextlib.contextmanager
def another_process_with_libtpu() -> Iterator[None]:
    """Holds the lock by which libtpu knows that another process has loaded it."""
    with LOCK.open("a") as file:
        with contextlib.suppress(BlockingIOError):  # there is such a process
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


class Search(NamedTuple):
    """A search that found one plan, and what it said."""

    flags: list[str]
    folder: pathlib.Path
    out: str
    errors: str
    plans: list[dict[str, Any]]


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Search:
    """For a TPU where its compiler is there: a process takes seconds before it begins to plan."""
    folder = tmp_path_factory.mktemp("search")
    flags = [
        f"--topology={'v5e:2x2' if HAS_LIBTPU else 'cpu-4'}",
        "--topology=cpu-0",  # no slice: its process ends before it has imported the library
        "--try=partitioner.model=2", "--remat_every=1",
        f"--cache={folder / 'plans'}", f"--output={folder / 'plans.jsonl'}",
    ]  # fmt: skip
    out, errors = io.StringIO(), io.StringIO()
    with (
        another_process_with_libtpu() if HAS_LIBTPU else contextlib.nullcontext(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("PYTHONPATH", str(LIBTPU))
        patch.syspath_prepend(LIBTPU)
        status = plan.main([*SMALL, *flags])
    assert status == 0, errors.getvalue()
    plans = [json.loads(line) for line in (folder / "plans.jsonl").read_text().splitlines()]
    return Search(flags, folder, out.getvalue(), errors.getvalue(), plans)


def test_a_damaged_plan_of_the_cache_is_none(search: Search, tmp_path: pathlib.Path) -> None:
    (kept,) = (search.folder / "plans").iterdir()
    assert plan_search._cached(kept) == search.plans[0]
    copy = tmp_path / "plan.json"
    for damaged in (kept.read_bytes()[:50], b"", b"[1]", b"{}", b"\xff"):
        copy.write_bytes(damaged)
        assert plan_search._cached(copy) is None
    assert plan_search._cached(tmp_path / "none.json") is None


def test_a_plan_whose_process_is_killed_is_said_to_be(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not what the process said last, which may be a note."""
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\necho plan: a note >&2\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    said = plan_search._in_process([], None)
    assert isinstance(said, str)
    assert "was ended by SIGKILL" in said


def test_plans_with_several_settings_are_compared_and_kept(
    search: Search, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if HAS_LIBTPU:
        monkeypatch.syspath_prepend(LIBTPU)  # plans of another version are made anew
    # What can't be planned is named, and the others go on.
    said = "cpu-0 partitioner.model=2: plan: cpu-0: the number of devices is missing"
    assert said in search.errors
    rows = [line for line in search.out.splitlines()[2:] if line.startswith("| ")]
    assert [row.split("|")[3].strip() for row in rows] == ["fsdp 2 × model 2"]
    (found,) = search.plans
    is_whole(found)
    assert 1.2 < found["flops"] / found["needed_flops"] < 1.5, "one more forward pass"
    assert found["settings"]["remat_every"] == "1"
    folder = search.folder / "plans"
    kept = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert len(kept) == 1
    assert plan.main([*SMALL, *search.flags]) == 0
    assert "| model 2 | fsdp 2 × model 2" in capsys.readouterr().out
    (same,) = (search.folder / "plans.jsonl").read_text().splitlines()
    assert json.loads(same) == found
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == kept


@NEEDS_LIBTPU
def test_the_tpu_s_own_compiler_plans_a_step_without_a_tpu(search: Search) -> None:
    (found,) = search.plans
    assert (found["topology"], found["devices"]) == ("v5e:2x2", 4)
    assert found["mesh"] == {"data": 1, "fsdp": 2, "model": 2}
    assert any(hidden for *_, hidden in found["exchanges"])
    assert {"all-gather", "reduce-scatter"} <= {kind for kind, *_ in found["exchanges"]}


# Plans programs that take 8 GiB of temporaries and, by slice, so many GiB of inputs.
INPUTS_AND_TEMPORARIES = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from gophercite.planning.chips import GIB, topology
from gophercite.planning.plan import Step, plan_step

def program(held, column):
    # Two matrices of 4 GiB that both have to be there at once.
    pair = [jnp.outer(column, jnp.arange(8192.0) + more) for more in (0, 1)]
    one, other = jax.lax.optimization_barrier(pair)
    return held[0, :8], one[7, :8], other[7, :8]

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


@NEEDS_LIBTPU
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
    command = [*COMMAND, *SMALL, "--topology=v5e:2x2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        pytest.skip("libtpu is installed")
    assert done.returncode == 1
    assert "pip install 'gophercite[tpu]'" in done.stderr
