"""Documents point at what exists."""

import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
FOLDERS = "launch|benchmarks|gin_configs|gophercite|data_pipelines"
FILE = re.compile(rf"(?<![\w/.])((?:{FOLDERS})/[\w/.]+)")


@functools.cache
def anchors(page: pathlib.Path) -> set[str]:
    """The names that GitHub gives a page's headings."""
    found: set[str] = set()
    for heading in HEADING.findall(BLOCK.sub("", page.read_text())):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        again = sum(each == name or re.fullmatch(rf"{re.escape(name)}-\d+", each) is not None
                    for each in found)  # fmt: skip
        found.add(f"{name}-{again}" if again else name)
    return found


def name_of(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_files_exist(page: pathlib.Path) -> None:
    text = page.read_text()
    for target, anchor in LINK.findall(BLOCK.sub("", text)):
        if "://" in target:
            continue
        aim = page.parent / target if target else page
        assert aim.exists(), f"{name_of(page)} links to {target}"
        if anchor and aim.suffix == ".md":
            assert anchor in anchors(aim), f"{name_of(page)} links to {target}#{anchor}"
    for file in FILE.findall(text):
        assert (ROOT / file.rstrip(".")).exists(), f"{name_of(page)} names {file}"


@pytest.mark.parametrize("page", PAGES[1:], ids=name_of)
def test_every_page_is_in_the_index(page: pathlib.Path) -> None:
    """Of its folder: docs/index.md, or the page that a folder of pages is named after."""
    docs = ROOT / "docs"
    index = docs / "index.md" if page.parent == docs else page.parent.with_suffix(".md")
    if page != index:
        assert f"({page.relative_to(index.parent)})" in index.read_text()
