"""What is written to a bucket that fails is there whole, once, or there is an error to be read."""

import asyncio
import os
import signal
import threading
import time
import types
from collections.abc import Iterator

import gcsfs
import pytest
from etils import epath
from etils.epath import backend
from google_storage import BUCKET, Storage, google_storage
from storage_faults import KINDS, Faults, Rule

from gophercite import records
from gophercite.documents import Document
from gophercite.storage import StorageError, files_in, local_copy, paths, whole_folder, write_whole
from gophercite.storage.checkpoint_steps import saved_steps
from gophercite.storage.paths import write_new
from gophercite.storage.result_file import ResultFile, ResultFileError, read_results

UNHEARD = ("lost", "cut inside")  # the server has done it, and the client can't know
FAULTS = Faults(slow=0.1)
waits: list[float] = []  # seconds that gcsfs would have waited for between its tries


@pytest.fixture(scope="module")
def server() -> Iterator[Storage]:
    async def at_once(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    with pytest.MonkeyPatch.context() as patch, google_storage(FAULTS) as found:
        patch.setattr("gcsfs.retry.asyncio", types.SimpleNamespace(sleep=at_once))
        yield found


@pytest.fixture
def storage(server: Storage) -> Storage:
    FAULTS.rules = []
    FAULTS.forget()
    waits.clear()
    for name in server.names():
        server.delete(name)
    return server


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_written_and_read_whatever_comes_between(storage: Storage, kind: str) -> None:
    content = os.urandom(100_000)
    path = f"{BUCKET}/some/file"
    FAULTS.rules = [Rule(kind, "POST", times=2)]
    with write_whole(path) as local:
        local.write_bytes(content)
    assert storage.read("some/file") == content
    FAULTS.rules += [Rule("cut before" if kind == "lost" else kind, "GET", times=4)]
    with local_copy(path) as local:
        assert local.read_bytes() == content
    assert FAULTS.injected[kind] >= 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_large_file_whose_pieces_are_sent_twice_is_no_longer(storage: Storage, kind: str) -> None:
    content = os.urandom(11 << 20)
    FAULTS.rules = [Rule(kind, "POST", "uploadType"), Rule(kind, "POST", "upload_id", times=2)]
    with write_whole(f"{BUCKET}/large") as local:
        local.write_bytes(content)
    assert storage.read("large") == content
    assert FAULTS.injected[kind] == (2 if kind == "slow" else 3)  # what is slow is not repeated


def test_ctrl_c_in_the_middle_of_an_upload_leaves_no_half_of_a_file(storage: Storage) -> None:
    """Nor does the file that was there change."""
    name = "cut/pages.jsonl"
    content = b"a line\n" * 4_000_000
    storage.write(name, b"of before\n")
    before = FAULTS.slow
    FAULTS.rules = [Rule("slow", "POST", "upload_id")]
    FAULTS.slow = 1.5

    def interrupt() -> None:
        while not FAULTS.injected["slow"]:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            _write(f"{BUCKET}/{name}", content)
    finally:
        FAULTS.slow = before
    end = time.monotonic() + 20
    while (found := storage.read(name)) != content:  # the client's own thread is still at it
        assert found == b"of before\n"
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_written_once_and_never_over_anothers(storage: Storage, kind: str) -> None:
    path, name = f"{BUCKET}/runs/answers.jsonl", "runs/answers.jsonl"
    FAULTS.rules = [Rule(kind, method) for method in ("POST", "DELETE", "POST", "POST")]
    with ResultFile(path, {"seed": 0}) as answers:
        answers.append({"question_id": "p"}, {"question_id": "q"})
        answers.append({"question_id": "r"})
    with ResultFile(path, {"seed": 0}) as answers:
        assert answers.done == {"p", "q", "r"}
        FAULTS.rules = [Rule(kind, "POST")]
        answers.append({"question_id": "s"})
    assert FAULTS.injected[kind] >= 3
    assert [line["question_id"] for line in read_results(path)] == ["p", "q", "r", "s"]
    assert storage.read(name).count(b"\n") == 4
    assert storage.names() == {
        name, "runs/answers.run.json", *(f"{name}.parts/{n:08d}.jsonl" for n in range(3))
    }  # fmt: skip
    with ResultFile(path, {"seed": 0}) as answers:
        storage.write(f"{name}.parts/00000003.jsonl", b'{"question_id": "u"}\n')
        with pytest.raises(ResultFileError, match=rf"^{path}: another process is writing it"):
            answers.append({"question_id": "t"})
    assert storage.read(f"{name}.parts/00000003.jsonl") == b'{"question_id": "u"}\n'


@pytest.mark.parametrize("kind", UNHEARD)
def test_a_precondition_that_ones_own_writing_broke_is_no_others(
    storage: Storage, kind: str
) -> None:
    FAULTS.rules = [Rule(kind, "POST", "ifGenerationMatch=0", times=2)]
    write_new(f"{BUCKET}/part", b"mine")
    assert FAULTS.injected[kind] == 2
    assert storage.read("part") == b"mine"
    with pytest.raises(FileExistsError, match=f"^{BUCKET}/part: "):
        write_new(f"{BUCKET}/part", b"somebody else's")
    assert storage.read("part") == b"mine"


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_is_replaced_whole(storage: Storage, kind: str) -> None:
    folder = f"{BUCKET}/models/tiny"
    for content in (b"one", b"two"):
        with whole_folder(folder, last="model.json") as local:
            for name in ("model.json", "parameters", f"of_{content.decode()}"):
                (local / name).write_bytes(content)
        FAULTS.rules = [Rule(kind, "DELETE", times=2), Rule(kind, "POST", times=2)]
    assert FAULTS.injected[kind] == 4
    found = {name: storage.read(name) for name in storage.names()}
    names = ("model.json", "parameters", "of_two")
    assert found == {f"models/tiny/{name}": b"two" for name in names}


def test_trouble_that_stays_is_one_line_in_bounded_time(storage: Storage) -> None:
    storage.write("data/pages.jsonl", b"{}\n")
    said = rf"^{BUCKET}/data/\S*: the bucket can't be used: We encountered an internal error"
    file = f"{BUCKET}/data/pages.jsonl"
    with ResultFile(f"{BUCKET}/data/open.jsonl", {}) as answers:
        FAULTS.rules = [Rule("503", times=10**6)]
        for action in (
            lambda: files_in(f"{BUCKET}/data/x"),
            lambda: list(records.read(file, Document)),
            lambda: list(read_results(file)),
            lambda: ResultFile(file, {}),
            lambda: answers.append({"question_id": "q"}),
            lambda: write_new(file, b""),
            lambda: saved_steps(f"{BUCKET}/data/run"),
            lambda: _write(file, b"x"),
        ):
            waits.clear()
            with pytest.raises(StorageError, match=said):
                action()
            assert sum(waits) < 70, "seconds"
        FAULTS.rules = []


def _write(path: str, content: bytes) -> None:
    with write_whole(path) as local:
        local.write_bytes(content)


def test_a_server_that_says_nothing_is_asked_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.write("there", b"content")
    monkeypatch.setattr(paths, "SILENCE", 0.3)
    monkeypatch.setattr(FAULTS, "slow", 20.0)
    monkeypatch.setattr("fsspec.config.conf", {})
    begun = time.monotonic()
    try:
        forget()
        FAULTS.rules = [Rule("slow", times=2)]
        with local_copy(f"{BUCKET}/there") as local:
            assert local.read_bytes() == b"content"
        FAULTS.rules = [Rule("slow", "POST")]
        write_new(f"{BUCKET}/mine", b"mine")
    finally:
        forget()
    assert FAULTS.injected["slow"] == 3
    assert storage.read("mine") == b"mine"
    assert time.monotonic() - begun < 15


def forget() -> None:
    """Lets the client be made anew, with other settings."""
    paths._limit_silence.cache_clear()
    gcsfs.GCSFileSystem.clear_instance_cache()
    backend.fsspec_backend._get_filesystem.cache_clear()


def test_a_missing_file_is_told_from_one_that_can_t_be_asked_for(storage: Storage) -> None:
    storage.write("there", b"x")
    FAULTS.rules = [Rule("503", times=10**6)]
    with pytest.raises(StorageError, match="can't be used"), local_copy(f"{BUCKET}/there"):
        pass
    FAULTS.rules = []
    with pytest.raises(FileNotFoundError), local_copy(f"{BUCKET}/nowhere"):
        pass
    assert epath.Path(f"{BUCKET}/there").exists()
