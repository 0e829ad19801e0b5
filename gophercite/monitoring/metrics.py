"""A run's metrics: one JSON line per step and split, and the same values for TensorBoard."""

import contextlib
import json
import math
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from gophercite.storage import is_remote, naming_storage, write_file
from gophercite.storage.paths import upload

# Splits of lines that are no evaluation set's.
TRAIN = "train"
PROFILE = "profile"  # a step's phases, measured during the step
SAMPLES = "samples"  # rates of sample answers


def read_metrics(folder: epath.PathLike) -> list[dict[str, Any]]:
    """The lines of a run's `metrics.jsonl`, in order: whole `step`, `split`, numbers and nulls.

    Other lines are left out, such as one that was truncated by a kill.
    """
    path = epath.Path(folder) / "metrics.jsonl"
    with naming_storage(path):
        written = path.read_bytes() if path.exists() else b""
    lines = []
    for text in written.split(b"\n"):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if _is_of_metrics(line):
            lines.append(line)
    return lines


def _is_of_metrics(line: object) -> bool:
    if not isinstance(line, dict):
        return False
    values = [value for name, value in line.items() if name != "split"]
    known = isinstance(line.get("split"), str) and type(line.get("step")) is int
    return known and all(value is None or type(value) in (int, float) for value in values)


class MetricsWriter:
    """Writes `metrics.jsonl` and TensorBoard's event file.

    Lines are `{"step", "split", name: value, …}`; a non-finite value is null. A resumed run drops
    the lines after the step it resumes from, so that its file equals that of a run that was never
    stopped, except for times.
    """

    def __init__(
        self,
        folder: epath.PathLike,
        step: int,
        *,
        keep_evaluation: bool = True,
        enabled: bool = True,
    ):
        """Opens the files of a run at a given step.

        Args:
          folder: the run's folder.
          step: number of updates so far; later lines are dropped.
          keep_evaluation: whether to keep evaluations of `step` itself; False if it will be
            evaluated (again).
          enabled: False in all processes of a run except the first; then nothing is written.
        """
        self._enabled = enabled
        if not enabled:
            return
        # half a second, which inference saves
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        self._path = epath.Path(folder) / "metrics.jsonl"
        self._local = not is_remote(self._path)
        kept = [
            line
            for line in read_metrics(folder)
            if line["step"] < step
            or (line["step"] == step and (line["split"] in (TRAIN, PROFILE) or keep_evaluation))
        ]
        self._lines = [json.dumps(line) + "\n" for line in kept]
        self._written = self._size = 0  # of the lines, and in bytes, of what is in the file
        self._rewrite()
        # Event files for a bucket are written to a disk and copied entirely at each flush.
        self._events = None if self._local else tempfile.TemporaryDirectory(prefix="gophercite-")
        events = os.fspath(folder) if self._events is None else self._events.name
        # Not tensorboardX's SummaryWriter: it writes in a thread, which a full disk ends, and then
        # the next metrics wait for ever.
        with _naming(folder):
            self._tensorboard = EventsWriter(os.path.join(events, "events"))
            # TensorBoard drops what earlier files hold from this step on.
            start = SessionLog(status=SessionLog.START)
            self._tensorboard.write_event(
                Event(step=step + 1 if step else 0, wall_time=time.time(), session_log=start)
            )

    def write(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Adds one line.

        Args:
          step: number of updates so far.
          split: "train" or the evaluation set's name.
          values: by metric name.
        """
        if not self._enabled:
            return
        line = {name: value if math.isfinite(value) else None for name, value in values.items()}
        self._lines.append(json.dumps({"step": step, "split": split, **line}) + "\n")
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        with _naming(self._path.parent):
            for name, value in values.items():
                event = Event(step=step, wall_time=time.time(), summary=scalar(name, value))
                self._tensorboard.write_event(event)

    def flush(self) -> None:
        """Flushes everything to disk; a step's metrics must be written before its checkpoint."""
        if not self._enabled:
            return
        with _naming(self._path.parent):
            self._tensorboard.flush()
        if self._events is not None:  # object stores can't append
            for events in pathlib.Path(self._events.name).iterdir():
                upload(events, self._path.parent / events.name)
            self._rewrite()
            return
        added = "".join(self._lines[self._written :]).encode()
        with _naming(self._path), open(self._path, "ab") as file:
            if file.tell() > self._size:  # what an earlier flush wrote before it failed
                file.truncate(self._size)
            file.write(added)
            file.flush()
            os.fsync(file.fileno())
        self._written = len(self._lines)
        self._size += len(added)

    def close(self) -> None:
        """Flushes and closes."""
        self.flush()
        if self._enabled:
            self._tensorboard.close()
            if self._events is not None:
                self._events.cleanup()

    def _rewrite(self) -> None:
        content = "".join(self._lines).encode()
        write_file(self._path, content)
        self._written, self._size = len(self._lines), len(content)


@contextlib.contextmanager
def _naming(path: epath.PathLike) -> Iterator[None]:
    """Adds the path to the error of a full disk, which names none."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
