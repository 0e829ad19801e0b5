"""A training process: `run_tiny.py MODEL_DIR TOTAL_STEPS PAUSE [PORT]`.

With a port they are two that train together, half the steps first and, from the checkpoint of
those, the rest; then say how long they waited for their input, and that one of them may not read a
checkpoint; and then go back to the checkpoint before one that is damaged. What each says is in
`MODEL_DIR/PROCESS.log`.
"""

# ruff: noqa: E402  garbage is not looked for while libraries are imported

import dataclasses
import gc
import os
import sys
from pathlib import Path

gc.disable()  # what is imported stays
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np
from jax.experimental import multihost_utils

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

import tiny_learner as tiny
from etils import epath

from gophercite.model_folders.checkpoint_errors import UnreadableCheckpointError, share_damage
from gophercite.monitoring.stragglers import input_waits
from gophercite.training.checkpoints import Checkpoints
from gophercite.training.feed import process_share
from gophercite.training.loop import train
from gophercite.training.preemption import EXIT_CODE, Preempted
from gophercite.training.program import Program
from gophercite.training.settings import TrainSettings
from tests.forked import one_of


def main() -> None:
    folder, total, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    if len(sys.argv) > 4:
        process = one_of(2)
        with open(Path(folder) / f"{process}.log", "wb") as log:
            os.dup2(log.fileno(), sys.stderr.fileno())
        jax.config.update("jax_num_cpu_devices", 2)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{sys.argv[4]}", 2, process)
        where = tiny.partitioner(data=2, fsdp=2)
    else:
        where = tiny.partitioner()
    index, count = process_share(where)
    rows = slice(index * tiny.ROWS // count, (index + 1) * tiny.ROWS // count)
    settings = TrainSettings(
        model_dir=folder,
        total_steps=total,
        batch_size=tiny.ROWS,
        log_every=2,
        evaluate_every=8,
        save_every=2,
    )
    halves = [settings]
    if jax.process_count() > 1:
        halves.insert(0, dataclasses.replace(settings, total_steps=total // 2))
    for half in halves:
        train(
            half,
            tiny.TinyLearner(),
            tiny.TinyInitialisation(frozen_layers=1),
            where,
            tiny.batches(rows, pause),
            {"held_out": tiny.evaluation(rows)},
            samples=lambda params, step: (f"answers at {step}\n", {}),
        )
    if jax.process_count() > 1:
        input_waits(0.75 * jax.process_index())
        multihost_utils.sync_global_devices("all have said it")
        waits = input_waits(0.75 * jax.process_index())
        print("input waits:", dict(sorted(waits.items())), file=sys.stderr)
        closed = UnreadableCheckpointError("closed") if jax.process_index() else None
        try:
            share_damage(closed, epath.Path("checkpoints/5"), 5)
        except UnreadableCheckpointError as error:
            print("refused:", error, file=sys.stderr)
        go_back(Path(folder) / "damaged")


def go_back(folder: Path) -> None:
    """Restores from checkpoints of which the newest is damaged where only process 1 reads it."""
    tiny.WIDTH = 64  # so that a part of a kernel is not kept in the index, which both read
    program = Program(tiny.TinyLearner(), tiny.TinyInitialisation(), tiny.partitioner(fsdp=4))
    initial = program.initial_state(seed=0)
    checkpoints = Checkpoints(folder)
    for step in (2, 4):
        at = jax.device_put(np.int32(step), initial.step.sharding)
        checkpoints.save(dataclasses.replace(initial, step=at), {"step": step})
    checkpoints.wait()
    if jax.process_index() == 1:
        data = folder / "checkpoints" / "4" / "state" / "ocdbt.process_1" / "d"
        os.truncate(max(data.iterdir(), key=lambda path: path.stat().st_size), 20)
    multihost_utils.sync_global_devices("damaged")
    restored = checkpoints.restore(
        program.state_target(),
        program.learner.init_state,
        lambda: program.initial_parameters(seed=0),
    )
    checkpoints.close()
    print("went back to", restored.progress, *restored.passed_over, file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except Preempted as notice:
        print(notice, file=sys.stderr)
        sys.exit(EXIT_CODE)
