"""A folder on a disk is replaced as a whole, or is what it was."""

import pathlib

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


@pytest.mark.parametrize("after", [1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interruption_between_the_renames_leaves_a_folder(
    after: int, error: type[BaseException], folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, done = pathlib.Path.rename, []

    def interrupted(self: pathlib.Path, target: pathlib.Path) -> pathlib.Path:
        result = rename(self, target)
        done.append(target)
        if len(done) == after:
            raise error
        return result

    monkeypatch.setattr(pathlib.Path, "rename", interrupted)
    with pytest.raises(error):
        replace(folder)
    assert files(folder.parent) == [("model/old", "model/new")[after - 1]]
