"""Examples that are computed once and read from files give the task's own batches."""

import copy
import dataclasses
import json
import pathlib
import shutil

import numpy as np
import pytest
import seqio
import tensorflow as tf
from google_storage import BUCKET, google_storage

from data_pipelines import tasks
from data_pipelines.cache_writing import Shards, cache_split, write_shard
from data_pipelines.cached_examples import CacheError, add_cached
from data_pipelines.features import SeqioVocabulary, output_features
from data_pipelines.inputs import Input
from data_pipelines.sample_world.convert import to_rated_answer
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER, bundled_vocabulary
from data_pipelines.sample_world.world import World
from gophercite import records
from gophercite.vocabularies import load_vocabulary
from tests.data_pipelines.test_batch_order import (
    LENGTH,
    assert_equal,
    register,
    register_records,
    take,
)

TOKENIZERS = pathlib.Path(__file__).parents[1] / "tokenizers"
LENGTHS = {"tokens": LENGTH, "weights": LENGTH}
SMALL = 1000  # bytes of a shard


def cached(name, folder, **changes):
    task = seqio.TaskRegistry.get(name)
    settings = {"lengths": LENGTHS, "shard_bytes": SMALL, **changes}
    return cache_split(task, "train", folder=folder, **settings)


def files_in(folder):
    return {path.name: path.read_bytes() for path in sorted((folder / "train").iterdir())}


@pytest.mark.parametrize(("kept", "pieces"), [(10, 1), (4, 1), (6, 3)])
def test_the_batches_are_those_of_the_task(tmp_path, kept, pieces):
    register_records("once", 50, kept=kept, pieces=pieces)
    source = Input("once", "train", LENGTH, 4, seed=3)
    wanted, whole = take(source, 12, 5), list(source.one_pass())
    assert cached("once", tmp_path) == 50 * kept * pieces // 10
    assert len(files_in(tmp_path)) >= 5
    add_cached("once", tmp_path, bundled_vocabulary())
    assert_equal(take(source, 12, 5), wanted)
    assert_equal(list(source.one_pass()), whole)
    second = take(source.share(1, 2), 3, 5)
    assert_equal(second, [{name: each[name][2:] for name in each} for each in wanted[:3]])


def test_pages_stay_together(tmp_path):
    answers = [to_rated_answer(World(good_fraction=1.0).rated_answer(i)) for i in range(8)]
    several = [
        dataclasses.replace(each, question_id=f"{n}", question=f"{n}?")
        for n in range(3)
        for each in answers
    ]
    records.write(tmp_path / "rated.jsonl", several)
    files = {"train": tmp_path / "rated.jsonl"}
    name = tasks.add_rated_answers("pages", files, VOCABULARY_FOLDER, by_page=True)
    source = Input(name, "train", 512, 2, seed=1, share_beginnings=True)
    wanted, questions = take(source, 6), source.questions(4)
    assert max(batch["branches"].max() for batch in wanted) == 3
    assert cached(name, tmp_path / "cached", shard_bytes=20_000) == 24
    add_cached(name, tmp_path / "cached", VOCABULARY_FOLDER)
    assert_equal(take(source, 6), wanted)
    assert source.questions(4) == questions


class StopError(Exception):
    """The process ends here."""


def test_an_interrupted_call_goes_on(tmp_path):
    register_records("once", 40, kept=7)
    cached("once", tmp_path / "whole")
    source, said = register_records("once", 40, kept=7), []

    def say(line):
        said.append(line)
        if len(said) == 2:
            raise StopError

    with pytest.raises(StopError):
        cached("once", tmp_path / "parts", say=say)
    with pytest.raises(CacheError, match="there are no cached examples"):
        add_cached("once", tmp_path / "parts", bundled_vocabulary())
    done = int(said[1].split()[1])
    source = register_records("once", 40, kept=7)
    assert cached("once", tmp_path / "parts", say=said.append) == 28
    assert said[2] == f"train: resuming after {done} records"
    # Each record is read for the key, for the size of a shard, and twice to compare two epochs.
    assert all(source.read[number] == 4 for number in range(done))
    assert all(source.read[number] == 5 for number in range(done, 40))
    assert files_in(tmp_path / "parts") == files_in(tmp_path / "whole")
    assert cached("once", tmp_path / "parts", say=said.append) == 28
    assert said[-1] == "train: 28 examples are already cached"


def test_examples_that_differ_from_epoch_to_epoch_are_refused(tmp_path):
    register_records("once", 20, varied=True)
    with pytest.raises(CacheError, match=r"'once' makes new random choices .* set --fix_draws"):
        cached("once", tmp_path)
    assert cached("once", tmp_path, fix_draws=True) == 20
    register_records("once", 10**6, endless=True)
    with pytest.raises(CacheError, match="without end"):
        cached("once", tmp_path / "endless")


def test_a_folder_has_one_task(tmp_path):
    register_records("once", 20)
    cached("once", tmp_path)
    longer = dict.fromkeys(LENGTHS, 2 * LENGTH)
    for count, lengths in ((21, LENGTHS), (20, longer)):
        register_records("once", count)
        with pytest.raises(CacheError, match="examples of another task, other records or other"):
            cached("once", tmp_path, lengths=lengths)
    with pytest.raises(CacheError, match="train: was encoded with another vocabulary"):
        add_cached("once", tmp_path, load_vocabulary(TOKENIZERS / "gemma"))
    question_first = copy.copy(bundled_vocabulary())
    question_first.question_first = True
    with pytest.raises(CacheError, match="train: was encoded with another vocabulary"):
        add_cached("once", tmp_path, question_first)


def test_each_split_is_compared(tmp_path):
    register_records("once", 20)
    cached("once", tmp_path)
    shutil.copytree(tmp_path / "train", tmp_path / "validation")
    path = tmp_path / "validation" / "cached.json"
    saved = json.loads(path.read_text())
    path.write_text(json.dumps({**saved, "vocabulary": "another"}))
    with pytest.raises(CacheError, match="validation: was encoded with another vocabulary"):
        add_cached("once", tmp_path, bundled_vocabulary())
    saved["features"].pop("weights")
    path.write_text(json.dumps(saved))
    with pytest.raises(CacheError, match="different features"):
        add_cached("once", tmp_path, bundled_vocabulary())


def test_shards_are_written_by_others_in_any_order(tmp_path):
    register("once", 50, kept=7)
    cached("once", tmp_path / "whole")
    said = []

    def spread(shards, missing):
        assert len(missing) == shards.count >= 4
        task = seqio.TaskRegistry.get("once")
        for number in sorted(missing, reverse=True):
            found = write_shard(task, "train", LENGTHS, shards, number)
            if number % 2:  # of the others it is not known how many examples they have
                yield number, found

    assert cached("once", tmp_path / "parts", spread=spread, say=said.append) == 35
    assert said[-1] == "train: 35 examples"
    assert files_in(tmp_path / "parts") == files_in(tmp_path / "whole")


def test_shards_that_others_did_not_write_are_missed(tmp_path):
    register("once", 50)

    def spread(shards, missing):
        task = seqio.TaskRegistry.get("once")
        for number in missing[:-2]:
            yield number, write_shard(task, "train", LENGTHS, shards, number)

    with pytest.raises(CacheError, match=r"train: has \d+ of 50 records"):
        cached("once", tmp_path, spread=spread)
    assert not (tmp_path / "train" / "cached.json").exists()

    def elsewhere(shards, missing):
        other = dataclasses.replace(shards, records=51)
        task = seqio.TaskRegistry.get("once")
        yield 0, write_shard(task, "train", LENGTHS, other, missing[0])

    with pytest.raises(CacheError, match="has 50 records in split 'train' here, and 51 where"):
        cached("once", tmp_path, spread=elsewhere)


def test_shards_of_another_size_are_written_again(tmp_path):
    register("once", 50)
    cached("once", tmp_path / "whole")
    cached("once", tmp_path / "parts", shard_bytes=SMALL // 3)
    assert len(files_in(tmp_path / "parts")) > len(files_in(tmp_path / "whole"))
    (tmp_path / "parts" / "train" / "cached.json").unlink()
    assert cached("once", tmp_path / "parts") == 50
    source = Input("once", "train", LENGTH, 4, seed=3)
    wanted = list(source.one_pass())
    add_cached("once", tmp_path / "parts", bundled_vocabulary())
    assert_equal(list(source.one_pass()), wanted)


class Uneven(Shards):
    """A division in which the second shard has the usual size, but begins elsewhere."""

    def range_of(self, number):
        return [range(10), range(10, 10 + self.each)][number]


def test_a_shard_of_the_right_size_with_the_wrong_records_is_not_kept(tmp_path):
    register("once", 50)
    cached("once", tmp_path / "whole")
    task = seqio.TaskRegistry.get("once")

    def spread(shards, missing):
        uneven = Uneven(**dataclasses.asdict(shards))
        for number in range(2):
            yield number, write_shard(task, "train", LENGTHS, uneven, number)

    with pytest.raises(CacheError, match="of 50 records"):
        cached("once", tmp_path / "parts", spread=spread)
    assert cached("once", tmp_path / "parts") == 50
    assert files_in(tmp_path / "parts") == files_in(tmp_path / "whole")


def test_a_split_is_not_complete_while_shards_are_written_again(tmp_path):
    register("once", 50)
    cached("once", tmp_path)
    (tmp_path / "train" / "00001.index.npz").unlink()

    def spread(shards, missing):
        assert missing == [1]
        raise StopError
        yield

    with pytest.raises(StopError):
        cached("once", tmp_path, spread=spread)
    with pytest.raises(CacheError, match="there are no cached examples"):
        add_cached("once", tmp_path, bundled_vocabulary())


def test_missing_shards_are_written_again(tmp_path):
    register("once", 40)
    cached("once", tmp_path)
    whole = files_in(tmp_path)
    (tmp_path / "train" / "00001.index.npz").unlink()
    assert cached("once", tmp_path) == 40
    assert files_in(tmp_path) == whole


def test_sources_without_numbers_are_read_once(tmp_path):
    read = []

    def dataset(split, shuffle_files, seed=None):
        read.append(split)
        numbers = tf.data.Dataset.range(1, 26)
        return numbers.map(
            lambda n: {
                "tokens": tf.repeat(tf.cast(n, tf.int32), n % 7 + 1),
                "weights": tf.ones(n % 7 + 1),
            }
        )

    if "once" in seqio.TaskRegistry.names():
        seqio.TaskRegistry.remove("once")
    source = seqio.FunctionDataSource(dataset, splits=("train",))
    features = output_features(SeqioVocabulary(bundled_vocabulary()))
    seqio.TaskRegistry.add("once", source, preprocessors=[], output_features=features)
    wanted = take(Input("once", "train", LENGTH, 2, seed=0), 5)
    assert cached("once", tmp_path) == 25
    read.clear()
    add_cached("once", tmp_path, bundled_vocabulary())
    assert_equal(take(Input("once", "train", LENGTH, 2, seed=0), 5), wanted)
    assert not read


def damage(path, place, more=b""):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(bytes(content) + more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Twenty examples, in several shards and in a single one: tests damage copies."""
    folder = tmp_path_factory.mktemp("whole")
    register("once", 20)
    cached("once", folder / "several")
    cached("once", folder / "single", shard_bytes=10**6)
    return folder


@pytest.mark.parametrize("place", [0, 40, -1])
def test_damaged_examples_are_named(whole, tmp_path, place):
    folder = shutil.copytree(whole / "several", tmp_path / "copy")
    damage(folder / "train" / "00001.examples", place)
    add_cached("once", folder, bundled_vocabulary())
    with pytest.raises(CacheError, match=r"00001\.examples: the examples at byte \d+ are damaged"):
        list(Input("once", "train", LENGTH, 2, seed=0, plan_folder=None).one_pass())


@pytest.mark.parametrize(
    "change",
    [
        lambda saved: saved.pop("features"),
        lambda saved: saved.update(records=19),
        lambda saved: saved.update(shards=1),
        lambda saved: saved.update(examples=-1),
        lambda saved: saved.update(key=3),
        lambda saved: saved.update(key="another"),
        lambda saved: saved["features"].update(tokens=1),
        lambda saved: saved["features"]["tokens"].update(dtype="many"),
        lambda saved: saved["features"]["tokens"].update(rank="1"),
        lambda saved: saved["features"].pop("tokens"),
    ],
)
def test_a_wrong_description_is_refused(whole, tmp_path, change):
    folder = shutil.copytree(whole / "several", tmp_path / "copy")
    path = folder / "train" / "cached.json"
    saved = json.loads(path.read_text())
    change(saved)
    path.write_text(json.dumps(saved))

    def use():
        add_cached("once", folder, bundled_vocabulary())
        next(Input("once", "train", LENGTH, 2, seed=0).batches())

    with pytest.raises(CacheError):
        use()


@pytest.mark.parametrize(
    ("starts", "checksums", "pages"),
    [
        (np.array([0, 5, 3]), np.zeros(2, np.uint32), np.zeros(0, np.uint32)),
        (np.array([1, 5, 9]), np.zeros(2, np.uint32), np.zeros(0, np.uint32)),
        (np.array([0, 5, 9]), np.zeros(3, np.uint32), np.zeros(0, np.uint32)),
        (np.array([0, 5, 9]), np.zeros(2, np.uint32), np.zeros(1, np.uint32)),
        (np.array([0.0, 5, 9]), np.zeros(2, np.uint32), np.zeros(0, np.uint32)),
        (np.array([0, 5, 9]), np.zeros((2, 1), np.uint32), np.zeros(0, np.uint32)),
        (np.array([], np.int64), np.array(0, np.uint32), np.zeros(0, np.uint32)),
        (np.array([None]), np.zeros(2, np.uint32), np.zeros(0, np.uint32)),
    ],
)
def test_a_wrong_index_is_refused(whole, tmp_path, starts, checksums, pages):
    folder = shutil.copytree(whole / "single", tmp_path / "copy")
    path = folder / "train" / "00000.index.npz"
    key = np.load(path)["key"]
    np.savez(path, key=key, starts=starts, checksums=checksums, pages=pages)
    add_cached("once", folder, bundled_vocabulary())
    with pytest.raises(CacheError, match="is not an index of cached examples"):
        next(Input("once", "train", LENGTH, 2, seed=0).batches())


def test_examples_in_a_bucket():
    register_records("once", 30, kept=7)
    source = Input("once", "train", LENGTH, 4, seed=3)
    wanted = take(source, 4)
    with google_storage() as storage:
        assert cached("once", f"{BUCKET}/cached") == 21
        assert "cached/train/cached.json" in storage.names()
        add_cached("once", f"{BUCKET}/cached", bundled_vocabulary())
        assert_equal(take(source, 4), wanted)
