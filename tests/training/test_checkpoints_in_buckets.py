"""Checkpoints in a bucket that fails: whole or not counted, and nobody's are deleted."""

import json
from collections.abc import Iterator

import pytest
import test_checkpoints as on_disk
import tiny_learner as tiny
from google_storage import BUCKET, Storage, google_storage
from storage_faults import Faults, Rule

from gophercite.model_folders.checkpoint_files import saved_steps
from gophercite.model_folders.checkpoint_scores import Score
from gophercite.storage import StorageError
from gophercite.training.checkpoints import Checkpoints

# What still writes when a save fails reports to nobody.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")

FAULTS = Faults(slow=0.1)
RUN = f"{BUCKET}/run"


@pytest.fixture(scope="module")
def server() -> Iterator[Storage]:
    with google_storage(FAULTS) as found:
        yield found


@pytest.fixture
def storage(server: Storage) -> Storage:
    FAULTS.rules = []
    FAULTS.forget()
    for name in server.names():
        server.delete(name)
    return server


def below(storage: Storage, folder: str) -> dict[str, bytes]:
    """The objects of a folder, by their names from it on."""
    names = [name for name in storage.names() if name.startswith(f"{folder}/")]
    return {name.removeprefix(f"{folder}/"): storage.read(name) for name in names}


def copy_without_marker(storage: Storage, step: int, to: int) -> dict[str, bytes]:
    copied = below(storage, f"run/checkpoints/{step}")
    del copied["commit_success.txt"]
    for name, content in copied.items():
        storage.write(f"run/checkpoints/{to}/{name}", content)
    return copied


def test_a_checkpoint_without_its_marker_is_neither_used_nor_deleted(storage: Storage) -> None:
    on_disk.saved(RUN, 1)
    copied = copy_without_marker(storage, 1, to=7)
    assert on_disk.restore(RUN).progress == {"step": 1}
    assert saved_steps(RUN) == [1]
    assert below(storage, "run/checkpoints/7") == copied

    said: list[str] = []
    state = on_disk.saved(RUN, 7, say=said.append)[7]
    assert saved_steps(RUN) == [1, 7]
    assert tiny.bits(on_disk.restore(RUN).state) == tiny.bits(state)
    assert below(storage, "run/unfinished_checkpoints/7") == copied
    place = f"{RUN}/checkpoints/7"
    aside = f"{RUN}/unfinished_checkpoints/7"
    whole = "so it is not a whole checkpoint"
    assert said == [f"{place} has no commit_success.txt, {whole}: moved to {aside}"]


def test_what_a_cut_off_save_of_the_run_itself_left_is_replaced(storage: Storage) -> None:
    on_disk.saved(RUN, 1)
    assert json.loads(storage.read("run/saving.json")) == {"steps": [1]}
    storage.delete("run/checkpoints/1/commit_success.txt")
    assert on_disk.restore(RUN) is None
    state = on_disk.saved(RUN, 1)[1]
    assert tiny.bits(on_disk.restore(RUN).state) == tiny.bits(state)
    assert not below(storage, "run/unfinished_checkpoints")


def test_a_save_that_was_refused_is_made_up_for_by_the_next(storage: Storage) -> None:
    of = on_disk.program()
    said: list[str] = []
    checkpoints = Checkpoints(RUN, keep_newest=9, say=said.append)
    checkpoints.save(on_disk.state_at(1, of), {"step": 1})
    for refused, part in ((2, "state/ocdbt"), (4, "commit_success"), (6, "metadata/")):
        FAULTS.forget()
        FAULTS.rules = [Rule("403", "POST", f"checkpoints/{refused}/{part}")]
        for step in (refused, refused + 1):
            checkpoints.save(on_disk.state_at(step, of), {"step": step}, Score(1.0 / step))
        checkpoints.wait()
        assert FAULTS.injected["403"] == 1, part
        assert saved_steps(RUN) == [*range(1, refused), refused + 1]
        checkpoints.save(on_disk.state_at(refused, of), {"step": refused}, Score(1.0 / refused))
        checkpoints.wait()
        assert saved_steps(RUN) == list(range(1, refused + 2))
        wanted = f"checkpoint {refused} was not saved"
        assert [line for line in said if wanted in line] == said != [], part
        assert "gs://bucket/run: the bucket can't be used" in said[0]
        said.clear()
    checkpoints.close()


def test_the_last_save_is_tried_again_and_given_up_with_an_error(storage: Storage) -> None:
    of = on_disk.program()
    checkpoints = Checkpoints(RUN)
    FAULTS.rules = [Rule("403", "POST", "checkpoints/1/", times=2)]
    checkpoints.save(on_disk.state_at(1, of), {"step": 1}, last=True)
    assert saved_steps(RUN) == [1]
    FAULTS.rules = [Rule("403", "POST", "checkpoints/2/", times=10**6)]
    with pytest.raises(StorageError, match=f"^{RUN}.*: the bucket can't be used"):
        checkpoints.save(on_disk.state_at(2, of), {"step": 2}, last=True)
    checkpoints.close()
    assert saved_steps(RUN) == [1]


def test_a_bucket_that_can_t_be_used_is_no_damage(storage: Storage) -> None:
    on_disk.saved(RUN, 1, 2)
    before = storage.names()
    for part in ("state/d/", "state/manifest", "metadata/metadata", "commit_success"):
        FAULTS.rules = [Rule("403", "GET", f"checkpoints/2/{part}", times=10**6)]
        with pytest.raises(StorageError, match=r"the bucket can't be used: .*no right to do this"):
            on_disk.restore(RUN)
        assert storage.names() == before, part
    FAULTS.rules = []
    assert on_disk.restore(RUN).progress == {"step": 2}


def test_a_damaged_one_is_set_aside_though_answers_get_lost(storage: Storage) -> None:
    states = on_disk.saved(RUN, 1, 2)
    before = below(storage, "run/checkpoints/2")
    name = max((n for n in before if n.startswith("state/d/")), key=lambda n: len(before[n]))
    before[name] = bytes([*before[name][:-9], before[name][-9] ^ 1, *before[name][-8:]])
    storage.write(f"run/checkpoints/2/{name}", before[name])
    FAULTS.rules = [Rule("lost", "DELETE", "checkpoints/2/", times=2)]
    found = on_disk.restore(RUN)
    assert FAULTS.injected["lost"] == 2
    assert tiny.bits(found.state) == tiny.bits(states[1])
    assert "checkpoint 2 is damaged, moved to " in found.passed_over[0]
    assert below(storage, "run/damaged_checkpoints/2") == before
    assert not below(storage, "run/checkpoints/2")
