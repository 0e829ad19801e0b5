"""Imports of large libraries: nothing is printed, and nobody looks for garbage."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from gophercite import importing, interruption


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    """Each test begins with objects that none has left alone, and with the search for garbage."""
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    gc.unfreeze()
    gc.enable()
    gc.set_threshold(700, 10, 10)
    yield
    gc.freeze()
    gc.set_threshold(*threshold)
    (gc.enable if enabled else gc.disable)()


@pytest.mark.parametrize("first", [True, False])
def test_garbage_is_not_looked_for_and_what_stays_is_left_alone(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if first:
        for library in ("jax", "tensorflow"):
            monkeypatch.delitem(sys.modules, library, raising=False)
    with importing.libraries():
        assert not gc.isenabled()
        made = [[] for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0 or first
    assert gc.get_threshold()[0] == 700, "for training, as often as before"
    assert any(each is made for each in gc.get_objects()) != first


def test_it_ends_so_after_an_error_and_stays_off_where_it_was() -> None:
    with pytest.raises(ImportError), importing.libraries():
        raise ImportError("no such library")
    assert gc.isenabled()
    gc.disable()
    with importing.libraries():
        pass
    assert not gc.isenabled()


def test_what_libraries_write_is_not_seen_and_errors_later_are(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with importing.libraries():
        os.write(2, b"no GPU is here")
    os.write(2, b"an error")
    assert capfd.readouterr().err == "an error"


def test_it_works_where_stderr_is_closed() -> None:
    """As after `2>&-` in a shell."""
    program = """
import os
os.close(2)
from gophercite import importing
with importing.libraries():
    pass
print("done")
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, b"done\n")


def test_a_command_that_is_done_looks_for_no_garbage() -> None:
    interruption.over([])
    assert gc.get_freeze_count() > 0
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import gc, sys\nfrom gophercite import __main__\nsys.argv[1:] = ['info', 'nowhere']\n"
            "status = __main__.main()\nprint(status, gc.get_threshold()[0], gc.get_freeze_count())",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    status, threshold, frozen = map(int, done.stdout.split())
    assert (status, threshold) == (1, 400_000)
    assert frozen > 1000
