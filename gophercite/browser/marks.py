"""The characters that the environment's texts are built with, and how a page's own are replaced.

WebGPT replaces them by similar ones where they appear in a page (appendix A). Each replacement is
one character long, so that a place in the text that is shown is the same place in the stored page.
"""

LINK_OPEN, LINK_CLOSE, LINK_PART = "【", "】", "†"
ELLIPSIS = "━"  # in `Quote: <start>━<end>`
STOP = "■"  # between the parts of the answering prompt
FIELD = "♦"  # before each field of an observation

LONGEST_LINE = 300  # characters of a title, a query or a past action

REPLACEMENTS = {
    LINK_OPEN: "〖",
    LINK_CLOSE: "〗",
    LINK_PART: "‡",
    ELLIPSIS: "─",
    STOP: "▪",
    FIELD: "◆",
}


def escape(text: str) -> str:
    """Returns a stranger's text with the environment's marks replaced; as long as before."""
    # Most texts hold none of them; `str.translate` would look each character up in a table.
    for mark, replacement in REPLACEMENTS.items():
        text = text.replace(mark, replacement)
    return text


def one_line(text: str) -> str:
    """Returns a stranger's title or query for a line of its own.

    Marks are replaced, white space is single blanks, and what is longer than `LONGEST_LINE` is cut.
    """
    # More than enough of it, so that a megabyte is not split for a line.
    text = " ".join(text[: 8 * LONGEST_LINE].split())
    return escape(text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…")
