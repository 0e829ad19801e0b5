"""A judge of sampled answers that shares no code with what it judges.

It reads what the sampler returned (token ids, and how many of them are the answer), what the
tokenizer's own library says those tokens spell, and the pages that were shown as titles and texts.
Of each answer it lists what breaks the promises of docs/constrained.md. Only the standard library
is imported, and a test holds it to that.
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import NamedTuple

MARKS = "%<", ">%(", ")%[", "]%"
OMISSION = " [...] "


class Page(NamedTuple):
    """A page as a prompt shows it.

    Attributes:
      title: of the page.
      text: what is shown of it.
      begins: offsets in the text where a run of a quote may begin; None for all.
      ends: offsets where one may end; None for all.
    """

    title: str
    text: str
    begins: Collection[int] | None = None
    ends: Collection[int] | None = None


@dataclasses.dataclass(frozen=True)
class Rules:
    """What an answer may look like; lengths in characters, None for no limit.

    Attributes:
      max_tokens: of an answer, its end of sequence included.
      minimum_quote: of each run of a quote.
      maximum_quote: of each run, too.
      minimum_claim: of a claim.
      maximum_claim: of a claim.
      triples: claims with their quotes.
      omissions: ` [...] ` in one quote; with 0 those characters are text.
    """

    max_tokens: int
    minimum_quote: int = 5
    maximum_quote: int | None = None
    minimum_claim: int = 1
    maximum_claim: int | None = None
    triples: int = 1
    omissions: int = 0


@dataclasses.dataclass(frozen=True)
class Sampled:
    """One row of what the sampler returned.

    Attributes:
      tokens: ids, padding included.
      length: how many of them it says are the answer.
      end: id of the end of sequence.
      padding: id that fills rows up.
      silent: ids that a text never holds: special, unused, or none at all.
      size: ids that the vocabulary has.
    """

    tokens: Sequence[int]
    length: int
    end: int
    padding: int
    silent: frozenset[int]
    size: int


def faults(
    row: Sampled, spelled: bytes, decoded: str, pages: Sequence[Page], rules: Rules
) -> list[str]:
    """What is wrong with one sample.

    Args:
      row: as it was sampled.
      spelled: the bytes of its tokens but the last, one by one.
      decoded: what the tokenizer's library makes of the same tokens.
      pages: what the prompt showed.
      rules: what was asked for.

    Returns:
      A sentence for each fault; nothing where there is none.
    """
    found = faults_of_row(row, rules)
    try:
        text = spelled.decode("utf-8", errors="strict")
    except UnicodeDecodeError as error:
        return [*found, f"no UTF-8: {error}"]
    if text != decoded:
        found.append(f"the tokens spell {text!r}, but the tokenizer's library says {decoded!r}")
    return found + faults_of_text(text, pages, rules)


def faults_of_row(row: Sampled, rules: Rules) -> list[str]:
    """What is wrong with the numbers of a sample, whatever they spell."""
    if not 1 <= row.length <= min(rules.max_tokens, len(row.tokens)):
        return [f"{row.length} tokens, where {rules.max_tokens} may be"]
    *answer, last = row.tokens[: row.length]
    found = []
    if last != row.end:
        found.append(f"ends with token {last}, not with the end of sequence")
    for token in answer:
        if token == row.end:
            found.append("the end of sequence stands inside")
        elif not 0 <= token < row.size or token in row.silent:
            found.append(f"token {token} is no text")
    if any(token != row.padding for token in row.tokens[row.length :]):
        found.append("something but padding follows the end")
    return found


def faults_of_text(text: str, pages: Sequence[Page], rules: Rules) -> list[str]:
    """What is wrong with the text of an answer."""
    if not text.startswith(" "):
        return ["the first character is no space"]
    found: list[str] = []
    rest, triples = text[1:], 0
    while True:
        if not rest.startswith("%<"):
            return [*found, f"{rest[:20]!r} where '%<' should be"]
        claim, closed, rest = rest[2:].partition(">%(")
        if not closed:
            return [*found, "a claim has no end"]
        title, closed, rest = rest.partition(")%[")
        if not closed:
            return [*found, "a title has no end"]
        quote, closed, rest = rest.partition("]%")
        if not closed:
            return [*found, "a quote has no end"]
        triples += 1
        found += _faults_of_claim(claim, rules)
        found += _faults_of_quote(title, quote, pages, rules)
        if not rest:
            break
        if not rest.startswith(" "):
            return [*found, f"{rest[:20]!r} after a quote"]
        rest = rest[1:]
    if triples > rules.triples:
        found.append(f"{triples} triples, where {rules.triples} may be")
    return found


def _faults_of_claim(claim: str, rules: Rules) -> list[str]:
    found = [f"the claim {claim!r} holds {mark!r}" for mark in MARKS if mark in claim]
    if not claim.strip():
        found.append(f"the claim {claim!r} is empty")
    if len(claim) < rules.minimum_claim:
        found.append(f"the claim {claim!r} is too short")
    if rules.maximum_claim is not None and len(claim) > rules.maximum_claim:
        found.append(f"the claim {claim!r} is too long")
    return found


def _faults_of_quote(title: str, quote: str, pages: Sequence[Page], rules: Rules) -> list[str]:
    found = [
        f"the {name} {part!r} holds {mark!r}"
        for name, part in (("title", title), ("quote", quote))
        for mark in MARKS
        if mark in part
    ]
    named = [page for page in pages if page.title == title]
    if not named:
        found.append(f"no page has the title {title!r}")
    runs = quote.split(OMISSION) if rules.omissions else [quote]
    if len(runs) > rules.omissions + 1:
        found.append(f"{len(runs) - 1} omissions, where {rules.omissions} may be")
    for run in runs:
        content = run.replace("[", "").replace("]", "").replace(".", "") if rules.omissions else run
        if not content.strip():
            found.append(f"the run {run!r} is empty")
        if len(run) < rules.minimum_quote:
            found.append(f"the run {run!r} is too short")
        if named and not any(run in page.text for page in named):
            found.append(f"the run {run!r} is on no page of the title {title!r}")
        elif named and run and not any(_may_be_run(run, page) for page in named):
            found.append(f"the run {run!r} begins or ends where none may")
        if rules.maximum_quote is not None:
            if len(run) > rules.maximum_quote:
                found.append(f"the run {run!r} is too long")
            if len(run) - len(run.lstrip()) >= rules.minimum_quote:
                found.append(f"the run {run!r} begins with much white space")
    return found


def _may_be_run(run: str, page: Page) -> bool:
    """Whether a run stands somewhere on a page where it may begin and may end."""
    place = page.text.find(run)
    while place >= 0:
        begins = page.begins is None or place in page.begins
        if begins and (page.ends is None or place + len(run) in page.ends):
            return True
        place = page.text.find(run, place + 1)
    return False
