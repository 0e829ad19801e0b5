"""Where sentences begin and end: offsets into a document's text, white space around left out."""

import re

# A sentence ends after its mark with closing quotes and brackets, before space and a likely start
# (no lower-case letter); after an ideographic mark without any space; and before an empty line.
# Possessive, and only from the first mark of a run: linear on any text.
_END = re.compile(
    r"""(?<![.!?…])(?P<mark>[.!?…]++["'”’»)\]]*+)(?=\s++[^\sa-z,;:)\]])"""
    r"""|[。！？]++[”’」』）]*+"""
    r"""|(?=\n[ \t]{0,16}\n)""",
)

_LAST_WORD = re.compile(r"[^\W_](?:[\w.]*\w)?$")
_LONGEST_WORD = 16  # characters looked at before a full stop

# Words whose full stop never ends a sentence: titles, and initials such as `J.` and `U.S.`
_TITLE = re.compile(
    r"mrs?|ms|dr|prof|st|rev|hon|gen|col|capt|lt|sgt|gov|sen|rep|mt|ft|vs|e\.g|i\.e|cf",
    re.IGNORECASE,
)
_INITIALS = re.compile(r"(?!I$)[^\W\d_]|[A-Z](?:\.[A-Z])+")

# Words whose full stop ends no sentence before a number.
_BEFORE_NUMBER = re.compile(
    r"nos?|vols?|figs?|eq|sec|ch|pp?|ca|approx|est"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec",
    re.IGNORECASE,
)


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Returns the `(start, end)` of each sentence, in order.

    The spans don't overlap and cover everything but white space. The rules are those of English
    prose (initials, common abbreviations and decimal points don't end a sentence) and of
    ideographic punctuation. An empty line ends a sentence; a line end does not, as text may be
    wrapped.
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _END.finditer(text):
        if match["mark"] is not None and _is_abbreviated(text, match):
            continue
        _append_stripped(spans, text, start, match.end())
        start = match.end()
    _append_stripped(spans, text, start, len(text))
    return spans


def _is_abbreviated(text: str, match: re.Match[str]) -> bool:
    if match["mark"] != ".":
        return False
    word = _LAST_WORD.search(text, max(0, match.start() - _LONGEST_WORD), match.start())
    if word is None:
        return False
    found = word.group()
    if _BEFORE_NUMBER.fullmatch(found):
        return text[match.end() : match.end() + 2].strip().isdigit()
    return any(pattern.fullmatch(found) for pattern in (_TITLE, _INITIALS))


def _append_stripped(spans: list[tuple[int, int]], text: str, start: int, end: int) -> None:
    part = text[start:end]
    stripped = part.strip()
    if stripped:
        start += len(part) - len(part.lstrip())
        spans.append((start, start + len(stripped)))
