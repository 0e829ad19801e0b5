"""HTML as the text browser shows it: appendix A of WebGPT, and pages that mean harm."""

import gzip
import json
import pathlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import HTML

from gophercite.documents import normalise_text
from gophercite.extraction import browser_html
from gophercite.extraction.browser_html import LinkedHtml
from gophercite.extraction.text import PageText, page_from_json, page_text

DATA = pathlib.Path(__file__).parents[2] / "../shared/data/html"


def whole(page: str) -> LinkedHtml:
    return browser_html.read(page, whole=True)


def links(page: LinkedHtml) -> list[tuple[str, str]]:
    return [(page.text[start:end], address) for start, end, address in page.links]


@pytest.mark.parametrize(
    ("html", "text"),
    [
        # Superscripts and subscripts by ^ and _.
        ("<p>E = mc<sup>2</sup>, H<sub>2</sub>O", "E = mc^2, H_2O"),
        ("<p>x<sup> </sup>y<sub></sub>", "x y"),
        ("<p>a<sup>b<sup>c</sup></sup>d", "a^b^cd"),
        # Images with and without a description; what counts visits is none.
        ("<p><img src=a alt='A  crow'> and <img src=b>", "[Image: A crow] and [Image]"),
        ("<p>a<img src=b width=1 height=1>b", "ab"),
        # Tables and lists.
        (
            "<table><tr><th>Year<th>Ships<tr><td>1874<td>3<sup>a</sup></table>",
            "Year | Ships\n1874 | 3^a",
        ),
        (
            "<ol><li>One<li>Two<ul><li>Inner</ul><li>Three</ol>",
            "1. One\n2. Two\n\n- Inner\n\n3. Three",
        ),
        ("<ol start=7><li>One</ol><ol start=x><li>Two</ol>", "7. One\n\n1. Two"),
        # Mathematics: TeX, MathML, Wikipedia's pictures, KaTeX, MathJax's scripts.
        ("<p>so <math alttext='{\\displaystyle a^{2}}'><mi>a</mi></math>.", "so a^{2}."),
        (
            "<math><mfrac><mn>1</mn><mrow><mi>n</mi><mo>+</mo><mn>1</mn></mrow></mfrac></math>",
            "1/(n + 1)",
        ),
        ("<math><msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup></math>", "x_i^2"),
        ("<math><msqrt><mi>x</mi></msqrt></math>", "√x"),
        (
            "<p>a <span style='display: none'><math><mi>E</mi></math></span>"
            "<img class='mwe-math-fallback-image-inline' alt='{\\displaystyle E=mc^{2}}'> b",
            "a E=mc^{2} b",
        ),
        (
            "<p>b <span class=katex><math><semantics><mi>E</mi><annotation "
            "encoding='application/x-tex'>E = m</annotation></semantics></math></span>"
            "<span class=katex-html>E=m</span>.",
            "b E = m.",
        ),
        ("<p>c <script type='math/tex'>\\frac{1}{2}</script> d", "c \\frac{1}{2} d"),
        # What readers don't see.
        ("<p>a<script>x()</script><p hidden>no<p style='display:none'>no", "a"),
        ("", ""),
    ],
)
def test_what_becomes_of_html(html: str, text: str) -> None:
    assert whole(html).text == text


def test_links_have_their_places_and_addresses() -> None:
    page = whole(
        "<base href='/wiki/'><p>See <a href='a.html#x'> the <b>ship</b>s </a>, <a>none</a>, "
        "<a href='#top'>up</a>, <a href='mailto:a@b'>mail</a>, <a href='/e'></a>"
        "<a href=i><img alt='A map'></a> and <sup><a href=n>[1]</a></sup>."
    )
    assert page.text == "See the ships , none, up, mail, [Image: A map] and ^[1]."
    assert links(page) == [
        ("the ships", "a.html#x"),
        ("up", "#top"),
        ("mail", "mailto:a@b"),
        ("[Image: A map]", "i"),
        ("[1]", "n"),
    ]
    assert page.base == "/wiki/"


def test_a_link_over_several_lines_is_its_first() -> None:
    page = whole("<a href=x><div> </div><h3>Title</h3><p>Teaser</p></a><p>After <a href=y>y</a>")
    assert page.text == "Title\n\nTeaser\n\nAfter y"
    assert links(page) == [("Title", "x"), ("y", "y")]


def test_links_and_anchors_in_a_row_of_a_table_have_their_places() -> None:
    page = whole(
        "<table><tr><td id=r><td><a href=x>One</a><br>e\u0301 <a href=y>two</a>"
        "<td id=c><p id=p><a href=z>3</a></table>"
    )
    assert page.text == "| One é two | 3"
    assert links(page) == [("One", "x"), ("two", "y"), ("3", "z")]
    assert page.anchors == (("r", 2), ("c", 14), ("p", 14))


def test_a_link_within_a_link_and_one_that_never_ends() -> None:
    page = whole("<a href=x>one <table><tr><td><a href=y>two</a></table> three")
    assert [address for _, address in links(page)] == ["x"] or links(page)[0][0] == "one"
    assert links(whole("<p>a <a href=x>b"))[0][0] == "b"


def test_anchors_lead_to_what_follows_them() -> None:
    page = whole(
        "<p id=a>One</p><a name=b></a><div id=c></div><h2 id=d>Two <i id=e>three</i></h2>"
        "<ul><li id=f>four</ul><p id=a>again</p><p id=end></p>"
    )
    assert page.text == "One\n\nTwo three\n\n- four\n\nagain"
    places = {name: page.text[place:][:5] for name, place in page.anchors}
    assert places == {
        "a": "One\n\n",
        "b": "Two t",
        "c": "Two t",
        "d": "Two t",
        "e": "three",
        "f": "four\n",
        "end": "",
    }


def test_text_is_normalised_and_links_stay_in_place() -> None:
    page = whole("<p>Cafe\u0301 <a href=x>Cafe\u0301\u200b bar</a> e<a href=y>\u0301 z</a>")
    assert page.text == normalise_text(page.text)
    assert ("Café bar", "x") in links(page) or not page.links  # what divides a letter is no link
    page = whole("<p>Cafe\u0301 <a href=x>Cafe\u0301\u200b bar</a>.")
    assert links(page) == [("Café bar", "x")]


def test_the_article_keeps_its_links_tables_and_pictures() -> None:
    html = HTML.replace(
        "who came", "who <a href=/came>came</a> <img alt='by ship'> for <i>x<sub>2</sub></i>"
    ).replace("<ul>", "<div class=sidebar><p>Subscribe to our letter now, friends!</div><ul>")
    page = browser_html.read(html)
    assert "Population | 1,234^[1]" in page.text
    assert "who came [Image: by ship] for x_2" in page.text
    assert ("came", "/came") in links(page)


# --- As text.page_text gives it ---


def test_modes_of_page_text() -> None:
    page = page_text(b"<title>T</title><p id=i>A <a href=b>link</a>.", "text/html", mode="browser")
    assert page == PageText("T", "A link.", links=((2, 6, "b"),), anchors=(("i", 0),))
    as_json = {"text": page.text, "is_whole": True, "title": "T"}
    wrong = [[0, 3, "x"], [2, 4, "y"], [5, 99, "z"], [6, 6, "e"], "link", [4, 5, "ok"], None]
    read = page_from_json(as_json | {"links": wrong, "anchors": [["a", 7], ["b", 8], [1, 2]]})
    assert read.links == ((0, 3, "x"), (4, 5, "ok"))
    assert read.anchors == (("a", 7),)


@pytest.mark.parametrize("media", ["text/css", "text/csv", "application/json", "image/svg+xml"])
def test_other_text_is_raw(media: str) -> None:
    if media.startswith("image"):
        with pytest.raises(Exception, match="can't be read"):
            page_text(b"<svg>", media)
    else:
        assert page_text(b'{"a": 1}\n', media, mode="browser").text == '{"a": 1}\n'


# --- Hostile pages ---

TAGS = [
    *(
        "a",
        "b",
        "div",
        "p",
        "table",
        "tr",
        "td",
        "li",
        "ul",
        "ol",
        "sup",
        "sub",
        "h1",
        "pre",
        "img",
    ),
    *("math", "msup", "mi", "script", "br", "span", "i"),
]
HTML_PIECES = st.one_of(
    st.sampled_from([f"<{tag}>" for tag in TAGS] + [f"</{tag}>" for tag in TAGS]),
    st.sampled_from(
        ["<a href='/x'>", "<a href=#i id=i>", "<img alt='x'>", "<ol start=3>", "&#x301;"]
    ),
    st.text(max_size=10),
    st.text(
        alphabet=" \n\t\u0301\u00e9e\u1100\u1161\u11a8\u200f\u202e\U0001f469\u200d", max_size=6
    ),
)


@given(pieces=st.lists(HTML_PIECES, max_size=40))
def test_any_html_is_text_whose_links_are_in_it(pieces: list[str]) -> None:
    page = whole("".join(pieces))
    assert page.text == normalise_text(page.text)
    end = 0
    for start, stop, _ in page.links:
        assert end <= start < stop <= len(page.text)
        assert page.text[start:stop].strip() == page.text[start:stop] != ""
        assert "\n" not in page.text[start:stop] or "<pre>" in pieces
        end = stop
    assert all(0 <= place <= len(page.text) for _, place in page.anchors)


@pytest.mark.parametrize(
    "html",
    [
        "<p>" + "<a href=x>y</a> " * 50_000,
        "<table><tr><td>" * 10_000 + "deep",
        "<sup>" * 25_000 + "x",
        "<div id=x class='" + "ad " * 100_000 + "'>a<p>b",
        "<img alt='" + "x" * 1_500_000 + "'>",
        "<math>" + "<msup><mi>x</mi>" * 10_000 + "</math>",
        "<math><mrow>" + "<mi>x</mi>" * 50_000,
        "<p>" + " " * 1_500_000 + "x" + "&nbsp;" * 250_000,
        "<p>" + "e\u0301<a href=x>\u0301</a>" * 2_500,
        "".join(f"<p id=i{n}>" for n in range(50_000)),
        "<p>One sentence of an article, long enough to be one. " + "[Image: " * 50_000,
    ],
    ids=range(11),
)
def test_large_hostile_pages_take_seconds_at_most(html: str) -> None:
    """What takes the square of a page's length takes far longer."""
    start = time.process_time()
    page = browser_html.read(html)
    assert time.process_time() - start < 5
    assert page.text == normalise_text(page.text)


@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared")
def test_real_pages_keep_their_article_and_its_links() -> None:
    kept = []
    with gzip.open(DATA / "articles.jsonl.gz", "rt", encoding="utf-8") as lines:
        for _, line in zip(range(12), lines, strict=False):
            record = json.loads(line)
            page = browser_html.read(record["html"])
            gold = set(normalise_text(record["text"]).split())
            kept.append(len(gold & set(page.text.split())) / len(gold))
            assert page.text == normalise_text(page.text)
    assert sum(kept) / len(kept) > 0.93
