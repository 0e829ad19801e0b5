"""Documents point at what exists."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FOLDERS = "launch|benchmarks|gin_configs|gophercite|data_pipelines"
FILE = re.compile(rf"(?<![\w/.])((?:{FOLDERS})/[\w/.]+)")


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_files_exist(page: pathlib.Path) -> None:
    text = page.read_text()
    for target in LINK.findall(text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"
    for file in FILE.findall(text):
        assert (ROOT / file.rstrip(".")).exists(), f"{name_of(page)} names {file}"


@pytest.mark.parametrize("page", PAGES[1:], ids=name_of)
def test_every_page_is_in_the_index(page: pathlib.Path) -> None:
    """Of its folder: docs/index.md, or the page that a folder of pages is named after."""
    docs = ROOT / "docs"
    index = docs / "index.md" if page.parent == docs else page.parent.with_suffix(".md")
    if page != index:
        assert f"({page.relative_to(index.parent)})" in index.read_text()
