"""A folder on a disk is replaced as a whole, or is what it was."""

import ctypes
import pathlib
import shutil
import stat
import types

import pytest

from gophercite.storage import whole_folder


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with an old file; nothing else is beside it."""
    (tmp_path / "disk" / "model").mkdir(parents=True)
    (tmp_path / "disk" / "model" / "old").write_text("old")
    return tmp_path / "disk" / "model"


def replace(folder: pathlib.Path) -> None:
    with whole_folder(folder) as unfinished:
        (unfinished / "new").write_text("new")


def files(folder: pathlib.Path) -> list[str]:
    """All files, with hidden ones."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if not p.is_dir())


def test_the_folder_behind_a_link_is_replaced(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    link, empty = tmp_path / "link", tmp_path / "empty"
    link.symlink_to(folder)
    empty.symlink_to(tmp_path / "disk" / "later")
    for each in (link, empty):
        replace(each)
        assert each.is_symlink()
    assert files(tmp_path / "disk") == ["later/new", "model/new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "empty", "link"]


def test_a_folder_is_exchanged_in_one_step(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a process that is killed at any moment leaves a folder."""

    def killed(self: pathlib.Path, target: pathlib.Path) -> None:
        raise AssertionError(f"a kill now would leave no folder: {self} became {target}")

    folder.chmod(0o750)
    monkeypatch.setattr(pathlib.Path, "rename", killed)
    replace(folder)
    assert files(folder.parent) == ["model/new"]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o750


def test_what_a_killed_process_left_is_in_no_other_s_way(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers' processes all have the same few ids."""
    left = []

    def killed(path: pathlib.Path, ignore_errors: bool) -> None:
        left.append(path)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        replace(folder)
    assert left[0].name.startswith(".")
    assert files(left[0]) == ["old"]
    replace(folder)
    assert files(folder) == ["new"]


def test_a_file_is_not_replaced_by_a_folder(folder: pathlib.Path) -> None:
    with pytest.raises(OSError, match=r"old: can't be created: Not a directory"):
        replace(folder / "old")
    assert files(folder.parent) == ["model/old"]


@pytest.mark.parametrize(
    "library", [object(), types.SimpleNamespace(renameat2=lambda *_: -1)], ids=["none", "refused"]
)
@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_without_such_a_step_an_interruption_between_the_renames_leaves_a_folder(
    after: int,
    error: type[BaseException],
    library: object,
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rename, done = pathlib.Path.rename, []

    def interrupted(self: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
        result = rename(self, target)
        done.append(target)
        if len(done) == after:
            raise error
        return result

    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(pathlib.Path, "rename", interrupted)
    with pytest.raises(error):
        replace(folder)
    assert files(folder.parent) == [("model/old", "model/new")[after - 1]]
