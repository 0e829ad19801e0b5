"""What comes back from a checkpoint: exactly what was saved, or word of what is wrong."""

import dataclasses
import functools
import hashlib
import json
import math
import os
import random
import resource
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_learner as tiny
from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.learning.optimizers import adam
from gophercite.learning.state import TrainState
from gophercite.model_folders import digests as digests_module
from gophercite.model_folders.checkpoint_errors import CheckpointError
from gophercite.model_folders.checkpoint_files import (
    Metadata,
    best_step,
    read_parameters,
    saved_steps,
)
from gophercite.model_folders.checkpoint_scores import Score, ranking
from gophercite.model_folders.digests import digests
from gophercite.model_folders.folder_contents import ModelFolderError, best_checkpoint
from gophercite.models.parameters import FROZEN, TRAINED, merge_layers
from gophercite.training.checkpoints import Checkpoints, NonFiniteStateError, Restored
from gophercite.training.program import Program


@functools.cache
def program(
    frozen_layers: int = 0, learner: tiny.TinyLearner | None = None, **mesh: int
) -> Program:
    """On two devices, or on all in a mesh."""
    learner = learner or tiny.TinyLearner()
    where = tiny.partitioner(**mesh) if mesh else tiny.two_devices()
    return Program(learner, tiny.TinyInitialisation(frozen_layers), where)


@functools.cache
def initial(of: Program) -> TrainState:
    return of.initial_state(seed=0)


def state_at(step: int, of: Program, scale: float = 1.0) -> TrainState:
    """A state that is told apart from others by its step."""

    def number(leaf: jax.Array) -> jax.Array:
        values = np.arange(step, step + leaf.size).reshape(leaf.shape) * scale
        return jax.device_put(values.astype(leaf.dtype), leaf.sharding)

    state = initial(of)
    optimizer = jax.tree.map(number, state.optimizer)
    steps = jax.device_put(np.int32(step), state.step.sharding)
    return dataclasses.replace(state, step=steps, optimizer=optimizer)


def saved(folder: Path, *steps: int, of: Program | None = None, **options) -> dict[int, TrainState]:
    of = of or program()
    checkpoints = Checkpoints(folder, **options)
    states = {step: state_at(step, of) for step in steps}
    for step, state in states.items():
        checkpoints.save(state, {"step": step})
    checkpoints.close()
    return states


def restore(folder: Path, of: Program | None = None) -> Restored | None:
    of = of or program()
    checkpoints = Checkpoints(folder)
    try:
        return checkpoints.restore(
            of.state_target(), of.learner.init_state, lambda: of.initial_parameters(seed=0)
        )
    finally:
        checkpoints.close()


def files_of(folder: Path, step: int) -> list[Path]:
    root = folder / "checkpoints" / str(step) / "state"
    return [path for path in root.rglob("*") if path.is_file() and path.stat().st_size > 0]


def largest(folder: Path, step: int) -> Path:
    """The file that holds most of the arrays (Orbax leaves unused copies in other folders)."""
    data = folder / "checkpoints" / str(step) / "state" / "d"
    return max(data.iterdir(), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("mesh", [{}, {"fsdp": 2, "model": 4}, {"data": 8, "fsdp": 1}])
def test_a_state_comes_back_bit_for_bit_on_any_mesh(tmp_path, mesh):
    state = saved(tmp_path, 3, of=program(fsdp=8))[3]
    elsewhere = program(**mesh)
    restored = restore(tmp_path, elsewhere)
    assert tiny.bits(restored.state) == tiny.bits(state)
    assert restored.progress == {"step": 3}
    target = elsewhere.state_target()
    for leaf, wanted in zip(jax.tree.leaves(restored.state), jax.tree.leaves(target), strict=True):
        assert leaf.sharding.is_equivalent_to(wanted.sharding, leaf.ndim)


def test_an_empty_folder_has_nothing_to_restore(tmp_path):
    assert restore(tmp_path) is None


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (1, 3), (3, 1), (2, 2)])
def test_layers_are_split_anew_where_the_run_freezes(tmp_path, before, after):
    state = saved(tmp_path, 3, of=program(before))[3]
    restored = restore(tmp_path, program(after)).state
    assert tiny.bits(merge_layers(restored.params)) == tiny.bits(merge_layers(state.params))
    assert (FROZEN in restored.params) == (after > 0)
    old, new = (
        jax.device_get(s.optimizer.statistics[TRAINED]["kernel"]) for s in (state, restored)
    )
    assert new.keys() == old.keys()
    for name in old:
        kept = min(tiny.LAYERS - before, tiny.LAYERS - after)
        np.testing.assert_array_equal(new[name][-kept:], old[name][-kept:])
        assert not np.any(new[name][:-kept])  # newly trained layers start fresh, from zeros
    assert tiny.bits(restored.optimizer.statistics["embed"]) == tiny.bits(
        state.optimizer.statistics["embed"]
    )


def test_a_part_may_be_frozen_or_thawed(tmp_path):
    without = tiny.TinyLearner(frozen_parts=("embed",))
    saved(tmp_path, 1)
    frozen = restore(tmp_path, program(learner=without)).state
    assert "embed" not in frozen.optimizer.statistics
    other = tmp_path / "other"
    saved(other, 1, of=program(learner=without))
    thawed = restore(other).state
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(thawed.optimizer.statistics["embed"]))


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def metadata_of(folder: Path) -> Path:
    return folder / "checkpoints" / "5" / "metadata" / "metadata"


def move_the_input(folder: Path) -> None:
    text = metadata_of(folder).read_text()
    assert '"progress": {"step": 5}' in text
    metadata_of(folder).write_text(
        text.replace('"progress": {"step": 5}', '"progress": {"step": 4}')
    )


DAMAGES = {
    "a flipped bit": lambda folder: flip_a_bit(largest(folder, 5)),
    "a file cut short": lambda folder: os.truncate(largest(folder, 5), 20),
    "a missing file": lambda folder: largest(folder, 5).unlink(),
    "no metadata": lambda folder: metadata_of(folder).unlink(),
    "metadata cut short": lambda folder: os.truncate(metadata_of(folder), 30),
    "another input position": move_the_input,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_is_used(tmp_path, damage):
    states = saved(tmp_path, 4, 5)
    DAMAGES[damage](tmp_path)
    restored = restore(tmp_path)
    assert int(restored.state.step) == 4
    assert tiny.bits(restored.state) == tiny.bits(states[4])
    assert len(restored.passed_over) == 1
    assert "checkpoint 5 is damaged" in restored.passed_over[0]
    assert (tmp_path / "damaged_checkpoints" / "5").exists()
    assert saved_steps(tmp_path) == [4]
    again = saved(tmp_path, 5)  # its step can be saved anew
    assert tiny.bits(restore(tmp_path).state) == tiny.bits(again[5])


@pytest.fixture
def nobody(tmp_path):
    """Until the test ends, this process is of a user who may read nothing that is closed."""
    me, closed = os.geteuid(), []
    for folder in (tmp_path, *tmp_path.parents):
        if not (mode := folder.stat().st_mode) & 0o001:  # pytest's own, which others may not enter
            folder.chmod(mode | 0o011)
            closed.append((folder, mode))
    yield (lambda: os.seteuid(65534)) if me == 0 else (lambda: None)
    os.seteuid(me)
    for folder, mode in closed:
        folder.chmod(mode)


@pytest.mark.parametrize("closed", ["metadata", "a file of arrays", "a folder"])
def test_what_may_not_be_read_is_no_damage_and_stays(tmp_path, nobody, closed):
    states = saved(tmp_path, 4, 5)
    path = {
        "metadata": metadata_of(tmp_path),
        "a file of arrays": largest(tmp_path, 5),
        "a folder": metadata_of(tmp_path).parent,
    }[closed]
    mode = path.stat().st_mode
    path.chmod(0)
    nobody()
    with pytest.raises(CheckpointError, match="can't be read: Permission denied") as refused:
        restore(tmp_path)
    assert str(refused.value).startswith(f"{path}: ")
    os.seteuid(os.getuid())
    path.chmod(mode)
    assert saved_steps(tmp_path) == [4, 5]
    assert not (tmp_path / "damaged_checkpoints").exists()
    assert tiny.bits(restore(tmp_path).state) == tiny.bits(states[5])


def test_no_whole_checkpoint_is_an_error_not_a_new_start(tmp_path):
    saved(tmp_path, 5)
    metadata_of(tmp_path).unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint is usable.*checkpoint 5 is damaged"):
        restore(tmp_path)
    # Nor is it a new start when the same command is run again.
    with pytest.raises(CheckpointError, match=r"damaged_checkpoints holds 5\. .* begin anew"):
        restore(tmp_path)


def test_any_flipped_bit_of_any_data_file_is_found_or_harmless(tmp_path):
    state = saved(tmp_path, 5)[5]
    draw = random.Random(0)
    found = 0
    for path in files_of(tmp_path, 5):
        whole = path.read_bytes()
        data = bytearray(whole)
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)
        try:
            params = read_parameters(tmp_path, 5)
        except CheckpointError:
            found += 1
            continue
        finally:
            path.write_bytes(whole)
        assert tiny.bits(params) == tiny.bits(state.params)
    assert found


def test_another_model_and_another_optimiser_are_refused_by_name(tmp_path, monkeypatch):
    saved(tmp_path, 1)
    with pytest.raises(CheckpointError, match=r"another optimiser: only .* Set MODEL_DIR"):
        restore(tmp_path, program(learner=tiny.TinyLearner(optimizer=adam())))
    monkeypatch.setattr(tiny, "VOCABULARY", 24)
    message = r"another model: params/embed/embedding is bfloat16\[16, 32\] in the .*\[24, 32\]"
    with pytest.raises(CheckpointError, match=message):
        restore(tmp_path, program.__wrapped__())  # not the one that is kept, of 16 tokens
    assert saved_steps(tmp_path) == [1]  # it is not damaged, so it stays


def test_the_newest_and_the_best_stay(tmp_path):
    of = program()
    checkpoints = Checkpoints(tmp_path, keep_newest=2, keep_best=1)
    scores = {1: Score(3.0), 2: Score(1.0), 3: Score(2.0), 4: None, 5: Score(2.5)}
    for step in (1, 2, 3):
        checkpoints.save(state_at(step, of), {}, scores[step])
    checkpoints.close()
    assert saved_steps(tmp_path) == [2, 3]
    checkpoints = Checkpoints(tmp_path, keep_newest=2, keep_best=1)  # scores are remembered
    checkpoints.restore(
        of.state_target(), of.learner.init_state, lambda: of.initial_parameters(seed=0)
    )
    for step in (4, 5):
        checkpoints.save(state_at(step, of), {}, scores[step])
    checkpoints.close()
    assert saved_steps(tmp_path) == [2, 4, 5]
    assert best_step(tmp_path) == 2


def test_a_state_beyond_a_limit_is_not_the_best_even_if_it_is_the_only_one(tmp_path):
    of, score = program(), Score(0.9, "eval/set/accuracy", "max", "eval/set/kl is 2, beyond")
    checkpoints = Checkpoints(tmp_path, keep_newest=1)
    checkpoints.save(state_at(1, of), {}, score)
    checkpoints.wait()
    assert best_step(tmp_path) is None
    with pytest.raises(
        ModelFolderError, match=r"no checkpoint .* at step 1, eval/set/kl is 2, bey"
    ):
        best_checkpoint(tmp_path)
    checkpoints.save(state_at(2, of), {}, dataclasses.replace(score, value=0.1, beyond=None))
    for step in (3, 4):
        checkpoints.save(state_at(step, of), {}, score)
    checkpoints.close()
    assert saved_steps(tmp_path) == [2, 4]
    assert best_step(tmp_path) == 2


def test_scores_by_another_metric_or_the_other_way_round_are_not_compared():
    by_loss = {1: Score(5.0, "eval/set/loss"), 2: Score(4.0, "eval/set/loss")}
    by_accuracy = {
        3: Score(0.2, "eval/set/accuracy", "max"),
        4: Score(0.1, "eval/set/accuracy", "max"),
    }
    assert ranking(by_loss) == [2, 1]
    assert ranking({**by_loss, **by_accuracy}) == [3, 4]
    assert ranking({**by_accuracy, 9: Score(0.3, "eval/set/accuracy", "min")}) == [9]
    of_before = {5: Score(-0.15), 6: Score(math.nan)}  # saved without the metric's name
    assert ranking({**by_accuracy, **of_before}) == [3, 5, 4]
    assert ranking({1: Score(2.0), 2: Score(2.0), 3: Score(3.0)}) == [2, 1, 3]


def test_metadata_of_before_are_read_and_all_scores_come_back(tmp_path):
    saved(tmp_path, 5)
    stored = json.loads(metadata_of(tmp_path).read_text())["contents"]
    metadata = Metadata.from_json(sealed({**stored, "score": -0.25}))
    assert metadata.score == Score(-0.25)
    for score in (None, Score(0.5, "eval/set/accuracy", "max", "too far")):
        scored = dataclasses.replace(metadata, score=score)
        assert Metadata.from_json(json.loads(json.dumps(scored.to_json()))) == scored
    endless = dataclasses.replace(metadata, score=Score(math.inf, "eval/set/loss"))
    assert math.isnan(Metadata.from_json(endless.to_json()).score.value)


def sealed(contents: dict) -> dict:
    text = json.dumps(contents, sort_keys=True)
    return {"contents": contents, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def test_a_score_that_comes_later_leaves_the_checkpoint_s_files_as_they_are(tmp_path):
    of = program()
    saved(tmp_path, 1)
    before = {path: path.stat().st_ino for path in files_of(tmp_path, 1)}
    checkpoints = Checkpoints(tmp_path, keep_newest=1)
    checkpoints.save(state_at(1, of), {"step": 1, "evaluated": True}, Score(0.5))
    assert {path: path.stat().st_ino for path in files_of(tmp_path, 1)} == before
    for step, score in ((2, Score(0.7)), (3, Score(0.6))):
        checkpoints.save(state_at(step, of), {}, score)
    checkpoints.close()
    assert saved_steps(tmp_path) == [1, 3]
    assert best_step(tmp_path) == 1
    (tmp_path / "checkpoints" / "3").rename(tmp_path / "3")
    assert restore(tmp_path).progress == {"step": 1, "evaluated": True}


def test_a_full_disk_is_named_in_one_line(tmp_path):
    of = program(fsdp=8)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state_at(1, of), {})
    checkpoints.wait()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:  # no disk is full here, but a file that may not grow fails in the same places
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))  # less than TensorStore writes
        checkpoints.save(state_at(2, of), {})
        with pytest.raises(OSError, match=f"checkpoint 2 can't be saved in {tmp_path}: File too"):
            checkpoints.wait()
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))  # less than Python writes
        checkpoints.save(state_at(3, of), {})
        with pytest.raises(OSError, match=f"checkpoint 3 can't be saved in {tmp_path}: File too"):
            checkpoints.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert saved_steps(tmp_path) == [1]


def test_a_poisoned_state_is_not_saved(tmp_path):
    of = program()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state_at(1, of), {})
    with pytest.raises(NonFiniteStateError, match=r"step 2: .*optimizer.*newest checkpoint is 1"):
        checkpoints.save(state_at(2, of, scale=float("inf")), {})
    checkpoints.close()
    assert saved_steps(tmp_path) == [1]


def test_averages_are_restored_and_are_what_inference_reads(tmp_path):
    of = program(1)
    state = state_at(1, of)
    trained = {name: part for name, part in state.params.items() if name != FROZEN}
    averages = jax.tree.map(lambda leaf: leaf.astype(jnp.float32) + 1, trained)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(dataclasses.replace(state, ema=averages), {})
    checkpoints.close()
    params = read_parameters(tmp_path, 1)
    rounded = jax.tree.map(lambda mean: mean.astype(jnp.bfloat16), averages)
    expected = merge_layers({FROZEN: state.params[FROZEN], **rounded})
    assert tiny.bits(params) == tiny.bits(expected)


DTYPES = ("float32", "bfloat16", "int32", "uint8", "bool", "float16")


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_digests_tell_any_changed_element_and_any_order_apart(data):
    dtype = data.draw(st.sampled_from(DTYPES))
    values = np.arange(24).astype(dtype if dtype != "bfloat16" else jnp.bfloat16).reshape(2, 3, 4)
    place = data.draw(st.integers(0, values.nbytes - 1))
    bit = 0 if dtype == "bool" else data.draw(st.integers(0, 7))
    raw = bytearray(values.tobytes())
    raw[place] ^= 1 << bit
    changed = np.frombuffer(bytes(raw), values.dtype).reshape(values.shape)
    original = digests({"a": jnp.asarray(values)})["a"]
    assert digests({"a": jnp.asarray(changed)})["a"][:2] != original[:2]
    if dtype != "bool":
        assert digests({"a": jnp.asarray(values[::-1])})["a"][:2] != original[:2]


def test_one_of_the_sums_alone_tells_any_changed_bit():
    """Whatever the element and the bit: not with a probability, as the other one."""
    values = np.arange(5, dtype=np.uint32)
    flipped = (values ^ (np.eye(5, dtype=np.uint32) << bit) for bit in (0, 31))
    for changed in np.concatenate([*flipped]):
        both = (digests({"a": jnp.asarray(each)})["a"] for each in (values, changed))
        assert len({each.place_weighted for each in both}) == 2


@pytest.mark.parametrize("dtype", [*DTYPES, "int8", "float8_e4m3fn"])
def test_small_arrays_have_the_digests_that_a_program_computes(dtype, monkeypatch):
    values = (np.arange(24).reshape(2, 3, 4) - 7) % 23
    array = jnp.asarray(values.astype(jnp.dtype(dtype)))
    if jnp.issubdtype(array.dtype, jnp.floating):
        array = array.at[1, 2, 3].set(jnp.nan)
    here = digests({"a": array, "b": array[0, 1, 2]})
    assert here["a"].non_finite == jnp.issubdtype(array.dtype, jnp.floating)
    monkeypatch.setattr(digests_module, "_SMALL", -1)
    assert digests({"a": array, "b": array[0, 1, 2]}) == here


def test_digests_don_t_depend_on_the_mesh(monkeypatch):
    monkeypatch.setattr(digests_module, "_SMALL", -1)
    values = jax.random.normal(jax.random.key(0), (4, 8, 16))
    where = tiny.partitioner(fsdp=2, model=4)
    cut = jax.device_put(values, where.shardings(("layers", "embed", "mlp"), values))
    assert len(cut.sharding.device_set) == 8
    assert digests({"a": cut}) == digests({"a": values})
    poisoned = values.at[1, 2, 3].set(jnp.nan)
    assert digests({"a": poisoned})["a"].non_finite == 1
