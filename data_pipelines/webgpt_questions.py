"""Questions in the form in which WebGPT's model was asked them (its appendix B)."""

import re
from collections.abc import Mapping, Sequence

DELETED_TITLE = "[deleted by user]"
_NO_SELFTEXT = frozenset({"", "[deleted]", "[removed]"})
_URL_TOKEN = re.compile(r"_URL_(\d{1,6})_")

# Words that mark an actual question; they match as whole words (`\b`).
_ASKING = (
    "explain eli5 which what whats whose who whos whom where wheres when whens how hows why whys "
    "am is isn isnt are aren arent was wasn wasnt were weren werent do don dont does doesn doesnt "
    "did didn didnt can cant could couldn couldnt have haven havent has hasn hasnt may might must "
    "mustn mustnt shall shant should shouldn shouldnt will wont would wouldn wouldnt"
)
_QUESTION = re.compile(rf"\?|\b(?:{_ASKING.replace(' ', '|')})\b", re.IGNORECASE)


def is_question(text: str) -> bool:
    """Whether a text is phrased as an actual question: it has a question mark or a typical word."""
    return _QUESTION.search(text) is not None


def with_urls(text: str, urls: Mapping[int, str] | Sequence[str]) -> str:
    """Returns a text with `_URL_0_` and so on replaced by addresses; tokens without one stay."""
    by_number = urls if isinstance(urls, Mapping) else dict(enumerate(urls))
    return _URL_TOKEN.sub(lambda match: by_number.get(int(match[1]), match[0]), text)


def eli5_question(
    title: str,
    selftext: str = "",
    urls: Mapping[int, str] | Sequence[str] = (),
    selftext_urls: Mapping[int, str] | Sequence[str] | None = None,
) -> str | None:
    """Returns a question of ELI5, or None if its author deleted it.

    Title and selftext are joined by an empty line. `Explain: ` is put before anything that is not
    phrased as a question.

    Args:
      title: title of the post.
      selftext: its body.
      urls: addresses for `_URL_0_` and so on; a token without an address stays.
      selftext_urls: addresses for the selftext, if they differ; None if they are the same.
    """
    if title.strip() == DELETED_TITLE:
        return None
    parts = [with_urls(title, urls).strip()]
    if selftext.strip() not in _NO_SELFTEXT:
        parts.append(with_urls(selftext, urls if selftext_urls is None else selftext_urls).strip())
    question = "\n\n".join(part for part in parts if part)
    return question if is_question(question) else f"Explain: {question}"


def arc_question(question: str, options: Sequence[str]) -> str:
    """Returns a question of ARC with its options: `<question>`, then `A. <option>` on each line.

    Raises:
      ValueError: there are more options than letters.
    """
    if len(options) > 26:
        raise ValueError(f"{len(options)} options are too many: at most 26 letters can name them")
    lines = (f"{chr(ord('A') + number)}. {option}" for number, option in enumerate(options))
    return "\n".join([question, *lines])


def fact_check_question(question: str, answer: str) -> str:
    """Returns a question that asks whether the claims in an answer to ELI5 are right."""
    return (
        "Fact-check each of the claims in the following answer.\n\n"
        f"Question: {question}\n\nAnswer: {answer}"
    )
