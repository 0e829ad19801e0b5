"""What it costs to begin at a late step, and what each of several hosts makes of a batch.

    python benchmarks/input_order.py [--records 2000]

For a file of the sample world's rated answers, which is planned, for the same file cached, and for
the world's endless training split of them: the time to the first batch at steps 0, 1,000 and
100,000, once the plan is kept; how many examples each of 1, 2 and 4 hosts makes for the same
batches; whether the hosts' rows together are one host's, bit for bit; how full rows are; and how
many records are made or read per second.
"""

import argparse
import itertools
import pathlib
import sys
import tempfile
import time

import numpy as np
import seqio

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from data_pipelines import tasks  # noqa: E402
from data_pipelines.cache_writing import cache_split  # noqa: E402
from data_pipelines.cached_examples import add_cached  # noqa: E402
from data_pipelines.example_reader import reader_of  # noqa: E402
from data_pipelines.inputs import Batch, Input  # noqa: E402
from data_pipelines.sample_world.convert import to_rated_answer  # noqa: E402
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER  # noqa: E402
from data_pipelines.sample_world.world import World  # noqa: E402
from gophercite import records  # noqa: E402

LENGTH, ROWS, BATCHES = 256, 16, 16
STARTS = 0, 1000, 100_000


def take(source: Input, start: int, number: int) -> list[Batch]:
    """Some batches of an input."""
    return list(itertools.islice(source.batches(start), number))


def measure(name: str, folder: str) -> list[Batch]:
    """Prints the figures of one task, and returns its first batches."""
    source = Input(name, "train", LENGTH, ROWS, seed=0, plan_folder=folder)
    begun = time.monotonic()
    batches = take(source, 0, BATCHES)
    print(f"{name}: the first {BATCHES} batches, with the plan: {time.monotonic() - begun:.2f} s")
    for start in STARTS:
        begun = time.monotonic(), time.process_time()
        take(source, start, 1)
        wall, cpu = time.monotonic() - begun[0], time.process_time() - begun[1]
        print(f"  first batch of a start at step {start:7,}: {wall:.2f} s, {cpu:.2f} s of a core")
    task = seqio.TaskRegistry.get(name)
    reader = reader_of(task, "train", dict.fromkeys(task.output_features, LENGTH))
    for hosts in (1, 2, 4):
        made, shares = [], []
        for host in range(hosts):
            before = reader.made
            shares.append(take(source.share(host, hosts), 0, BATCHES))
            made.append(reader.made - before)
        same = all(
            np.array_equal(np.concatenate([share[n][key] for share in shares]), batches[n][key])
            for n in range(BATCHES)
            for key in batches[n]
        )
        print(f"  {hosts} hosts: records made by each {made}; the same batches: {same}")
    filled = np.mean([(batch["segments"] > 0).mean() for batch in batches])
    print(f"  rows are full to {filled:.1%}")
    reader = reader_of(task, "train", dict.fromkeys(task.output_features, LENGTH))
    begun, count = time.monotonic(), min(1000, reader.count)
    reader.read([(number, 0) for number in range(count)])
    print(f"  {count / (time.monotonic() - begun):,.0f} records made or read per second")
    return batches


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "rated.jsonl"
        world = World(split="train")
        answers = (to_rated_answer(world.rated_answer(n)) for n in range(options.records))
        records.write(path, answers)
        name = tasks.add_rated_answers("planned", {"train": path}, VOCABULARY_FOLDER)
        batches = measure(name, folder)
        print("the same, cached:")
        begun = time.monotonic()
        task, cached = seqio.TaskRegistry.get(name), pathlib.Path(folder) / "cached"
        cache_split(task, "train", dict.fromkeys(task.output_features, LENGTH), cached)
        size = sum(file.stat().st_size for file in (cached / "train").iterdir())
        print(f"  written in {time.monotonic() - begun:.2f} s: {size / 2**20:.1f} MiB")
        add_cached(name, cached, VOCABULARY_FOLDER)
        again = measure(name, folder)
        same = all(
            np.array_equal(one[key], other[key])
            for one, other in zip(batches, again, strict=True)
            for key in one
        )
        print(f"  the batches are those of the task: {same}")
        measure("sample_world", folder)


if __name__ == "__main__":
    main()
