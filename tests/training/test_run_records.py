"""What a run writes for people: metrics, progress, batches on their way."""

import contextlib
import fcntl
import io
import itertools
import json
import os
import resource
import struct
import subprocess
import sys
import termios
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny_learner as tiny
from etils import epath
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from gophercite.monitoring.metrics import MetricsWriter, read_metrics
from gophercite.monitoring.progress import Progress, duration
from gophercite.training.feed import Feed, process_share, put
from gophercite.training.run_folder import report


def test_metrics_past_the_restored_step_and_torn_lines_are_dropped(tmp_path):
    writer = MetricsWriter(tmp_path, 0)
    for step in (2, 4, 6):
        writer.write(step, "train", {"loss/total": step / 2})
        writer.write(step, "held_out", {"eval/held_out/loss": float("nan")})
    writer.close()
    path = tmp_path / "metrics.jsonl"
    odd = b'[1]\n{"split": "train"}\n{"step": "6", "split": "train"}\n\xff\n' + b"[" * 10**5 + b"\n"
    path.write_bytes(path.read_bytes() + odd + b'{"step": 6, "spl')  # a kill in a line's middle

    MetricsWriter(tmp_path, 4, keep_evaluation=False).close()
    assert read_metrics(tmp_path) == [
        {"step": 2, "split": "train", "loss/total": 1.0},
        {"step": 2, "split": "held_out", "eval/held_out/loss": None},
        {"step": 4, "split": "train", "loss/total": 2.0},
    ]


@pytest.mark.parametrize("resumed_from", [0, 2])
def test_tensorboard_shows_each_step_once_after_a_kill(tmp_path, resumed_from):
    for number, begin in enumerate((0, resumed_from)):
        writer = MetricsWriter(tmp_path, begin)
        for step in range(begin + 1 if begin else 0, 5):
            writer.write(step, "train", {"loss/total": float(step)})
        writer.close()
        (written,) = tmp_path.glob("events.out.*")  # named by the second, but in the order of names
        written.rename(tmp_path / f"events.{number}.tfevents")
    shown = EventAccumulator(str(tmp_path)).Reload().Scalars("loss/total")
    assert [event.step for event in shown] == list(range(5))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(stream: io.StringIO) -> str:
    clock = itertools.count(0, 5)
    progress = Progress(stream, 100, clock=lambda: next(clock))
    progress.step(10, {"total": 2.5})
    progress.step(20, {"total": 1.25})
    progress.note("step 20 · held_out · loss 1.5")
    return stream.getvalue()


def test_progress_renews_its_line_on_a_terminal_and_adds_lines_elsewhere():
    assert show(io.StringIO()) == (
        "step 10/100 · total 2.5\n"
        "step 20/100 · total 1.25 · 2.00 steps/s · 40 s left\n"
        "step 20 · held_out · loss 1.5\n"
    )
    assert show(Terminal()).count("\n") == 2
    assert "\r" in show(Terminal())


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (62, "step 20/100 · total 1.25 · 2.00 steps/s · 40 s left"),
        (63, "step 20/100 · total 1.25 · rate 0.5 · 2.00 steps/s · 40 s left"),
        (30, "step 20/100 · 2.00 steps/s · "),
        (0, "step 20/100 · total 1.25 · rate 0.5 · 2.00 steps/s · 40 s left"),
    ],
)
def test_what_is_shown_on_a_terminal_is_one_line(columns, shown):
    """One that is wrapped is never cleared whole."""
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    clock = itertools.count(0, 5)
    with os.fdopen(writer, "w") as stream:
        progress = Progress(stream, 100, clock=lambda: next(clock))
        for step in (10, 20):
            progress.step(step, {"total": 25 / step, "rate": 0.5})
    written = b""
    # A terminal's output ends with an error.
    with os.fdopen(reader, "rb", buffering=0) as screen, contextlib.suppress(OSError):
        while part := screen.read(1000):
            written += part
    assert written.decode().split("\x1b[2K")[-1] == shown


@pytest.mark.parametrize(
    ("seconds", "text"), [(45.4, "45 s"), (723, "12 min 03 s"), (11_220, "3 h 07 min")]
)
def test_durations_are_in_words(seconds, text):
    assert duration(seconds) == text


def test_a_feed_gives_the_batches_in_order_and_its_producer_s_error():
    def broken():
        yield from (tiny.batch(number) for number in range(3))
        raise OSError("the disk is gone")

    feed = Feed(broken(), tiny.partitioner())
    for number in range(3):
        np.testing.assert_array_equal(next(feed)["tokens"], tiny.batch(number)["tokens"])
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            next(feed)
    feed.close()
    assert feed.take_wait() >= 0
    assert feed.take_wait() == 0


def test_a_closed_feed_leaves_an_endless_producer():
    feed = Feed(tiny.batches()(0), tiny.partitioner())
    next(feed)
    feed.close()
    assert not feed._thread.is_alive()


def test_rows_are_cut_over_the_data_axes_alone():
    where = tiny.partitioner(data=2, fsdp=2, model=2)
    assert process_share(where) == (0, 1)
    tokens = put(where, tiny.batch(0))["tokens"]
    assert tokens.sharding.shard_shape(tokens.shape) == (tiny.ROWS // 4, tiny.LENGTH)
    with pytest.raises(
        ValueError, match="a batch of 7 rows can't be divided evenly among the 8 devices"
    ):
        put(tiny.partitioner(fsdp=8), jax.tree.map(lambda x: x[:7], tiny.batch(0)))


def test_metrics_of_other_kinds_are_left_out(tmp_path):
    MetricsWriter(tmp_path, 0).close()
    odd = [
        {"step": True, "split": "train"},
        {"step": 1, "split": ["train"]},
        {"step": 1, "split": "train", "loss/total": "0.5"},
        {"step": 1, "split": "train", "loss/total": [0.5]},
        {"step": 1, "split": "train", "loss/total": False},
    ]
    good = [{"step": 1, "split": "train", "loss/total": 1, "loss/other": None}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in odd + good))
    assert read_metrics(tmp_path) == good


def test_the_profile_of_the_step_that_a_run_resumes_from_stays(tmp_path):
    """It was measured during the step, which is not run again; evaluations may be."""
    writer = MetricsWriter(tmp_path, 0)
    for split in ("profile", "train", "held_out"):
        writer.write(4, split, {"time/phase/idle": 0.5})
    writer.close()
    MetricsWriter(tmp_path, 4, keep_evaluation=False).close()
    assert [line["split"] for line in read_metrics(tmp_path)] == ["profile", "train"]


FULL = """
import resource, sys
from gophercite.monitoring.metrics import MetricsWriter
writer = MetricsWriter(sys.argv[1], 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, -1))
try:
    for step in range(2000):
        writer.write(step, "train", {"loss/total": 1.0})
        if step % 50 == 0 and sys.argv[2] == "flush":
            writer.flush()
except OSError as error:
    print(error.filename, error.strerror)
"""


@pytest.mark.parametrize("flush", ["flush", "buffer"])
def test_a_full_disk_ends_a_run_with_the_name_of_what_could_not_be_written(tmp_path, flush):
    """No disk is full here, but a file that may not grow fails in the same places."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path, flush],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout == f"{tmp_path} File too large\n", done.stderr


def test_metrics_that_could_be_written_only_in_part_are_there_once(tmp_path):
    """No line twice, and none in pieces, once there is room."""
    path, limits = tmp_path / "metrics.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = MetricsWriter(tmp_path, 0)
    for step in range(3):
        writer.write(step, "train", {})
        writer.write(step, "held_out_" + "x" * 5000, {})  # TensorBoard gets no part of it
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, limits[1]))
        with pytest.raises(OSError, match="File too large"):
            writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.stat().st_size > 10_000  # two steps whole, and a third in part
    writer.write(3, "train", {})
    writer.close()
    assert [json.loads(line)["step"] for line in path.open()] == [0, 0, 1, 1, 2, 2, 3]


def test_a_report_shows_the_newest_answers_and_no_copies(tmp_path):
    MetricsWriter(tmp_path, 0).close()
    answers = tmp_path / "samples"
    answers.mkdir()
    for name in ("step_8", "step_12", "step_16 (1)", "step_old"):
        (answers / f"{name}.md").write_text(f"answers of {name}: Zürich\n", "utf-8")
    text = report(epath.Path(tmp_path), ["ended"], None)
    assert text.endswith("## Sample answers\n\nanswers of step_12: Zürich\n")
