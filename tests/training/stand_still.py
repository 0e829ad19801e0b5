"""Training processes that watch for standstill: `stand_still.py PATIENCE`.

What they import, which takes seconds, is imported once. Each line `FOLDER SECONDS [PROCESS PORT]`
of standard input starts a copy of this process that trains, and is answered by its number (PID);
`wait PID` is answered by the exit status of a copy. One that is still there after PATIENCE seconds
is ended by the system.

A copy's input takes a moment a batch, and dries up while there is a file `FOLDER/stuck_PROCESS`.
The number of the last batch is in `FOLDER/batches_PROCESS`, what it says in `FOLDER/PROCESS.log`.
"""

# ruff: noqa: E402  garbage is not looked for while libraries are imported

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

gc.disable()  # what is imported stays
os.environ["JAX_PLATFORMS"] = "cpu"

import jax

sys.path.insert(0, str(Path(__file__).parent))

import tiny_learner as tiny

from gophercite.training.feed import process_share
from gophercite.training.loop import train
from gophercite.training.settings import TrainSettings


def main() -> None:
    for line in iter(sys.stdin.readline, ""):
        first, *more = line.split()
        if first == "wait":
            print(os.waitstatus_to_exitcode(os.waitpid(int(*more), 0)[1]), flush=True)
        elif pid := os.fork():
            print(pid, flush=True)
        else:
            signal.alarm(int(sys.argv[1]))
            run(Path(first), *more)
            return


def run(folder: Path, allowed: str, number: str = "0", port: str | None = None) -> None:
    seconds, process = float(allowed), int(number)
    with (folder / f"{process}.log").open("wb") as log:
        for said in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), said.fileno())
    if port is not None:
        jax.config.update("jax_num_cpu_devices", 4)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(f"localhost:{port}", 2, process)
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
        save_every=8,
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
