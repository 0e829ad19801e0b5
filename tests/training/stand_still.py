"""A training process that watches for standstill: `stand_still.py FOLDER SECONDS [PROCESS PORT]`.

Its input takes a moment a batch, and dries up while there is a file `FOLDER/stuck_PROCESS`. The
number of the last batch is in `FOLDER/batches_PROCESS`.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax

sys.path.insert(0, str(Path(__file__).parent))

import tiny_learner as tiny

from gophercite.training.feed import process_share
from gophercite.training.loop import train
from gophercite.training.settings import TrainSettings


def main() -> None:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    process = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    if len(sys.argv) > 3:
        jax.config.update("jax_num_cpu_devices", 4)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{sys.argv[4]}", 2, process)
        where = tiny.partitioner(data=2, fsdp=4)
    else:
        where = tiny.partitioner()
    index, count = process_share(where)
    rows = slice(index * tiny.ROWS // count, (index + 1) * tiny.ROWS // count)

    def batches(start: int) -> Iterator[dict[str, object]]:
        number = start
        while True:
            while (folder / f"stuck_{process}").exists():
                time.sleep(0.05)
            time.sleep(0.02)
            # Whole or not at all: tests read it at any moment, and stop this process at any.
            unfinished = folder / f".batches_{process}"
            unfinished.write_text(str(number))
            unfinished.replace(folder / f"batches_{process}")
            yield tiny.batch(number, rows)
            number += 1

    settings = TrainSettings(
        model_dir=str(folder / "run"),
        total_steps=10**6,
        batch_size=tiny.ROWS,
        evaluate_every=50,
        save_every=20,
        keep_best=0,
        stalled_after=seconds,
    )
    train(
        settings,
        tiny.TinyLearner(),
        tiny.TinyInitialisation(frozen_layers=1),
        where,
        batches,
        {"held_out": tiny.evaluation(rows)},
    )


if __name__ == "__main__":
    main()
