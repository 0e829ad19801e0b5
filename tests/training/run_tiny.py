"""A training process: `run_tiny.py MODEL_DIR TOTAL_STEPS PAUSE [PROCESS PORT]`.

With a process number and a port it is one of two that train together, half the steps first and,
from the checkpoint of those, the rest; and then say how long they waited for their input.
"""

import dataclasses
import os
import sys
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
from jax.experimental import multihost_utils

sys.path.insert(0, str(Path(__file__).parent))

import tiny_learner as tiny

from gophercite.monitoring.stragglers import input_waits
from gophercite.training.feed import process_share
from gophercite.training.loop import train
from gophercite.training.preemption import EXIT_CODE, Preempted
from gophercite.training.settings import TrainSettings


def main() -> None:
    folder, total, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    if len(sys.argv) > 4:
        jax.config.update("jax_num_cpu_devices", 4)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{sys.argv[5]}", 2, int(sys.argv[4]))
        where = tiny.partitioner(data=2, fsdp=4)
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


if __name__ == "__main__":
    try:
        main()
    except Preempted as notice:
        print(notice, file=sys.stderr)
        sys.exit(EXIT_CODE)
