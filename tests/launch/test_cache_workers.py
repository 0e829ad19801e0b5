"""Workers of `cache_task` end with the process that started them, and a lost one is told of."""

import dataclasses
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import cache_task
import cache_workers
import configuration
import pytest

from data_pipelines.cache_writing import Shards

LAUNCH = Path(cache_workers.__file__).parent
# Two workers that have started; in the second case one of them is killed by its own hand.
SCRIPT = """
import os, sys, time
sys.path.insert(0, {launch!r})
import cache_workers
if __name__ == "__main__":
    with cache_workers.pool(2) as pool:
        busy = [pool.submit(time.sleep, 60) for _ in range(2)]
        print(*[each for each in pool._processes], flush=True)
        time.sleep(60)
"""


def is_alive(process):
    try:
        return "zombie" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks into /proc")
def test_workers_end_when_their_parent_is_killed(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(launch=str(LAUNCH)))
    paths = os.pathsep.join([str(LAUNCH), str(LAUNCH.parent)])
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )
    try:
        workers = list(map(int, parent.stdout.readline().split()))
        assert len(workers) == 2
        time.sleep(3)  # until they are at work
        assert all(map(is_alive, workers))
    finally:
        parent.kill()
        parent.wait()
    try:
        until = time.monotonic() + 30
        while any(map(is_alive, workers)) and time.monotonic() < until:
            time.sleep(0.1)
        assert not any(map(is_alive, workers))
    finally:
        for worker in filter(is_alive, workers):
            os.kill(worker, signal.SIGKILL)


def test_a_killed_worker_is_told_of_in_one_line(monkeypatch):
    monkeypatch.setattr(cache_workers, "write", os._exit)
    with cache_workers.pool(1) as pool:
        # The work is the exit status here.
        monkeypatch.setattr(
            pool, "submit", lambda _, work, __, own=pool.submit: own(os._exit, work)
        )
        with pytest.raises(cache_workers.WorkerError, match="a worker was killed, perhaps"):
            list(cache_workers.in_pool(9, [0, 1, 2], pool))
        with pytest.raises(cache_workers.WorkerError, match="fewer --processes"):
            list(cache_workers.in_pool(9, [3], pool))


def test_work_is_received_before_tensorflow_is_imported():
    """A worker imports it in less time than what reads its work would take."""
    shards = dataclasses.asdict(Shards("cached/train", "key", records=20, each=8))
    work = cache_workers.Work(cache_workers.Configuration((), (), ()), "own", "train", shards)
    code = (
        "import pickle, sys; pickle.load(sys.stdin.buffer)\n"
        "assert not {'seqio', 'tensorflow'} & {*sys.modules}"
    )
    paths = os.pathsep.join([str(LAUNCH), str(LAUNCH.parent)])
    received = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps((cache_workers.write, work, 0)),
        env={**os.environ, "PYTHONPATH": paths},
        stderr=subprocess.PIPE,
    )
    assert received.returncode == 0, received.stderr.decode()


def test_ctrl_c_ends_with_one_line(tmp_path, monkeypatch, capsys):
    path = tmp_path / "own.gin"
    path.write_text("")

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(configuration, "inputs", interrupted)
    assert cache_task.main([f"--gin_file={path}", "--output", str(tmp_path)]) == 130
    said = capsys.readouterr().err
    assert said == "cache_task: stopped; the same command goes on where it was\n"
