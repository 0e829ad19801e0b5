"""Batches by their number: the same from any start, on any number of hosts, none made in vain."""

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import json
import threading

import numpy as np
import pytest
import tensorflow as tf
from bucket import bucket
from etils import epath
from hypothesis import given, settings
from hypothesis import strategies as st

from data_pipelines import row_plan, tasks
from data_pipelines.example_reader import ExampleReader, ExampleSource, reader_of
from data_pipelines.inputs import Input
from data_pipelines.randomness import draws
from data_pipelines.row_order import interleave
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from data_pipelines.sources import RecordSource
from data_pipelines.task_rows import GROUP

LENGTH = 32


class NumberReader(ExampleReader):
    """Computes examples of numbers, and counts how often each was read."""

    def __init__(self, count, examples_of, endless):
        self.count, self.examples_of, self.endless = count, examples_of, endless
        self.numbers = collections.Counter()

    def read(self, wanted):
        self.made += len(wanted)
        self.numbers.update(number for number, _ in wanted)
        return [
            [
                {"tokens": tokens, "weights": np.ones(len(tokens), np.float32)}
                for tokens in self.examples_of(number, seed)
            ]
            for number, seed in wanted
        ]

    def texts(self, numbers):
        return map(str, numbers)


class Numbers(ExampleSource):
    """Records that are their own number; their examples need no TensorFlow, which takes longer."""

    def __init__(self, count, examples_of, endless=False):
        super().__init__(splits=("train",), caching_permitted=False)
        self.numbers = NumberReader(count, examples_of, endless)

    def reader(self, split):
        return self.numbers

    def refuse_other_lengths(self, split, lengths):
        pass

    def count(self, split):
        return self.numbers.count

    def get_dataset(self, split="train", shuffle=True, seed=None, shard_info=None, **unused):
        order = self.order(split, shuffle, seed, shard_info).tolist()
        found = itertools.chain.from_iterable(self.numbers.read([(n, seed or 0) for n in order]))
        spec = {"tokens": tf.int32, "weights": tf.float32}
        return tf.data.Dataset.from_generator(
            lambda: iter(found),
            output_signature={name: tf.TensorSpec([None], kind) for name, kind in spec.items()},
        )


def examples_of(number, seed, varied, kept, pieces, size, first):
    """Tokens that begin with their record's number; of some records none, or in pieces."""
    number += first
    draw = draws(seed if varied else 0, "length", str(number))
    tokens = np.full(size or draw.randint(2, LENGTH // 2), number + 1, np.int32)
    return [tokens] * (pieces if number % 10 < kept else 0)


class Records(RecordSource):
    """Numbers as records, for preprocessors, and how often each was read."""

    def __init__(self, count, endless=False):
        super().__init__(splits=("train",), caching_permitted=False)
        self._count, self._endless = count, endless
        self.read = collections.Counter()

    def count(self, split):
        return self._count

    def endless(self, split):
        return self._endless

    def record(self, split, index):
        self.read[index] += 1
        return str(index), json.dumps(index)


def encode(dataset, varied, kept, pieces, size, first):
    """The same as `examples_of`, by preprocessors."""

    def tokens_of(record, seed):
        return examples_of(int(record), int(seed), varied, 10, 1, size, first)[0]

    def encoded(example):
        tokens = tf.numpy_function(tokens_of, [example["record"], example["seed"]], tf.int32)
        tokens = tf.ensure_shape(tokens, [None])
        return {**example, "tokens": tokens, "weights": tf.ones_like(tokens, tf.float32)}

    numbered = dataset.map(encoded)
    numbered = numbered.filter(lambda example: (example["tokens"][0] - 1) % 10 < kept)
    return numbered.flat_map(lambda e: tf.data.Dataset.from_tensors(e).repeat(pieces))


SETTINGS = {"varied": False, "kept": 10, "pieces": 1, "size": None, "first": 0}


def register(name, count=40, *, endless=False, **settings):
    source = Numbers(count, functools.partial(examples_of, **SETTINGS | settings), endless)
    tasks.register(name, source, [], bundled_vocabulary())
    return source


def register_records(name, count=40, *, endless=False, **settings):
    """A task with the same examples, which preprocessors make of records."""
    source = Records(count, endless)
    step = functools.partial(encode, **SETTINGS | settings)
    tasks.register(name, source, [step], bundled_vocabulary())
    return source


@pytest.fixture(scope="module")
def kinds():
    """One task of each kind, and mixtures of them."""
    sources = {
        "plain": register("plain"),
        "filtered": register("filtered", 33, kept=4),
        "varied": register("varied", 50, varied=True, kept=7),
        "pieces": register("pieces", 9, pieces=3),
        "endless": register("endless", 10**6, varied=True, endless=True, kept=6),
    }
    tasks.add_mixture("two", {"filtered": 1, "plain": 3})
    tasks.add_mixture("all", {name: rate for rate, name in enumerate(sources, start=1)})
    return sources


def take(source, number, start=0):
    return list(itertools.islice(source.batches(start), number))


def assert_equal(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def seen(batches):
    """How often each record stands in a row."""
    found = collections.Counter()
    for batch in batches:
        for tokens, segments in zip(batch["tokens"], batch["segments"], strict=True):
            for segment in range(1, segments.max() + 1):
                (number,) = set(tokens[segments == segment].tolist())
                found[number - 1] += 1
    return found


@pytest.mark.parametrize("varied", [False, True])
def test_preprocessed_records_have_the_batches_of_examples_made_otherwise(varied):
    """So that what is shown here of the latter is true of tasks with preprocessors."""
    settings = {"varied": varied, "kept": 7, "pieces": 3, "first": 2}
    register_records("either", 30, **settings)
    source = Input("either", "train", LENGTH, 4, seed=5)
    found = take(source, 3, start=15)
    register("either", 30, **settings)
    assert_equal(take(source, 3, start=15), found)


inputs = st.builds(
    Input,
    mixture_or_task_name=st.sampled_from(
        ["plain", "filtered", "varied", "pieces", "endless", "two", "all"]
    ),
    split=st.just("train"),
    length=st.just(LENGTH),
    batch_size=st.just(4),
    seed=st.integers(0, 2**40),
    pack=st.booleans(),
    shuffle=st.booleans(),
)


@settings(max_examples=20, deadline=None)
@given(source=inputs, start=st.integers(0, 40), hosts=st.sampled_from([2, 4]))
def test_any_number_of_hosts_has_the_same_batches(kinds, source, start, hosts):
    whole = take(source, 2, start)
    shares = [take(source.share(index, hosts), 2, start) for index in range(hosts)]
    joined = [
        {name: np.concatenate([share[name] for share in step]) for name in step[0]}
        for step in zip(*shares, strict=True)
    ]
    assert_equal(joined, whole)


@settings(max_examples=20, deadline=None)
@given(source=inputs, start=st.integers(0, 17), number=st.integers(1, 3))
def test_a_run_that_goes_on_has_the_batches_of_one_that_was_not_stopped(
    kinds, source, start, number
):
    whole = take(source, start + number)
    assert_equal(take(source, number, start), whole[start:])
    assert all(batch["segments"].max(axis=1).min() > 0 for batch in whole)


@pytest.mark.parametrize("name", ["plain", "filtered", "pieces"])
@pytest.mark.parametrize("pack", [True, False])
def test_every_epoch_has_every_example_once(kinds, name, pack):
    source = Input(name, "train", LENGTH, 1, seed=3, pack=pack)
    once = seen(source.one_pass())
    batches, firsts = source.batches(), []
    for _ in range(3):
        epoch = [next(batches)]
        while seen(epoch).total() < once.total():
            epoch.append(next(batches))
        assert seen(epoch) == once
        firsts.append(epoch[0]["tokens"].tolist())
    assert firsts[0] != firsts[1] or firsts[0] != firsts[2]


@pytest.fixture(scope="module")
def varied(kinds):
    """The steps of a period, whose rows are of as many groups."""
    return take(Input("varied", "train", LENGTH, 16, seed=1), GROUP)


def test_examples_whose_length_varies_come_about_once_an_epoch(varied):
    kept = [number for number in range(50) if number % 10 < 7]
    found = seen(varied)
    assert set(found) == set(kept)
    for count in found.values():
        assert 0.5 < count / (found.total() / len(kept)) < 1.6
    assert np.mean([batch["segments"] > 0 for batch in varied]) > 0.8


def lengths(batches):
    """How long the examples of each record are, in the order of the rows."""
    found = collections.defaultdict(list)
    for batch in batches:
        for tokens, segments in zip(batch["tokens"], batch["segments"], strict=True):
            for segment in range(1, segments.max() + 1):
                own = tokens[segments == segment]
                found[int(own[0]) - 1].append(len(own))
    return found


def test_all_examples_have_their_turn_where_lengths_vary():
    """Rows come in groups of 16: so many batches of 8 rows are some epochs of a small task."""
    register("many", 200, varied=True)
    found = lengths(take(Input("many", "train", LENGTH, 8, seed=1), 16))
    counts = [len(found[number]) for number in range(200)]
    assert sum(count > 0 for count in counts) > 190, counts
    assert max(counts) < 3 * np.mean(counts)


def test_no_step_has_the_fullest_rows_of_all_groups(varied):
    """The rows of a group become emptier one by one; the steps of a period must not."""
    filled = [(batch["segments"] > 0).mean() for batch in varied]
    assert abs(np.mean(filled[:4]) - np.mean(filled[-4:])) < 0.02


def test_what_fills_up_rows_are_all_parts_of_records():
    parts = 3

    def in_parts(record, seed):
        for part in range(parts):
            size = draws(seed, "length", f"{record}, {part}").choice([2, LENGTH // 2])
            yield np.full(size, parts * record + part + 1, np.int32)

    tasks.register("parts", Numbers(40, in_parts), [], bundled_vocabulary())
    found = seen(take(Input("parts", "train", LENGTH, 8, seed=1), 48))
    counts = [sum(n for each, n in found.items() if each % parts == part) for part in range(parts)]
    assert max(counts) < 1.08 * min(counts), counts


@pytest.mark.parametrize("endless", [False, True])
def test_the_rates_of_a_mixture_count_examples_whatever_their_length(endless):
    """So that a task of short examples, of which a row holds eight times as many, gets no more."""
    register("short", 48, endless=endless, size=2)
    register("long", 48, endless=endless, size=LENGTH // 2, first=48)
    tasks.add_mixture("both", {"short": 8, "long": 1})
    found = seen(take(Input("both", "train", LENGTH, 4, seed=1), 16))
    short = sum(n for number, n in found.items() if number < 48)
    assert found.total() > 500
    assert abs(short / found.total() - 8 / 9) < 0.02


def test_random_draws_differ_from_epoch_to_epoch_and_from_run_to_run(kinds):
    def epochs(number, **changes):
        source = Input("varied", "train", LENGTH, 1, seed=1, pack=False, shuffle=False)
        return lengths(take(dataclasses.replace(source, **changes), 35 * number))

    of_three = epochs(3)
    assert all(len(own) == 3 for own in of_three.values())
    assert sum(len(set(own)) > 1 for own in of_three.values()) > 25
    first, other = epochs(1), epochs(1, seed=2)
    assert first.keys() == other.keys()
    assert sum(first[number] != other[number] for number in first) > 25


def test_random_draws_differ_from_group_to_group_of_an_endless_task():
    register("few", 12, varied=True, endless=True)
    found = lengths(take(Input("few", "train", LENGTH, 4, seed=1), 48))
    assert all(len(set(own)) > 3 for own in found.values())


def test_without_shuffling_each_epoch_has_the_records_order(kinds):
    source = Input("plain", "train", LENGTH, 1, seed=3, pack=False, shuffle=False)
    numbers = [int(batch["tokens"][0, 0]) - 1 for batch in take(source, 80)]
    assert numbers == [*range(40), *range(40)]


def test_an_endless_task_hardly_repeats_itself(kinds):
    found = seen(take(Input("endless", "train", LENGTH, 8, seed=1), 12))
    assert found.total() > 250
    assert max(found.values()) <= 2


@pytest.mark.parametrize("name", ["plain", "varied", "endless"])
def test_each_host_makes_its_own_rows_and_none_before_them(kinds, name, tmp_path):
    source = Input(name, "train", LENGTH, 4, seed=0, plan_folder=str(tmp_path))
    take(source, 1)  # leaves the plan
    made = {}
    reader = reader_of_task(name)
    for hosts, start in ((1, 0), (1, 16_000), (4, 16_000)):
        before = reader.made
        take(source.share(hosts - 1, hosts), 16, start)
        made[hosts, start] = reader.made - before
    assert made[4, 16_000] < 0.4 * made[1, 16_000]
    assert made[1, 16_000] < 1.25 * made[1, 0] + 16


@pytest.mark.parametrize(("kept", "most"), [(10, 44), (6, 200)])
def test_rows_alone_of_an_endless_task_make_hardly_more_than_is_used(kept, most):
    name = f"alone_{kept}"
    source = register(name, 10**6, endless=True, kept=kept)
    take(Input(name, "train", LENGTH, 4, seed=0, pack=False), 10)
    assert 40 <= reader_of_task(name).made <= most
    assert source.numbers.numbers.total() <= most


def reader_of_task(name):
    """The reader that inputs of a task use."""
    import seqio

    task = seqio.TaskRegistry.get(name)
    return reader_of(task, "train", dict.fromkeys(task.output_features, LENGTH))


@settings(max_examples=60, deadline=None)
@given(rates=st.lists(st.floats(0.01, 10), min_size=1, max_size=5), start=st.integers(0, 10**9))
def test_sequences_are_counted_without_gaps_and_have_their_shares(rates, start):
    found = collections.defaultdict(list)
    for slot in range(start, start + 300):
        which, number = interleave(rates, slot)
        found[which].append(number)
    for which, numbers in found.items():
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        share = rates[which] / sum(rates)
        assert abs(len(numbers) - 300 * share) < len(rates)
        assert abs(numbers[0] - start * share) < len(rates) + start * 1e-9


def test_a_plan_is_kept_and_read_again_and_made_anew_where_data_change(kinds, tmp_path, caplog):
    source = Input("filtered", "train", LENGTH, 4, seed=0, plan_folder=str(tmp_path))
    batches = take(source, 3)
    (file,) = tmp_path.rglob("*.npz")
    reader = reader_of_task("filtered")
    before = reader.made
    assert_equal(take(source, 3), batches)
    assert reader.made - before < 3 * 4 * 10  # no pass
    written = file.stat().st_mtime_ns
    file.write_bytes(file.read_bytes()[:40])
    assert_equal(take(source, 3), batches)
    assert "building it again" in caplog.text
    assert file.stat().st_mtime_ns != written
    for change in ({"length": LENGTH // 2}, {"pack": False}):
        take(dataclasses.replace(source, **change), 1)
    assert len(list(tmp_path.rglob("*.npz"))) == 3
    register("filtered", 34, kept=4)  # a record more
    take(source, 1)
    assert len(list(tmp_path.rglob("*.npz"))) == 4


@pytest.mark.parametrize(
    "forged",
    [
        {"examples": [[99, 0]], "segment_ends": [1], "row_ends": [1]},  # no such record
        {"examples": [[-1, 0]], "segment_ends": [1], "row_ends": [1]},
        {"examples": [[3, -1]], "segment_ends": [1], "row_ends": [1]},
        {"examples": [3, 4], "segment_ends": [1], "row_ends": [1]},
        {"examples": [[3.0, 0.0]], "segment_ends": [1], "row_ends": [1]},
        {"examples": [[3, 0]], "segment_ends": [2], "row_ends": [1]},
        {"examples": [[3, 0]], "segment_ends": [1], "row_ends": [5]},
        {"examples": [[3, 0], [4, 0]], "segment_ends": [2, 1, 2], "row_ends": [3]},
        {"examples": [[3, 0], [4, 0]], "segment_ends": [1, 2], "row_ends": [-1, 2]},
        {"examples": [[3, 0], [4, 0]], "segment_ends": [1, 2], "row_ends": [0, 2]},  # empty
        {"examples": [[3, 0]], "segment_ends": [[1]], "row_ends": [1]},
        {"examples": 3, "segment_ends": 1, "row_ends": 1},
    ],
)
def test_a_plan_that_cannot_be_is_named_and_made_anew(kinds, tmp_path, caplog, forged):
    source = Input("plain", "train", LENGTH, 4, seed=0, plan_folder=str(tmp_path))
    batches = take(source, 3)
    (file,) = tmp_path.rglob("*.npz")
    np.savez(file, varies=False, **{name: np.array(value) for name, value in forged.items()})
    assert_equal(take(source, 3), batches)
    assert f"{file}: is not a plan of rows" in caplog.text


def test_processes_share_the_pass_and_a_stopped_one_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(row_plan, "BLOCK", 8)
    register("long", 80)
    source = Input("long", "train", LENGTH, 4, seed=0, plan_folder=str(tmp_path))
    whole = take(dataclasses.replace(source, plan_folder=None), 4)
    stopped = source.share(1, 2)
    calls = itertools.count()
    write = row_plan._write

    def stop(path, content):
        if next(calls) == 3:
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(row_plan, "_write", stop)
    with pytest.raises(KeyboardInterrupt):
        take(stopped, 1)
    monkeypatch.setattr(row_plan, "_write", write)
    assert sorted(path.name for path in tmp_path.rglob("*.npz")) == [
        f"{number:06d}.npz" for number in (5, 6, 7)
    ]
    reader = reader_of_task("long")
    before = reader.made
    assert_equal(take(source, 4), whole)
    assert reader.made - before < 80 + 10 * 8 + 4 * 4 * 8 - 24
    assert len(list(tmp_path.rglob("*.npz"))) == 10


def test_several_processes_may_write_the_same_rows_at_once(tmp_path, caplog):
    """A file is whole whoever looks, and no writer is in another's way."""
    path, content, writers = epath.Path(tmp_path / "rows" / "0.npz"), bytes(1 << 22), 3
    together = threading.Barrier(writers)

    def write(_):
        sizes = []
        for _ in range(5):
            together.wait()
            row_plan._write(path, content)
            sizes.append(path.stat().length)
        return sizes

    with concurrent.futures.ThreadPoolExecutor(writers) as pool:
        found = [size for sizes in pool.map(write, range(writers)) for size in sizes]
    assert found == [len(content)] * 15
    assert not caplog.records
    assert [each.name for each in path.parent.iterdir()] == ["0.npz"]


def test_rows_in_a_bucket_are_written_whole(monkeypatch):
    with bucket() as server:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
        row_plan._write(epath.Path("gs://b/plans/rows-x/0.npz"), b"content")
        assert server.objects == {"plans/rows-x/0.npz": b"content"}
