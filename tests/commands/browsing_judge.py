"""A judge of what a constrained browser writes that shares no code with it.

Whether a command is valid says the environment itself; here stand what else is promised
(docs/browser.md): its spelling, and which text of a page it holds. And of answers, for which the
environment asks nothing, all of it. Of ours, only another judge's page is imported.
"""

import re
import unicodedata

from tests.quoting.answer_judge import Page

_LINE_ENDS = "\n\r\x85\u2028\u2029"
_NOTHING = "\u00ad\u200b\u2060\ufeff"
_WHOLE = re.compile(
    "Top|Back|Scrolled (down|up) [123]|End: (Answer|Nonsense|Controversial)"
    "|Clicked on link (0|[1-9][0-9]*)"
)
_CITATION = re.compile(r"\[([1-9][0-9]*(?:, ?[1-9][0-9]*)*)\]")


def faults_of_command(text: str, page: Page | None, find_present: bool = False) -> list[str]:
    """What is wrong with the form of a command, beside what the environment says.

    Args:
      text: as it was written.
      page: what may be quoted, without its links' marks, where and how; None where nothing is.
      find_present: whether what is sought must be a run of the page.
    """
    body = text.removeprefix(" ")
    if _WHOLE.fullmatch(body):
        return []
    for name in ("Search ", "Find in page: ", "Quote: "):
        if not body.startswith(name):
            continue
        rest = body[len(name) :]
        if name == "Search " or (name == "Find in page: " and not find_present):
            return [f"{rest!r} has a line end"] if set(rest) & set(_LINE_ENDS) else []
        parts = rest.split("━") if name == "Quote: " else [rest]
        if page and len(parts) <= 2 and all(_is_run(part, page) for part in parts):
            return []
        return [f"{rest!r} is no run of the page"]
    return [f"{text!r} is no command"]


def _is_run(run: str, page: Page) -> bool:
    if not run or run[0].isspace() or run[-1].isspace():
        return False
    at = page.text.find(run)
    while at >= 0:
        end = at + len(run)
        if (page.begins is None or at in page.begins) and (page.ends is None or end in page.ends):
            return True
        at = page.text.find(run, at + 1)
    return False


def faults_of_answer(text: str, references: int) -> list[str]:
    """What is wrong with an answer.

    Args:
      text: as it was written.
      references: how many there are to cite.
    """
    found = []
    seen = unicodedata.normalize("NFC", text)
    if not seen.translate(dict.fromkeys(map(ord, _NOTHING))).strip():
        found.append("blank")
    for of_text in (text, seen):
        for match in re.finditer(r"\[", of_text):
            citation = _CITATION.match(of_text, match.start())
            if citation is None:
                found.append(f"no citation: {of_text[match.start() :][:20]!r}")
                continue
            numbers = [int(number) for number in citation[1].split(",")]
            found += [f"there is no reference {n}" for n in numbers if not 1 <= n <= references]
    return found
