"""What a folder of cached examples belongs to, and what is written again."""

import collections
import dataclasses
import json
import shutil

import pytest
import seqio
import tensorflow as tf

from data_pipelines import cache_key, sources, tasks
from data_pipelines.cache_writing import cache_split
from data_pipelines.cached_examples import CachedExamples, CacheError, add_cached
from data_pipelines.features import SeqioVocabulary, output_features
from data_pipelines.inputs import Input
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER, bundled_vocabulary
from gophercite import records
from gophercite.documents import Document
from tests.data_pipelines.test_batch_order import LENGTH, Records, register_records
from tests.data_pipelines.test_cached_examples import cached, files_in

FEATURES = output_features(SeqioVocabulary(bundled_vocabulary()))


def unnumbered(first, last, shape=lambda n: n % 7 + 1):
    """A task whose source can't return a record by its number."""

    def dataset(split, shuffle_files, seed=None):
        return tf.data.Dataset.range(first, last).map(
            lambda n: {
                "tokens": tf.repeat(tf.cast(n, tf.int32), shape(n)),
                "weights": tf.ones(shape(n)),
            }
        )

    if "once" in seqio.TaskRegistry.names():
        seqio.TaskRegistry.remove("once")
    source = seqio.FunctionDataSource(dataset, splits=("train",), num_input_examples=None)
    seqio.TaskRegistry.add("once", source, preprocessors=[], output_features=FEATURES)


@pytest.mark.parametrize(("first", "last"), [(100, 140), (1, 30)])
def test_other_data_of_a_source_without_numbers_is_refused(tmp_path, first, last):
    unnumbered(1, 26)
    assert cached("once", tmp_path) == 25
    assert cached("once", tmp_path) == 25
    unnumbered(first, last)
    with pytest.raises(CacheError, match="examples of another task, other records"):
        cached("once", tmp_path)


def test_a_builder_s_folder_is_part_of_the_key():
    """It has the version: the first examples of two may be the same."""

    class Source(seqio.FunctionDataSource):
        def __init__(self, folder):
            self.builder = type("Builder", (), {"data_dir": folder})
            super().__init__(
                lambda split, shuffle_files, seed=None: tf.data.Dataset.range(2), splits=("train",)
            )

    keys = []
    for folder in ("squad/1.0.0", "squad/2.0.0", "squad/1.0.0"):
        task = seqio.Task("once", Source(folder), FEATURES, preprocessors=[])
        keys.append(cache_key.key_of(task, "train", {}, None))
    assert keys[0] == keys[2] != keys[1]


def test_a_lost_shard_in_the_middle_doubles_no_record(tmp_path):
    unnumbered(1, 26)
    cached("once", tmp_path, shard_bytes=400)
    (tmp_path / "train" / "00001.index.npz").unlink()
    assert cached("once", tmp_path, shard_bytes=800) == 25
    add_cached("once", tmp_path, bundled_vocabulary())
    found = CachedExamples(tmp_path, "train")
    examples = found.read([(n, 0) for n in range(found.count)])
    assert [each["tokens"][0] for (each,) in examples] == list(range(1, 26))


class Some(Records):
    """Records of which some vary, or give no example."""

    def __init__(self, count, varied=(), kept=None):
        super().__init__(count)
        self.varied, self.kept = varied, kept


def register_some(source):
    def step(dataset):
        def tokens_of(record, seed):
            number = int(record)
            size = int(seed) % 5 + 2 if number in source.varied else 4
            return [number + 1] * size

        def encoded(example):
            tokens = tf.numpy_function(
                lambda *given: tf.constant(tokens_of(*given), tf.int32).numpy(),
                [example["record"], example["seed"]],
                tf.int32,
            )
            tokens = tf.ensure_shape(tokens, [None])
            return {**example, "tokens": tokens, "weights": tf.ones_like(tokens, tf.float32)}

        made = dataset.map(encoded)
        kept = source.kept
        return made if kept is None else made.filter(lambda e: e["tokens"][0] > kept)

    tasks.register("once", source, [step], bundled_vocabulary())


@pytest.mark.parametrize(
    ("count", "varied", "kept"),
    [
        (40, range(16, 40), None),
        (40, range(16, 40), 16),
        (3000, range(1000, 3000), None),
        (3000, range(1500, 3000), 1500),
    ],
)
def test_records_that_vary_anywhere_are_noticed(tmp_path, count, varied, kept):
    register_some(Some(count, varied, kept))
    with pytest.raises(CacheError, match="makes new random choices"):
        cached("once", tmp_path)
    assert max(seqio.TaskRegistry.get("once").source.read.values()) <= 3


def test_a_shard_s_records_are_measured_all_over_the_split(tmp_path):
    """Here the first quarter gives no example: its records have no bytes."""
    register_some(Some(2000, kept=500))
    cached("once", tmp_path, shard_bytes=20_000)
    sizes = [len(c) for name, c in files_in(tmp_path).items() if name.endswith(".examples")]
    assert max(sizes) < 45_000


def test_documents_cut_to_another_length_are_refused(tmp_path):
    pages = [Document(f"{n}", f"Mill {n}", "It stands by the river. " * 40) for n in range(6)]
    records.write(tmp_path / "pages.jsonl", pages)
    tasks.add_documents("cut", {"train": tmp_path / "pages.jsonl"}, VOCABULARY_FOLDER)
    lengths = {"tokens": 64, "weights": 64}
    cache_split(seqio.TaskRegistry.get("cut"), "train", lengths, tmp_path / "cached")
    add_cached("cut", tmp_path / "cached", VOCABULARY_FOLDER)
    next(Input("cut", "train", 64, 2, seed=0).batches())
    for length in (32, 128):
        with pytest.raises(
            CacheError, match=f"cached with tokens = 64, but is read with tokens = {length}"
        ):
            Input("cut", "train", length, 2, seed=0)


def test_examples_that_no_length_changes_are_read_at_any(tmp_path):
    register_records("once", 20)
    cached("once", tmp_path)
    add_cached("once", tmp_path, bundled_vocabulary())
    batch = next(Input("once", "train", 2 * LENGTH, 2, seed=0).batches())
    assert batch["tokens"].shape == (2, 2 * LENGTH)


@pytest.fixture(scope="module", params=["numbered", "unnumbered"])
def whole(request, tmp_path_factory):
    """Forty examples of a task that is there to write them again."""
    register_records("once", 40) if request.param == "numbered" else unnumbered(1, 41)
    folder = tmp_path_factory.mktemp("whole")
    cached("once", folder)
    return folder


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "00001.examples").unlink(),
        lambda folder: (folder / "00001.examples").write_bytes(
            (folder / "00001.examples").read_bytes()[:-5]
        ),
        lambda folder: (folder / "00001.index.npz").write_bytes(b""),
        lambda folder: (folder / "cached.json").write_text(""),
        lambda folder: (folder / "cached.json").write_text('{"shards": 3}'),
        lambda folder: [
            (folder / "x.index.npz").write_bytes(b""),
            (folder / "cached.json").unlink(),
        ],
    ],
)
def test_what_is_missing_or_damaged_is_written_again(whole, tmp_path, spoil):
    files = files_in(whole)
    assert "00002.examples" in files
    folder = shutil.copytree(whole, tmp_path / "copy")
    spoil(folder / "train")
    assert cached("once", folder) == 40
    found = files_in(folder)
    assert {name: found[name] for name in files} == files


def test_a_damaged_index_past_the_last_shard_is_removed(tmp_path):
    register_records("once", 40)
    cached("once", tmp_path)
    past = len(list((tmp_path / "train").glob("*.examples")))
    (tmp_path / "train" / f"{past:05d}.index.npz").write_bytes(b"")
    assert cached("once", tmp_path) == 40
    add_cached("once", tmp_path, bundled_vocabulary())
    assert CachedExamples(tmp_path, "train").count == 40


def test_the_records_of_a_page_are_looked_up_once(tmp_path, monkeypatch):
    page = Document("p", "Mill", "It was built in 1812. It burned.")
    answer = records.RatedAnswer(
        "1", "When?", (page,), "1812", "Mill", "It was built in 1812.", "p", True, True
    )
    several = [dataclasses.replace(answer, question_id=f"{n}") for n in range(30)]
    records.write(tmp_path / "rated.jsonl", several)
    files = {"train": tmp_path / "rated.jsonl"}
    source = sources.JsonLinesSource(files, records.RatedAnswer, by_page=True)
    parsed = collections.Counter()
    loads = json.loads

    def counted(text, **settings):
        parsed["lines"] += 1
        return loads(text, **settings)

    source.count("train")
    monkeypatch.setattr(sources.json, "loads", counted)
    assert source.pages("train").tolist() == [0] * 30
    assert source.pages("train").tolist() == [0] * 30
    assert parsed["lines"] == 30
