"""What people see of HTML, and texts that would rather be markup."""

import html
import html.parser

from hypothesis import strategies as st

from gophercite.html.escaping import escape_html

HOSTILE = [
    "<script>alert(1)</script>",
    "]]>",
    "<!-- ",
    "</mark>",
    "</style>",
    "&lt;b&gt; &amp;",
    "\" onload='x'",
    "\x00\x1b[31m",
    "\u202eevil",
    "تهران می‌خواهد",
    "e\u0301\U0001f469\u200d\U0001f52c",
    "\n\n\t",
]
TEXTS = st.lists(
    st.one_of(st.text(max_size=30), st.sampled_from(HOSTILE), st.just("word " * 30)), max_size=12
).map("".join)


class Seen(html.parser.HTMLParser):
    """The elements of a piece of HTML, its text, what is in `<mark>`, and what gaps say."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.text = self.marked = ""
        self.gaps: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "img"):
            self.open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == ("span", {"class": "gap"}):
            self.gaps.append(data)
            return
        self.text += data
        if any(tag == "mark" for tag, _ in self.open):
            self.marked += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data!r}")


def as_shown(text: str) -> str:
    """What people see of a text: of what escaping does, all but the escaping."""
    return html.unescape(escape_html(text))
