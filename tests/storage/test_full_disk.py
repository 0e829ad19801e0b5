"""A full disk is told of with the file's name."""

import errno

import pytest

from gophercite.storage import write_whole


def test_a_full_disk_names_the_file(tmp_path):
    path = tmp_path / "file"
    with (
        pytest.raises(OSError, match="No space left on device") as found,
        write_whole(path),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert found.value.filename == str(path)
    assert not list(tmp_path.iterdir())


def test_an_error_about_another_file_stays(tmp_path):
    with pytest.raises(FileNotFoundError) as found, write_whole(tmp_path / "file"):
        (tmp_path / "missing").read_bytes()
    assert found.value.filename == str(tmp_path / "missing")
