"""The characters that structure the environment's texts, and their replacements in page texts.

WebGPT replaces them by similar characters where they appear in a page (appendix A). Each
replacement is one character long, so offsets in the shown text are offsets in the stored page.
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
    """Returns an untrusted text with the environment's marks replaced; its length is unchanged."""
    # Most texts contain none of them; `str.translate` would look each character up in a table.
    for mark, replacement in REPLACEMENTS.items():
        text = text.replace(mark, replacement)
    return text


def one_line(text: str) -> str:
    """Returns an untrusted title or query as a single line.

    Marks are replaced, white space becomes single blanks, and the text is cut to `LONGEST_LINE`.
    """
    # More than enough characters, so that a megabyte is not split for one line.
    text = " ".join(text[: 8 * LONGEST_LINE].split())
    return escape(text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…")
