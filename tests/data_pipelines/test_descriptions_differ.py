"""Functions and vocabularies that give different examples have different descriptions."""

import copy
import functools
import json
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
import seqio

from data_pipelines.cache_writing import cache_split
from data_pipelines.cached_examples import CacheError, add_cached
from data_pipelines.description import describe
from data_pipelines.features import SeqioVocabulary
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from tests.data_pipelines.test_batch_order import LENGTH, register_records

TOKENIZERS = Path(__file__).parents[1] / "tokenizers"


@pytest.mark.parametrize(
    "change",
    [
        {"eos_id": 5},
        {"bos_id": 5},
        {"pad_id": 5},
        {"dummy_prefix": "other"},
        {"other_eos_ids": (5,)},
    ],
)
def test_the_ends_of_a_vocabulary_count(change):
    plain = copy.copy(bundled_vocabulary())
    before = describe(SeqioVocabulary(plain))
    for name, value in change.items():
        assert getattr(plain, name) != value
        setattr(plain, name, value)
    assert describe(SeqioVocabulary(plain)) != before


def test_examples_with_another_end_are_refused(tmp_path):
    register_records("ends", 8)
    lengths = {"tokens": LENGTH, "weights": LENGTH}
    cache_split(seqio.TaskRegistry.get("ends"), "train", lengths, tmp_path)
    other = copy.copy(bundled_vocabulary())
    other.eos_id = 5
    with pytest.raises(CacheError, match="train: was encoded with another vocabulary"):
        add_cached("ends", tmp_path, other)


def test_an_end_in_the_tokenizer_s_settings_counts(tmp_path):
    shutil.copytree(TOKENIZERS / "qwen", tmp_path / "base")
    path = tmp_path / "base" / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({**settings, "eos_token": "<|endoftext|>"}))
    described = [
        describe(SeqioVocabulary(each)) for each in (TOKENIZERS / "qwen", tmp_path / "base")
    ]
    assert described[0] != described[1]


def weigh(by, *, names=("weights",)):
    def step(dataset, factor=by):
        return [each * by * factor for each in dataset if names]

    return step


def with_default(number, only=None):
    def step(dataset, by=number, *, where=only):
        return dataset, by, where

    return step


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (weigh(1.0), weigh(0.5)),
        (weigh(1.0), weigh(1.0, names=("weights", "tokens"))),
        (with_default(1), with_default(2)),
        (with_default(1, "a"), with_default(1, "b")),
        (weigh(np.float32(1)), weigh(np.float32(2))),
        (weigh(np.ones(2000)), weigh(np.r_[np.ones(1000), 2, np.ones(999)])),
        (weigh({"a", "b"}), weigh({"a", "c"})),
        (weigh(weigh(1)), weigh(weigh(2))),
        (functools.wraps(describe)(weigh(1)), functools.wraps(describe)(weigh(2))),
    ],
)
def test_what_a_function_holds_counts(one, other):
    assert describe(one) != describe(other)


def test_the_same_function_has_the_same_description():
    for make in (float, lambda: np.ones(3), lambda: {"b", "a", "c"}, lambda: weigh(2), object):
        assert describe(weigh(make())) == describe(weigh(make()))
    assert describe(weigh(threading.Lock())) == describe(weigh(threading.Lock()))
    assert describe(weigh({"a", "b"})) == describe(weigh({"b", "a"}))


def test_functions_that_hold_themselves_end():
    def recursive(number):
        return recursive(number - 1) if number else settings

    settings = {"of": recursive}
    settings["itself"] = settings

    def later():
        return never  # a cell that is still empty

    if not settings:
        never = 1
    assert describe(recursive) == describe(recursive)
    assert describe(later) == describe(later)
