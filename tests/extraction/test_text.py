"""Bytes to characters to text: character sets, HTML, PDF, plain text."""

import codecs
import contextlib
import encodings.aliases
import gzip
import io
import pathlib
import random
import sqlite3
import tarfile
import time
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import HTML, HTML_IN_FULL, pdf, words_at

from gophercite.documents import Document
from gophercite.extraction.charset import decode
from gophercite.extraction.text import Budget, PageText, TextError, media_type, page_text


@pytest.mark.parametrize(
    ("content", "content_type", "expected"),
    [
        (b"caf\xc3\xa9", "", "café"),
        (b"caf\xe9 \x93x\x94", "", "café “x”"),
        (b"caf\xe9 \x93x\x94", "text/html; charset=ISO-8859-1", "café “x”"),  # as browsers do
        ("café".encode("utf-16-le"), "text/html; charset=utf-16le", "café"),
        (codecs.BOM_UTF8 + "é".encode(), "text/html; charset=latin-1", "é"),
        ("é".encode("utf-16"), "text/html", "é"),
        ("кот".encode("koi8-r"), 'text/html; charset="KOI8-R"', "кот"),
        ("日本".encode("shift_jis"), "text/html;charset=Shift_JIS", "日本"),
        (b'<meta charset="koi8-r">\xcb\xcf\xd4', "text/html", '<meta charset="koi8-r">кот'),
        ('<meta charset="UTF-16">é'.encode(), "text/html", '<meta charset="UTF-16">é'),
        ('<?xml version="1.0" encoding="utf_32-LE"?>é'.encode(), "application/xhtml+xml",
         '<?xml version="1.0" encoding="utf_32-LE"?>é'),
        (b'<meta charset="hex"><p>\xc3\xa9', "text/html", '<meta charset="hex"><p>é'),
        (b"+ADw-x", "text/html; charset=utf-7", "+ADw-x"),
        (b"789c", "text/html; charset=zip", "789c"),
        (b"\\x41", "text/html; charset=unicode_escape", "\\x41"),
        (b"a\xffb", "text/html; charset=utf-8", "a\ufffdb"),
        (b"x", "text/html; charset=no-such-thing", "x"),
        # Labels that browsers know and Python's codecs don't.
        ("שלום".encode("iso8859-8"), "text/html; charset=ISO-8859-8-I", "שלום"),
        ("한국어 똠".encode("cp949"), 'text/html; charset="windows-949"', "한국어 똠"),
        (b"<meta charset=x-gbk>\xd6\xd0", "text/html", "<meta charset=x-gbk>中"),
        (b"caf\x8e", "text/html; charset=x_mac_roman", "café"),
        (b"<meta charset=unicode>\xc3\xa9", "text/html", "<meta charset=unicode>é"),
        (b"caf\xe9", "text/html; charset=visual-rot13", "café"),
    ],
)  # fmt: skip
def test_character_sets(content: bytes, content_type: str, expected: str) -> None:
    assert decode(content, content_type, html=True) == expected


@given(st.binary(), st.text(max_size=20))
def test_any_bytes_are_some_text(content: bytes, charset: str) -> None:
    """And text that can be hashed and stored: no half of a surrogate pair."""
    text = decode(content, f"text/html; charset={charset}", html=True)
    assert text.encode().decode() == text


@given(st.sampled_from(sorted(encodings.aliases.aliases)))
def test_no_name_of_a_codec_is_too_much(name: str) -> None:
    assert isinstance(decode(b"caf\xe9\x00\x9c", f"text/html; charset={name}"), str)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_declared_utf8_comes_back(text: str) -> None:
    assert decode(codecs.BOM_UTF8 + text.encode(), "text/plain; charset=latin-1") == text


def test_full_text_has_infobox_table_and_list() -> None:
    page = page_text(HTML.encode(), "text/html; charset=utf-8", mode="full")
    assert page == PageText("Ormsby – a town", HTML_IN_FULL)


def test_article_has_the_prose() -> None:
    page = page_text(HTML.encode(), "text/html; charset=utf-8")
    assert page.title == "Ormsby – a town"
    assert "The lighthouse was built in 1874 by Anna Vell" in page.text
    assert "alert" not in page.text


@pytest.mark.parametrize("mode", ["article", "full"])
def test_control_characters_do_no_harm(mode: str) -> None:
    page = "".join(f"<p>{chr(i)}x&#{i};y<b hidden>z</b>&#x{i:x};</p>" for i in range(160))
    text = page_text(page.encode(), "text/html; charset=utf-8", mode=mode).text  # type: ignore[arg-type]
    assert "y" in text


@pytest.mark.parametrize("mode", ["article", "full"])
def test_hidden_text_is_not_read(mode: str) -> None:
    text = page_text(HTML.encode(), "text/html", mode=mode).text  # type: ignore[arg-type]
    assert "instructions" not in text
    assert "these" not in text


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("", PageText("", "")),
        ("<!-- only this -->", PageText("", "")),
        ("no markup", PageText("", "no markup")),
        ("<p>a<br>b", PageText("", "a\nb")),
        ("<h1>Head</h1>x\0y", PageText("Head", "Head\n\nxy")),
        ("<meta property='og:title' content='Og'><p>x", PageText("Og", "x")),
        ("<?xml version='1.0' encoding='utf-8'?><html><body>é", PageText("", "é")),
        # HTML 5 may leave out `<html>`, `<head>` and `<body>`, which older parsers open and close
        # by the elements that they know.
        (
            "<title>T</title><meta name=a><style>no</style><main><p>a</p><p hidden>no</p></main>b",
            PageText("T", "a\n\nb"),
        ),
        ("<title>T</title><article>a</article>", PageText("T", "a")),
        ("a&#1;b&#x1f c&#10;d<i hidden>e</i>&#0008;f\x01&#100;", PageText("", "ab c dfd")),
        ("<table><tr><td>a<td><td>b<tr><td>c</table>", PageText("", "a | | b\nc")),
        ("<ul><li>a<ul><li>b</ul><li>c</ul>", PageText("", "- a\n\n- b\n\n- c")),
        ("<dl><dt>Born<dd>1874</dl>", PageText("", "Born\n1874")),
        ("<p>a&nbsp;&#x200b;b&#xD800;", PageText("", "a\xa0\u200bb\ufffd")),
    ],
)
def test_full_text_of_small_pages(page: str, expected: PageText) -> None:
    assert page_text(page.encode(), "text/html", mode="full") == expected


SENTENCE = "The lighthouse was built by Anna Vell, who came with forty workers from the north. "


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Tables of facts: a row is a line.
        ("<tr><td><th>2019<th>2020<tr><th>Sales<td>5<td>", "| 2019 | 2020\nSales | 5 |"),
        (
            "<tr><th>Born<td><div>1 May 1900</div><div>Paris</div>"
            "<tr><th><p>Died</p><td><p>1950<br>Rome</p><tr><th>Age<td>50",
            "Born | 1 May 1900 Paris\nDied | 1950 Rome\nAge | 50",
        ),
        ("<tr><th>By<td><ul><li>Ann<li>Bob</ul><tr><td><p>x<td>y", "By | - Ann - Bob\nx | y"),
        (f"<tr><td>a<td>{SENTENCE * 4}<td><p>{SENTENCE}", f"a | {SENTENCE * 4}| {SENTENCE}"),
        (
            f"<tr><td>1<td>a<td>{SENTENCE}<p>{SENTENCE * 2}<tr><td>2",
            f"1 | a | {SENTENCE}\n\n{SENTENCE * 2}\n\n2",
        ),
        ("<tr><td>1<td><pre>  x = 1\n</pre>", "1 |   x = 1"),
        # Tables that lay out a page.
        (
            f"<tr><td><td><h1>Head</h1><p>One.<p>Two.<br>Three.<td><tr><td><td><p>{SENTENCE}",
            f"Head\n\nOne.\n\nTwo.\nThree.\n\n{SENTENCE}",
        ),
        (
            f"<tr><td>Home<br>About<td>x<td><h1>Head</h1><p>{SENTENCE * 2}<p>{SENTENCE}<td>1<td>2",
            f"Home\nAbout\nx\n\nHead\n\n{SENTENCE * 2}\n\n{SENTENCE}\n\n1 | 2",
        ),
        ("<tr><td><pre>1\n2</pre><td><pre>a\n b</pre>", "1\n2\n\na\n b"),
        (
            "<tr><td>A<td>b<table><tr><td>1<td>2<tr><td>3<td>4</table>c<td>D<td>E",
            "A | b\n\n1 | 2\n3 | 4\n\nc\nD | E",
        ),
        # What only damaged pages have.
        ("<tr>x<td>a</td>y<td>b</td>z", "x\na y | b\nz"),
        ("</table><tr><td>a<td>b<tr><td>c<td>d<td>", "a | b\nc | d |"),
    ],
)  # fmt: skip
def test_rows_of_tables_are_lines_unless_they_lay_out_a_page(rows: str, expected: str) -> None:
    page = f"<table>{rows}".encode()
    expected = "\n".join(line.rstrip() for line in expected.split("\n"))
    assert page_text(page, "text/html", mode="full").text == expected


@pytest.mark.parametrize("mode", ["article", "browser"])
def test_a_paragraph_of_very_many_words_with_marks_is_no_work(mode: str) -> None:
    """Such as a transcript with an element for each word; trafilatura takes quadratic time."""
    words = "".join(f"<span>word {i}</span> " for i in range(11_000))
    page = f"<article><p>{SENTENCE * 5}</p><p>{words}</p>".encode()
    began = time.process_time()
    found = page_text(page, "text/html", mode=mode)  # type: ignore[arg-type]
    assert time.process_time() - began < 2.5
    assert "word 10999" in found.text


@pytest.mark.parametrize("mode", ["article", "full", "browser", "browser-full"])
def test_deep_pages(mode: str) -> None:
    """Old pages leave elements open. Trafilatura fails in deep ones, or takes minutes."""
    for tag, count, is_whole in (("del", 1000, True), ("table", 2000, True), ("b", 3000, False)):
        deep = "".join(f"<{tag}>Post {i} is the reply to the one above it. " for i in range(count))
        page = page_text(f"<article><p>{SENTENCE * 5}</p>{deep}".encode(), "text/html", mode=mode)  # type: ignore[arg-type]
        assert page.is_whole == is_whole
        assert is_whole == (f"Post {count - 1} is" in page.text)
        assert "Post 1500 is" in page.text or count == 1000


def test_a_script_of_many_megabytes_hides_nothing() -> None:
    page = b"<script>" + b"x" * 10_000_001 + b"</script><p>end"  # more than libxml2's usual limit
    assert page_text(page, "text/html", mode="full") == PageText("", "end")


def test_wide_pages() -> None:
    wide = "<tr>" + "<td>x</td>" * 20_000
    assert page_text(f"<table>{wide}".encode(), "text/html", mode="full").text.count("x") == 20_000


@given(st.text())
def test_any_html_has_text_that_documents_keep(page: str) -> None:
    """What comes out is, once a document has normalised it, what every offset points into."""
    few_controls = f"<!--{' ' * 20 * len(page)}-->"  # of many, a page would be binary
    content = (few_controls + page).encode("utf-8", "surrogatepass")
    found = page_text(content, "text/html", mode="full")
    document = Document("x", found.title, found.text)
    assert Document("x", document.title, document.text).text == document.text


def test_pdf() -> None:
    content = pdf(words_at("The lighthouse was", "built in 1874."), words_at("Page two."))
    page = page_text(content, "application/pdf")
    assert page.title == "A title"
    assert page.text == "The lighthouse was\nbuilt in 1874.\n\nPage two."
    assert page.is_whole


@pytest.mark.parametrize("budget", [Budget(pages=2), Budget(characters=16)])
def test_pdf_ends_with_its_budget(budget: Budget) -> None:
    content = pdf(*(words_at(f"Page {i}.") for i in range(4)))
    page = page_text(content, "application/pdf", budget=budget)
    assert (page.text, page.is_whole) == ("Page 0.\n\nPage 1.", False)


def test_broken_pdfs_are_refused() -> None:
    for content in (b"", b"%PDF-1.4\n", b"\0" * 100, pdf(words_at("x"))[:200]):
        with pytest.raises(TextError, match="can't be read as a PDF"):
            page_text(content, "application/pdf")


def test_plain_text_and_markdown_stay_as_they_are() -> None:
    text = "\n## Two\n# The  head \n\n* item |x|\n"
    assert page_text(text.encode(), "text/markdown") == PageText("The  head", text)
    assert page_text(text.encode(), "Text/Plain; charset=utf-8") == PageText("", text)
    for end in ("\r", "\r\n"):  # of old Macs, and of Windows
        text = f"##Two{end}# The head #{end}A note."
        assert page_text(text.encode(), "text/markdown") == PageText("The head", text)
    assert media_type("Text/HTML ; charset=x") == "text/html"


@pytest.mark.parametrize("content_type", ["", "application/octet-stream"])
def test_content_decides_where_the_server_does_not(content_type: str) -> None:
    assert page_text(b" <!doctype HTML><p>x", content_type, mode="full").text == "x"
    assert page_text(pdf(words_at("x")), content_type).text == "x"
    assert page_text(b"a < b", content_type).text == "a < b"
    with pytest.raises(TextError, match="neither"):
        page_text(b"\x89PNG\r\n\0\0", content_type)


NOISE = random.Random(0).randbytes(3000)


def archive(method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        made.writestr("page.html", HTML + NOISE.hex())
    return file.getvalue()


def tape_archive() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        entry = tarfile.TarInfo("page.html")
        entry.size = len(HTML.encode())
        made.addfile(entry, io.BytesIO(HTML.encode()))
    return file.getvalue()


def database(path: pathlib.Path) -> bytes:
    with contextlib.closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE pages (page TEXT)")
        made.executemany("INSERT INTO pages VALUES (?)", [(HTML,)] * 20)
    return path.read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x20" + zlib.compress(NOISE),
        bytes.fromhex("47494638396101000100800000ffffff00000021f90401000000002c00000000010001")
        + bytes.fromhex("000002024401003b"),  # the pixel that counts visitors
        archive(zipfile.ZIP_DEFLATED),
        gzip.compress(HTML.encode(), mtime=0),
        NOISE,
    ],
    ids=["png", "gif", "zip", "gzip", "noise"],
)
@pytest.mark.parametrize("content_type", ["text/html", "text/html; charset=utf-8"])
def test_what_is_called_html_but_is_binary_is_refused(content: bytes, content_type: str) -> None:
    """As text, its bytes would become a document of garbage."""
    with pytest.raises(TextError, match="is not HTML: it has too many control characters"):
        page_text(content, content_type)
    with pytest.raises(TextError, match="is not HTML"):
        page_text(content, "application/xhtml+xml", mode="browser")


def test_a_binary_file_that_stores_pages_as_they_are_is_refused(tmp_path: pathlib.Path) -> None:
    """Nearly all of it is text."""
    stored = archive(zipfile.ZIP_STORED)
    for content in (stored, tape_archive(), database(tmp_path / "pages.sqlite")):
        with pytest.raises(TextError, match="is not HTML: it has too many control characters"):
            page_text(content, "text/html")
        with pytest.raises(TextError, match="is not text: it has too many control characters"):
            page_text(content, "text/plain")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "cp1252"])
@pytest.mark.parametrize("mode", ["article", "full", "browser"])
def test_html_of_any_character_set_is_no_binary(encoding: str, mode: str) -> None:
    """Even if nothing says which: without zeros, UTF-16 is Latin-1."""
    page = "\n<!doctype html><title>T</title><body><p>The café was built in 1874."
    found = page_text(page.encode(encoding), "text/html", mode=mode)  # type: ignore[arg-type]
    assert found.text == "The café was built in 1874."


def test_iso_2022_jp_has_no_control_but_escape() -> None:
    page = "<title>T</title><body><p>日本の灯台" * 20
    content = page.encode("iso-2022-jp")
    found = page_text(content, "text/html; charset=iso-2022-jp", mode="full")
    assert "日本の灯台" in found.text


@pytest.mark.parametrize("content_type", ["text/html", "text/plain", "text/markdown", ""])
def test_a_pdf_of_any_type_is_read_as_one(content_type: str) -> None:
    """Its own text is what a reader sees of it; its bytes were quoted."""
    content = pdf(words_at("A windmill turns."), title="Mills")
    assert page_text(content, content_type) == page_text(content, "application/pdf")


def test_no_text_holds_zeros() -> None:
    """No reader sees them, and after one a search engine's snippet lacks the rest of the gap."""
    assert page_text(b"The mill\0 burned.", "text/plain") == PageText("", "The mill burned.")
    table = b"begincmap 1 beginbfchar <23> <0000> endbfchar endcmap"  # of fonts for print alone
    content = pdf(words_at("The mill# burned."), title="Mills\0").replace(b"/Font /Subtype",
        b"/Font /ToUnicode 9 0 R /Subtype").replace(b"xref\n",
        b"9 0 obj\n<< /Length %d >>\nstream\n%s\nendstream\nendobj\nxref\n" % (len(table), table),
        1)  # fmt: skip
    page = page_text(content, "application/pdf")
    assert (page.title, page.text) == ("Mills", "The mill burned.")


def test_endless_title_is_cut() -> None:
    page = f"<title>{'long ' * 100_000}</title>text"
    assert len(page_text(page.encode(), "text/html", mode="full").title) == 300


def test_other_types_are_named() -> None:
    with pytest.raises(TextError, match=r"'image/png', which can't be read"):
        page_text(b"x", "image/png")


def test_budget_of_text() -> None:
    with pytest.raises(TextError, match="has 5 bytes, but at most 4"):
        page_text(b"abcde", "text/plain", budget=Budget(content_bytes=4))
    cut = page_text(b"abcde", "text/plain", budget=Budget(characters=4))
    assert cut == PageText("", "abcd", is_whole=False)
