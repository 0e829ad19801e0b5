"""What becomes of each operation on a bucket that fails: retries, time, what is lost or doubled.

    python benchmarks/bucket_faults.py                              # all, at 5 % and 20 %
    python benchmarks/bucket_faults.py --rates 0.2 --only save,steps
    GOPHERCITE_SEED=7 python benchmarks/bucket_faults.py …          # the same faults again

A real server of Google's storage API on loopback is asked by the clients that production uses
(gcsfs, Google's own, TensorStore), through a proxy that injects faults into a share of the
requests (`tests/storage_faults.py`): 429, 503, connections cut before the request or in the middle
of the answer, slow answers, and answers that are lost after the server has done what it was asked
to. What an operation left is then read without faults and compared. Prints a table, and ends with
1 when anything is lost or doubled. An operation that gives up with an error is counted, and what
it did not do is not lost: whoever called it knows.
"""

import argparse
import collections
import dataclasses
import json
import logging
import os
import pathlib
import sys
import time
from collections.abc import Callable

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "training"))

import jax
import numpy as np
import tiny_learner as tiny
from etils import epath
from google_storage import BUCKET, Storage, google_storage
from storage_faults import KINDS, Faults

from benchmarks.kills import seed_of_draws
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite.model_folders.checkpoint_files import saved_steps
from gophercite.model_folders.folder import Model, load_model, save_model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.storage import StorageError, write_whole
from gophercite.storage.json_fields import RecordError
from gophercite.storage.json_lines import read_json_lines
from gophercite.storage.result_file import ResultFile, read_results
from gophercite.training.checkpoints import Checkpoints
from gophercite.training.owner_mark import OwnerMark
from gophercite.training.program import Program
from gophercite.training.run_lock import Owner

LINES = [{"question_id": str(number), "text": "naïve " * 20} for number in range(2000)]


@dataclasses.dataclass
class Count:
    """What came of an operation, done several times: things that it was to do, and how it did."""

    things: int = 0
    requests: int = 0
    lost: int = 0
    doubled: int = 0
    gave_up: int = 0
    seconds: float = 0.0


class Bench:
    """The operations, and what they work on.

    Attributes:
      faults: what the next operation meets.
      rates: the share of requests by kind, which are met while an operation is timed.
    """

    def __init__(self, storage: Storage, faults: Faults) -> None:
        """Makes a model, a state of a run, and a file of lines; writes what is only read."""
        self.storage, self.faults = storage, faults
        self.rates: dict[str, float] = {}
        self.number = 0
        self.program = Program(tiny.TinyLearner(), tiny.TinyInitialisation(1), tiny.partitioner())
        self.state = self.program.initial_state(seed=0)
        transformer = Transformer(
            TransformerConfig(
                vocab_size=2048, d_model=64, num_layers=2, num_heads=2, head_dim=32,
                position="rope", dtype="float32",
            )
        )  # fmt: skip
        params = jax.jit(transformer.init)(jax.random.key(0))
        self.model = Model(transformer, params, bundled_vocabulary(), {})
        save_model(f"{BUCKET}/model", self.model)
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in LINES)
        storage.write("lines.jsonl", text.encode())
        self._save(f"{BUCKET}/run", steps=2)

    def timed(self, count: Count, action: Callable[[], object]) -> object:
        """Does something among faults; None when it gave up."""
        self.faults.rates = self.rates
        begun, before = time.monotonic(), self.faults.requests
        try:
            return action()
        except (StorageError, RecordError) as error:
            print(f"gave up: {error}", file=sys.stderr)
            count.gave_up += 1
            return None
        finally:
            count.seconds += time.monotonic() - begun
            count.requests += self.faults.requests - before
            self.faults.rates = {}

    def fresh(self) -> str:
        """A name that was not used."""
        self.number += 1
        return f"{self.number:05d}"

    def write(self, count: Count) -> None:
        """A file of 100 kB and one of 6 MB, which is sent in pieces."""
        for size in (100_000, 6 << 20):
            name, content = self.fresh(), os.urandom(size)

            def write(name: str = name, content: bytes = content) -> bool:
                with write_whole(f"{BUCKET}/{name}") as local:
                    local.write_bytes(content)
                return True

            count.things += 1
            if self.timed(count, write):
                found = name in self.storage.names() and self.storage.read(name)
                count.lost += found != content

    def grow(self, count: Count) -> None:
        """Ten additions to a file of results, of two each."""
        name = f"{self.fresh()}.jsonl"
        wanted = [str(number) for number in range(20)]

        def grow() -> bool:
            with ResultFile(f"{BUCKET}/{name}", {"seed": 0}) as file:
                for first in range(0, 20, 2):
                    file.append(*({"question_id": each} for each in wanted[first : first + 2]))
            return True

        count.things += len(wanted)
        whole = self.timed(count, grow)
        found = collections.Counter(
            str(line["question_id"]) for line in read_results(f"{BUCKET}/{name}")
        )
        count.doubled += sum(found.values()) - len(found)
        if whole:
            count.lost += len(set(wanted) - found.keys())
            lines = self.storage.read(name).splitlines()
            count.doubled += len(lines) - len({json.loads(line)["question_id"] for line in lines})

    def save(self, count: Count) -> None:
        """A checkpoint of a tiny run, by Orbax."""
        folder = f"{BUCKET}/runs/{self.fresh()}"
        count.things += 1
        if self.timed(count, lambda: self._save(folder, steps=1)):
            found = self._restore(folder)
            count.lost += found is None or tiny.bits(found) != tiny.bits(self.state)
            folders = {each.split("/")[3] for each in self._below(folder, "checkpoints")}
            count.doubled += len(folders) - 1 + len(self._below(folder, "unfinished"))

    def restore(self, count: Count) -> None:
        """The newest checkpoint of a run that has one."""
        count.things += 1
        found = self.timed(count, lambda: self._restore(f"{BUCKET}/run"))
        if found is not None:
            count.lost += tiny.bits(found) != tiny.bits(self.state)
        count.lost += bool(self._below(f"{BUCKET}/run", "damaged"))

    def steps(self, count: Count) -> None:
        """The steps that a run has checkpoints of, asked for five times."""
        for _ in range(5):
            count.things += 1
            found = self.timed(count, lambda: saved_steps(f"{BUCKET}/run"))
            if isinstance(found, list):
                count.lost += 0 not in found
                count.doubled += len(found) - 1

    def mark(self, count: Count) -> None:
        """Marking a folder as one's own, renewing that twice, and giving it back."""
        folder, said = f"{BUCKET}/held/{self.fresh()}", list[str]()

        def hold() -> bool:
            mark = OwnerMark(epath.Path(folder), Owner.me(), said.append, renewal=0.2, expiry=60)
            time.sleep(0.5)
            mark.confirm()
            mark.release()
            return True

        count.things += 1
        if self.timed(count, hold):
            count.doubled += bool(said)  # it took its own mark for somebody else's
            left = self._below(folder, "owner.json")
            count.lost += bool(left)

    def publish(self, count: Count) -> None:
        """A model's folder, written anew and then replaced."""
        folder = f"{BUCKET}/models/{self.fresh()}"
        for _ in range(2):
            count.things += 1
            if self.timed(count, lambda: save_model(folder, self.model) or True):
                count.lost += not self._is_the_model(load_model(folder))

    def load(self, count: Count) -> None:
        """A model's folder, read."""
        count.things += 1
        found = self.timed(count, lambda: load_model(f"{BUCKET}/model"))
        if isinstance(found, Model):
            count.lost += not self._is_the_model(found)

    def lines(self, count: Count) -> None:
        """A file of 2,000 JSON lines, read."""
        count.things += len(LINES)
        found = self.timed(count, lambda: list(read_json_lines(f"{BUCKET}/lines.jsonl")))
        if isinstance(found, list):
            values = [value for _, value in found]
            count.lost += sum(line not in values for line in LINES) if values != LINES else 0
            count.doubled += max(0, len(values) - len(LINES))

    def _save(self, folder: str, steps: int) -> bool:
        checkpoints = Checkpoints(folder)
        try:
            checkpoints.save(self.state, {"steps": steps}, last=True)
        finally:
            checkpoints.close()
        return True

    def _restore(self, folder: str) -> object:
        checkpoints = Checkpoints(folder)
        try:
            found = checkpoints.restore(
                self.program.state_target(),
                self.program.learner.init_state,
                lambda: self.program.initial_parameters(seed=0),
            )
        finally:
            checkpoints.close()
        return None if found is None else found.state

    def _below(self, folder: str, name: str) -> list[str]:
        prefix = f"{folder.removeprefix(BUCKET).lstrip('/')}/{name}"
        return [each for each in self.storage.names() if each.startswith(prefix)]

    def _is_the_model(self, found: Model) -> bool:
        same = jax.tree.map(np.array_equal, found.params, self.model.params)
        return all(jax.tree.leaves(same))


OPERATIONS: dict[str, Callable[[Bench, Count], None]] = {
    "write": Bench.write,
    "grow": Bench.grow,
    "save": Bench.save,
    "restore": Bench.restore,
    "steps": Bench.steps,
    "mark": Bench.mark,
    "publish": Bench.publish,
    "load": Bench.load,
    "lines": Bench.lines,
}


def main(arguments: list[str] | None = None) -> int:
    """Prints the table; 1 when anything is lost or doubled."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rates", default="0.05,0.2", help="shares of requests (default: %(default)s)")
    add("--kinds", default=",".join(KINDS), help="of faults (default: all)")
    add("--only", default=",".join(OPERATIONS), help="operations (default: all)")
    add("--repeat", type=int, default=1, help="times that each is done (default: 1)")
    flags = parser.parse_args(arguments)
    seed = seed_of_draws()
    logging.getLogger("absl").setLevel(logging.CRITICAL)
    faults = Faults(seed=seed, slow=1.0)
    totals: collections.Counter[str] = collections.Counter()
    cases = [("none", 0.0)]
    cases += [
        (kind, float(rate)) for rate in flags.rates.split(",") for kind in flags.kinds.split(",")
    ]
    columns = ["operation", "fault", "rate", "requests", "injected", "retries", "seconds"]
    columns += ["lost", "doubled", "gave up"]
    print(f"| {' | '.join(columns)} |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    with google_storage(faults) as storage:
        bench = Bench(storage, faults)
        for name in flags.only.split(","):
            for kind, rate in cases:
                count = Count()
                bench.rates = {kind: rate} if rate else {}
                faults.forget()
                for _ in range(flags.repeat):
                    OPERATIONS[name](bench, count)
                injected = faults.injected[kind]
                cells = [name, kind, f"{rate:g}", count.requests, injected, faults.retries]
                cells += [f"{count.seconds:.1f}", count.lost, count.doubled, count.gave_up]
                print(f"| {' | '.join(map(str, cells))} |", flush=True)
                totals.update(
                    things=count.things, injected=injected, retries=faults.retries,
                    lost=count.lost, doubled=count.doubled, gave_up=count.gave_up,
                )  # fmt: skip
    print("In all: " + ", ".join(f"{name} {number}" for name, number in totals.items()))
    return 1 if totals["lost"] or totals["doubled"] else 0


if __name__ == "__main__":
    sys.exit(main())
