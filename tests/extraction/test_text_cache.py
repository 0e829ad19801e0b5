"""Texts that are kept between calls: only what is right, of the user's own, and not too much."""

import concurrent.futures
import json
import os
import pathlib
import stat
import subprocess

import pytest
from pages import HTML, pdf, words_at

from gophercite import child_processes, cli
from gophercite.extraction import text_cache
from gophercite.extraction.extractor import Extractor
from gophercite.extraction.text import Budget, PageText, TextError
from gophercite.extraction.text_cache import TextCache

PAGE = PageText("Title é", "One.\n\nTwo.", True, (0, 6))
GOOD = pdf(words_at("The lighthouse was built in 1874."))


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "cache/texts"


def files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def test_what_was_kept_comes_back(folder: pathlib.Path) -> None:
    cache = TextCache(folder)
    key = cache.key(b"bytes", "text/html", "full")
    assert cache.get(key) is None
    cache.put(key, PAGE)
    assert cache.get(key) == TextCache(folder).get(key) == PAGE
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in files(folder)] == [0o600]


def test_another_page_another_mode_and_another_parser_are_another_text(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = TextCache(folder)
    keys = {cache.key(b"a"), cache.key(b"b"), cache.key(b"a", "full"), cache.key(b"a", 1, 2)}
    monkeypatch.setattr(text_cache, "EXTRACTION_VERSION", 10**6)
    keys.add(cache.key(b"a"))
    monkeypatch.setattr(text_cache, "_versions", lambda: ("9.9",))
    keys.add(cache.key(b"a"))
    assert len(keys) == 6


def test_the_second_time_nothing_is_read(folder: pathlib.Path) -> None:
    with Extractor("full", cache=TextCache(folder)) as extractor:
        first = [
            extractor.page_text(GOOD, "application/pdf"),
            extractor.page_text(HTML.encode(), "text/html"),
        ]
    assert len(files(folder)) == 2
    with Extractor("full", cache=TextCache(folder)) as extractor:
        again = [
            extractor.page_text(GOOD, "application/pdf"),
            extractor.page_text(HTML.encode(), "text/html"),
        ]
        assert extractor._worker is None  # no process was needed
    assert again == first
    assert first[0].page_starts == (0,)
    with Extractor("article", cache=TextCache(folder)) as extractor:
        assert extractor.page_text(HTML.encode(), "text/html") != first[1]
    small = Extractor(cache=TextCache(folder), budget=Budget(content_bytes=10))
    with small, pytest.raises(TextError, match="at most 10 are allowed"):
        small.page_text(GOOD, "application/pdf")


def test_only_whole_pages_and_no_failures_are_kept(folder: pathlib.Path) -> None:
    two = pdf(words_at("One."), words_at("Two."))
    with Extractor(cache=TextCache(folder), budget=Budget(pages=1)) as extractor:
        assert not extractor.page_text(two, "application/pdf").is_whole
        with pytest.raises(TextError):
            extractor.page_text(b"x", "application/pdf")
    assert files(folder) == []


def test_what_is_damaged_is_not_believed(folder: pathlib.Path) -> None:
    cache = TextCache(folder)
    key, other = cache.key(b"a"), cache.key(b"b")
    cache.put(key, PAGE)
    (path,) = files(folder)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        path.write_bytes(bytes(damaged))
        assert cache.get(key) is None, place
    for content in (b"", whole[:-1], whole + b" ", b"\n", b"[" * 10_000):
        path.write_bytes(content)
        assert cache.get(key) is None
    # The text of one page is not that of another.
    (folder / other).write_bytes(whole)
    assert cache.get(other) is None
    cache.put(key, PAGE)
    assert cache.get(key) == PAGE


def test_links_and_pipes_are_not_followed(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    cache = TextCache(folder)
    key = cache.key(b"a")
    cache.put(key, PAGE)
    (folder / key).rename(tmp_path / "elsewhere")
    (folder / key).symlink_to(tmp_path / "elsewhere")
    assert cache.get(key) is None
    (folder / key).unlink()
    os.mkfifo(folder / key)
    assert cache.get(key) is None


def test_a_folder_that_others_may_write_is_closed_to_them(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    cache = TextCache(folder)
    cache.put(cache.key(b"a"), PAGE)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_of_somebody_else_or_none_at_all_is_not_used(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    for place in ("file", "link", "file/below"):
        cache = TextCache(tmp_path / place)
        cache.put(cache.key(b"a"), PAGE)
        assert cache.get(cache.key(b"a")) is None
    assert files(tmp_path / "real") == []
    cache = TextCache(tmp_path / "real")
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    cache.put(cache.key(b"a"), PAGE)
    assert files(tmp_path / "real") == []


def test_the_texts_that_were_used_last_are_kept(folder: pathlib.Path) -> None:
    cache = TextCache(folder, limit=100_000)
    page = PageText("", "x" * 9_000)
    keys = [cache.key(bytes([number])) for number in range(30)]
    for age, key in enumerate(keys):
        cache.put(key, page)
        if (folder / key).exists():
            os.utime(folder / key, (age, age))
        cache.get(keys[0])  # which is used all the time
    assert sum(path.stat().st_size for path in files(folder)) <= 110_000
    assert cache.get(keys[0]) == page
    assert cache.get(keys[1]) is None
    assert cache.get(keys[-1]) == page
    huge = cache.key(b"huge")
    cache.put(huge, PageText("", "x" * 20_000))
    assert cache.get(huge) is None


def test_what_a_killed_process_left_goes(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True)
    for name, age in (("unfinished-old", 10_000), ("unfinished-new", 10)):
        (folder / name).write_text("half")
        then = (folder / name).stat().st_mtime - age
        os.utime(folder / name, (then, then))
    cache = TextCache(folder)
    cache.put(cache.key(b"a"), PAGE)
    names = [path.name for path in files(folder)]
    assert "unfinished-new" in names
    assert "unfinished-old" not in names


def hammer(folder: str) -> None:
    """One of several processes that write, read and drop the same few texts."""
    cache = TextCache(folder, limit=60_000)
    for turn in range(300):
        number = (turn * 7 + os.getpid()) % 20
        page = PageText(str(number), str(number) * 5_000)
        key = cache.key(bytes([number]))
        cache.put(key, page)
        assert cache.get(key) in (page, None)


def test_processes_share_a_folder(folder: pathlib.Path) -> None:
    tests = [str(each) for each in pathlib.Path(__file__).parents[:2]]
    program = f"import sys; sys.path[:0] = {tests!r}\n"
    program += "import test_text_cache; test_text_cache.hammer(sys.argv[1])"
    command = [os.sys.executable, "-c", program, str(folder)]  # type: ignore[attr-defined]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        runs = list(
            pool.map(
                lambda _: subprocess.run(
                    command, capture_output=True, env=child_processes.environment()
                ),
                range(3),
            )
        )
    assert [run.returncode for run in runs] == [0, 0, 0], runs[0].stderr
    cache = TextCache(folder, limit=60_000)
    assert all(len(path.name) == 64 for path in files(folder))
    for number in range(20):
        found = cache.get(cache.key(bytes([number])))
        assert found is None or found.text == str(number) * 5_000


def test_the_command_keeps_texts_unless_told_not_to(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (tmp_path / "page.pdf").write_bytes(GOOD)
    ask = ["ask", "When was the lighthouse built?", "--documents", str(tmp_path / "page.pdf")]
    folder = tmp_path / "home/gophercite/texts"
    assert cli.main([*ask, "--extractive", "--json", "--no-text-cache"]) == 0
    without = json.loads(capsys.readouterr().out)
    assert files(folder) == []
    for _ in range(2):
        assert cli.main([*ask, "--extractive", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == without
        assert len(files(folder)) == 1
    assert without["answer"][0]["pages"] == [1]
