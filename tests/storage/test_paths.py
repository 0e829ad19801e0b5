"""Files are written completely or not at all, and addresses of other kinds are refused."""

import os
import pathlib
import re
import stat
from collections.abc import Callable

import pytest
from etils import epath

from gophercite.cli import main
from gophercite.storage import (
    StorageError,
    files_in,
    local_copy,
    naming_storage,
    open_bytes,
    whole_folder,
    write_file,
    write_whole,
)
from gophercite.storage.result_file import ResultFile, read_results


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_behind_a_link_is_replaced_and_keeps_its_mode(tmp_path: pathlib.Path) -> None:
    (tmp_path / "folder").mkdir()
    file, link = tmp_path / "folder" / "file", tmp_path / "link"
    file.write_text("old")
    file.chmod(0o600)
    link.symlink_to(file)
    write_file(link, "new")
    assert (link.is_symlink(), file.read_text(), mode(file)) == (True, "new", 0o600)
    (tmp_path / "usual").touch()
    write_file(tmp_path / "made", "new")
    assert mode(tmp_path / "made") == mode(tmp_path / "usual")  # as the umask says
    assert names(tmp_path) == ["folder", "link", "made", "usual"]


def test_no_file_beside_the_target_is_touched(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file.partial").symlink_to(tmp_path / "another")
    (tmp_path / "another").write_text("precious")
    with write_whole(tmp_path / "file") as first:
        first.write_text("half of it")
        with write_whole(tmp_path / "file") as second:
            second.write_text("whole")
        assert (tmp_path / "file").read_text() == "whole"
    assert (tmp_path / "file").read_text() == "half of it"
    assert (tmp_path / "another").read_text() == "precious"
    assert names(tmp_path) == ["another", "file", "file.partial"]


def test_what_a_killed_process_left_is_hidden(tmp_path: pathlib.Path) -> None:
    with write_whole(tmp_path / ("n" * 255)) as unfinished:
        unfinished.write_text("")
        assert all(name.startswith(".") for name in names(tmp_path))


def test_only_ordinary_files_are_replaced(tmp_path: pathlib.Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(FileExistsError, match=f"{name}: is not an ordinary file"):
            write_file(tmp_path / name, "")
    with (
        pytest.raises(FileNotFoundError, match=f"'{tmp_path}/missing/file'"),
        write_whole(tmp_path / "missing" / "file"),
    ):
        pass
    assert names(tmp_path) == ["folder", "pipe"]


def enter(opened: Callable[[str], object]) -> Callable[[str], None]:
    def use(address: str) -> None:
        with opened(address):  # type: ignore[attr-defined]
            pass

    return use


@pytest.mark.parametrize("address", ["https://example.com/x", "s3://b/x", "GS://b/x", "a/b://c"])
@pytest.mark.parametrize(
    "use",
    [
        enter(open_bytes),
        enter(local_copy),
        enter(naming_storage),
        enter(write_whole),
        enter(whole_folder),
        enter(lambda address: ResultFile(address, {})),
        lambda address: list(read_results(address)),
        files_in,
        lambda address: write_file(address, ""),
    ],
)
def test_addresses_that_are_not_in_a_bucket_are_refused(
    use: Callable[[str], object], address: str
) -> None:
    with pytest.raises(StorageError, match=f"^{address}: is neither a path on this machine nor gs"):
        use(address)


@pytest.mark.parametrize("scheme", ["http", "https", "ftp", "file"])
def test_no_path_is_an_address_in_the_web(scheme: str) -> None:
    with pytest.raises(StorageError, match=f"^{scheme}://example.com/x: is neither"):
        epath.Path(f"{scheme}://example.com/x")


@pytest.mark.parametrize(
    "command",
    [
        "validate https://example.com/x.jsonl --kind questions",
        "verify https://example.com/x.json",
        "ask q --documents {} --model https://example.com/x",
        "ask q --documents {} --model foo://example.com/x",
    ],
)
def test_commands_name_addresses_that_they_can_t_read(
    command: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.txt").write_text("A page.")
    words = command.format(tmp_path).split()
    assert main(words) == 1
    said = capsys.readouterr().err
    assert re.match(rf"gophercite {words[0]}: (https|foo)://example.com/x", said)
    assert "is neither a path on this machine nor gs://BUCKET/NAME" in said
