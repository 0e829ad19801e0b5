"""Extracts text from untrusted pages: in a separate process, with limits on time and memory.

Some pages make parsers loop, use gigabytes or crash. So the parsers run in a worker process, which
is killed when a page takes too much time or memory, and restarted for the next page. The caller
gets an error that says so.
"""

import contextlib
import dataclasses
import json
import os
import struct
import subprocess
import sys
import threading
from typing import IO, Any

from gophercite import child_processes
from gophercite.extraction.text import Budget, Mode, PageText, TextError, page_from_json
from gophercite.extraction.text_cache import TextCache

# Each message on the pipe is its length, then its content: a JSON header and, to the worker, the
# page's bytes. The worker sends back only strings: a page that takes it over can only lie about its
# own text.
_LENGTH = struct.Struct(">Q")
_ROOM_FOR_ESCAPES = 16  # bytes that JSON may need for a character, with some to spare
_START_SECONDS = 60.0
_MODULE = "gophercite.extraction.extractor"


class Extractor:
    """Does what `gophercite.extraction.text.page_text` does, for untrusted pages.

    Threads may share it and then take turns; for parallel work use several. Close it, or use it in
    a `with`.

    Args:
      mode: how HTML is read, as for `gophercite.extraction.text.page_text`.
      budget: what one page may cost.
      cache: where texts are kept, so that no page is read twice; None keeps none.

    Attributes:
      budget: as given.
    """

    def __init__(
        self,
        mode: Mode = "article",
        budget: Budget | None = None,
        *,
        cache: TextCache | None = None,
    ) -> None:
        self._mode = mode
        self._cache = cache
        self.budget = budget or Budget()
        self._lock = threading.Lock()
        self._worker: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Extractor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker."""
        with self._lock:
            self._end_worker()

    def page_text(self, content: bytes, content_type: str = "") -> PageText:
        """Returns the title and text of a page.

        Raises:
          TextError: when the page can't be read, or costs more than the budget.
        """
        if len(content) > self.budget.content_bytes:
            limit = self.budget.content_bytes
            raise TextError(f"has {len(content)} bytes, but at most {limit} are allowed")
        if self._cache is None:
            return self._extracted(content, content_type)
        how = (content_type, self._mode, self.budget.characters, self.budget.pages)
        key = self._cache.key(content, *how)
        page = self._cache.get(key)
        if page is None:
            page = self._extracted(content, content_type)
            if page.is_whole:  # otherwise there may be more of it when the machine is less busy
                self._cache.put(key, page)
        return page

    def _extracted(self, content: bytes, content_type: str) -> PageText:
        header = {"content_type": content_type, "mode": self._mode}
        with self._lock:
            worker = self._running_worker()
            is_late = threading.Event()
            timer = threading.Timer(self.budget.seconds, _end, (worker, is_late))
            timer.start()
            try:
                answer = self._ask(worker, header, content)
            except (OSError, EOFError, ValueError):
                self._end_worker()
                if is_late.is_set():
                    problem = f"took longer than {self.budget.seconds:g} s"
                else:
                    problem = "made the parser crash or use too much memory"
                raise TextError(problem) from None
            finally:
                timer.cancel()
                timer.join()
            if is_late.is_set():  # just too late: the answer arrived, but the worker is gone
                self._end_worker()
        if "problem" in answer:
            raise TextError(str(answer["problem"]))
        return page_from_json(answer)

    def _ask(
        self, worker: subprocess.Popen[bytes], header: dict[str, str], content: bytes
    ) -> dict[str, Any]:
        assert worker.stdin is not None
        assert worker.stdout is not None
        _send(worker.stdin, json.dumps(header).encode())
        _send(worker.stdin, content)
        longest = self.budget.characters * _ROOM_FOR_ESCAPES + (1 << 20)
        answer = json.loads(_receive(worker.stdout, longest))
        if not isinstance(answer, dict) or not {"problem", "text"} & answer.keys():
            raise ValueError("the worker's answer has neither a text nor a problem")
        return answer

    def _running_worker(self) -> subprocess.Popen[bytes]:
        if self._worker is None or self._worker.poll() is not None:
            self._end_worker()
            self._worker = subprocess.Popen(
                child_processes.python_command(
                    _MODULE, json.dumps(dataclasses.asdict(self.budget))
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=child_processes.FOLDER,
                # A process that reads untrusted files gets none of the caller's keys.
                env={"PATH": os.environ.get("PATH", "")},
            )
            timer = threading.Timer(_START_SECONDS, self._worker.kill)
            timer.start()
            try:
                assert self._worker.stdout is not None
                _receive(self._worker.stdout, 1)
            except (OSError, EOFError):
                raise TextError(
                    "can't be read: the process for reading it does not start"
                ) from None
            finally:
                timer.cancel()
        return self._worker

    def _end_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker.communicate()
            self._worker = None


def _end(worker: subprocess.Popen[bytes], is_late: threading.Event) -> None:
    is_late.set()
    worker.kill()


def _send(pipe: IO[bytes], content: bytes) -> None:
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def _receive(pipe: IO[bytes], longest: int) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(pipe, _LENGTH.size))
    if length > longest:
        raise ValueError(f"{length} bytes are announced, at most {longest} expected")
    return _exactly(pipe, length)


def _exactly(pipe: IO[bytes], length: int) -> bytes:
    content = pipe.read(length)
    if len(content) < length:
        raise EOFError
    return content


def main(budget_as_json: str) -> None:
    """Runs the worker: answers requests for pages until there are no more.

    Args:
      budget_as_json: the fields of a `Budget`.
    """
    import resource
    import signal

    from gophercite.extraction import text

    budget = Budget(**json.loads(budget_as_json))
    pages, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # a parser that prints must not spoil the answers
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = (
        budget.memory_bytes if hard == resource.RLIM_INFINITY else min(budget.memory_bytes, hard)
    )
    with contextlib.suppress(ValueError, OSError):  # macOS can't
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    _send(answers, b"!")
    while True:
        try:
            header = json.loads(_receive(pages, 1 << 20))
        except EOFError:
            return
        content = _receive(pages, budget.content_bytes)
        # If the caller is gone, nothing else stops a page that never ends.
        signal.alarm(int(budget.seconds) + 5)
        answer: dict[str, Any]
        try:
            page = text.page_text(
                content, header["content_type"], mode=header["mode"], budget=budget
            )
            answer = dataclasses.asdict(page)
        except text.TextError as error:
            answer = {"problem": str(error)}
        except Exception as error:
            answer = {"problem": f"made the parser fail: {type(error).__name__}"}
        signal.alarm(0)
        _send(answers, json.dumps(answer).encode())
