"""Pages that hang, crash or swell the parser: the caller goes on. Real pages where there are."""

import gzip
import json
import pathlib
import random
from collections.abc import Iterator

import pytest
from pages import HTML, HTML_IN_FULL, pdf, words_at

from gophercite.extraction.extractor import Extractor
from gophercite.extraction.text import Budget, PageText, TextError

DATA = pathlib.Path(__file__).parents[2] / "../shared/data"  # beside the repository, if at all
GOOD = pdf(words_at("The lighthouse was built in 1874."))


@pytest.fixture(scope="module")
def extractor() -> Iterator[Extractor]:
    with Extractor("full", Budget(seconds=20, content_bytes=1 << 23, memory_bytes=3 << 27)) as it:
        yield it


def test_same_text_as_in_this_process(extractor: Extractor) -> None:
    found = extractor.page_text(HTML.encode(), "text/html; charset=utf-8")
    assert found == PageText("Ormsby – a town", HTML_IN_FULL)
    assert extractor.page_text(GOOD, "application/pdf").text == "The lighthouse was built in 1874."
    assert extractor.page_text("é\ud83d".encode("utf-8", "replace"), "text/plain").text == "é?"


def test_problems_are_those_of_the_page(extractor: Extractor) -> None:
    with pytest.raises(TextError, match="image/png"):
        extractor.page_text(b"x", "image/png")
    with pytest.raises(TextError, match="at most 8388608"):
        extractor.page_text(b"x" * (1 << 24), "text/plain")
    with pytest.raises(TextError, match="can't be read as a PDF"):
        extractor.page_text(b"x", "application/pdf")


def test_a_page_that_takes_too_long_is_ended() -> None:
    endless = pdf(b"BT /F 1 Tf (a) Tj ET " * 200_000)
    with Extractor(budget=Budget(seconds=2)) as extractor:
        with pytest.raises(TextError, match="took longer than 2 s"):
            extractor.page_text(endless, "application/pdf")
        assert extractor.page_text(GOOD, "application/pdf").is_whole


def test_a_page_that_swells_is_ended(extractor: Extractor) -> None:
    bomb = pdf(b" " * (1 << 28))
    with pytest.raises(TextError):
        extractor.page_text(bomb, "application/pdf")
    assert extractor.page_text(GOOD, "application/pdf").is_whole


def test_damaged_pages_never_stop_the_work(extractor: Extractor) -> None:
    generator = random.Random(0)
    read = 0
    problems = set()
    for whole, media in ((GOOD, "application/pdf"), (HTML.encode(), "text/html")):
        for _ in range(150):
            damaged = bytearray(whole)
            for _ in range(generator.randrange(1, 30)):
                at = generator.randrange(len(damaged))
                damaged[at : at + generator.randrange(2)] = generator.randbytes(2)
            try:
                extractor.page_text(bytes(damaged), media)
                read += 1
            except TextError as error:
                problems.add(str(error).partition(":")[0])
    assert read > 150  # all HTML, and some PDFs
    assert problems <= {"can't be read as a PDF"}


@pytest.mark.skipif(not (DATA / "pdf").is_dir(), reason="the PDFs of ../shared/data are not there")
def test_real_pdfs(extractor: Extractor) -> None:
    for path in sorted((DATA / "pdf").glob("*.pdf")):
        if path.stat().st_size < 60_000:
            assert extractor.page_text(path.read_bytes(), "application/pdf").is_whole, path.name


@pytest.mark.skipif(not (DATA / "html").is_dir(), reason="the HTML of ../shared/data is not there")
def test_articles_of_real_pages_can_be_quoted(extractor: Extractor) -> None:
    """Most of the gold text's lines stand in the full text, word for word."""
    with gzip.open(DATA / "html/articles.jsonl.gz", "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line, _ in zip(lines, range(12), strict=False)]
    total = found = 0
    for record in records:
        page = extractor.page_text(record["html"].encode(), "text/html; charset=utf-8")
        text = " ".join(page.text.split())
        wanted = [" ".join(line.split()) for line in record["text"].split("\n") if line.strip()]
        total += len(wanted)
        found += sum(line in text for line in wanted)
    assert found / total > 0.9
