"""Questions that a claim answers (GopherCite, appendix E.2, type B): from a model, or by rule.

The paper uses a few-shot prompted language model. Here, any function from a prompt to its
continuation will do. Without one, simple rules turn most claims like FEVER's into a question.
"""

import re
from collections.abc import Callable

from gophercite.evidence import holds_mark

AskModel = Callable[[str], str]
"""Continues a prompt; what follows the first line is not looked at."""

_LONGEST_QUESTION = 200  # characters; anything longer is not a question about one claim

_PREAMBLE = "Each question below is answered by the statement above it.\n\n"
_EXAMPLES = (
    ("The lighthouse of Ormsby was built in 1874", "When was the lighthouse of Ormsby built?"),
    ("Ada Fenwick was an engineer", "Who was Ada Fenwick?"),
    ("Cobalt turns glass blue", "What colour does cobalt give to glass?"),
    ("Swifts nest under the roofs of houses", "Where do swifts nest?"),
    ("The Marianne sank because it hit a reef", "Why did the Marianne sink?"),
)

# Words of a name or title: capitals, and the small ones between them, with a source in brackets.
_CAPITAL = r"[^\W_a-z][\w.&'-]*"
_SMALL_INSIDE = r"(?:of|the|and|in|for|to|de|la|von|&)"
_NAME_PATTERN = (
    rf"(?!(?:The|An?) [a-z\d]){_CAPITAL}(?: (?:{_SMALL_INSIDE} ){{0,2}}{_CAPITAL}){{0,6}}"
)
_BRACKETED = r"(?: ?\( ?[^()]{1,40} ?\))?"
_NOUN_PATTERN = r"(?:The|An?) [a-z-]+(?: [a-z-]+)?"
_SUBJECT = rf"(?P<subject>(?:{_NAME_PATTERN}|{_NOUN_PATTERN}){_BRACKETED})"
_AUXILIARY = (
    "is|are|was|were|has|have|had|does|do|did|can|could|will|would|may|might|must|should|cannot"
)
# A claim of FEVER's kind: its subject, and the first verb that a rule knows.
_PARTS = re.compile(rf"{_SUBJECT} (?P<verb>{_AUXILIARY}) (?P<rest>.+)")
_OF_A_NAME = re.compile(rf"(?P<subject>{_NAME_PATTERN}{_BRACKETED})(?<!'s) [a-z].*")
_NO_SUBJECT = re.compile(
    r"(?:There|It|He|She|They|This|That|These|Those|We|In|On|At|By|As|From|With|After|Before"
    r"|During|Since|Both|Some|All|No|Many|Each|One|When|While|If)\b"
)
_DATE = r"(?:\w+ ){0,2}(?:\d{1,2},? )?(?:\d{3,4})(?:s|'s)?"
_WHEN = re.compile(rf"(?P<done>[\w -]+?) (?:in|on|during|since) {_DATE}")
_BY_WHOM = re.compile(r"(?P<done>[\w-]+ed|written|made|built|led|sung|won|begun) by .+")
_WHERE = re.compile(r"(?P<done>born|located|situated|based|set|filmed|held|built|buried) in .+")
_SORT = re.compile(r"(?:not )?(?:an?|the|one) .+", re.IGNORECASE)
_NAME = re.compile(r"(?:[^\W\d_a-z][\w.'-]*)(?: [^\W\d_a-z][\w.'-]*){1,2}")
_OF_PEOPLE = re.compile(
    r"\b(?:person|man|woman|actor|actress|singer|author|writer|poet|player|politician|president|minister"
    r"|musician|composer|director|producer|comedian|model|king|queen|scientist|artist|dancer"
    r"|rapper|lawyer|footballer|wrestler|painter|engineer|creator|host|\w+ist)\b"
)

# Words at the start of a claim that are lower-case inside a sentence; titles begin with them, too.
_SMALL = re.compile(
    r"(?:The|A|An|There|It|In|On|At|One|Some|All|No|Many|Both|Each|During|After|Before|By|Since"
    r"|He|She|They|This|That|These|Those|As|From|With)\b(?! [^\W\d_a-z])"
)


def inside_sentence(claim: str) -> str:
    """Returns a claim as it reads inside a sentence: lower-case, unless it begins with a name."""
    return claim[0].lower() + claim[1:] if _SMALL.match(claim) else claim


def question_prompt(claim: str) -> str:
    """Returns a prompt whose continuation by a model is a question that `claim` answers."""
    shown = "".join(
        f"Statement: {claim_text}.\nQuestion: {question}\n\n" for claim_text, question in _EXAMPLES
    )
    return f"{_PREAMBLE}{shown}Statement: {claim}.\nQuestion:"


def question_for(claim: str, ask: AskModel | None = None) -> str | None:
    """Returns a question that a claim answers.

    Args:
      claim: the claim, without a full stop at the end.
      ask: a model. If the first line of its output is one question, that is used; otherwise, the
        rules are.

    Returns:
      The question, or None if no rule makes one.
    """
    if ask is not None:
        line = next(iter(ask(question_prompt(claim)).strip().splitlines()), "").strip()
        usable = 3 < len(line) <= _LONGEST_QUESTION and line.count("?") == 1
        if usable and line.endswith("?") and not holds_mark(line):
            return line
    return question_by_rule(claim)


def question_by_rule(claim: str) -> str | None:
    """Returns a question about the subject of a claim, or None if there is none.

    It asks for a date, a place, an author or the kind of thing if the claim states it in the
    usual words (*was released in 1984*, *is a film*). Otherwise it asks what is known of the
    subject.
    """
    if _NO_SUBJECT.match(claim):
        return None
    parts = _PARTS.fullmatch(claim)
    if parts is None:
        named = _OF_A_NAME.fullmatch(claim)
        return f"What is known about {named['subject']}?" if named else None
    subject, verb, rest = inside_sentence(parts["subject"]), parts["verb"], parts["rest"]
    rest = rest.removeprefix("not ")
    if verb in ("is", "are", "was", "were"):
        for word, pattern in (("When", _WHEN), ("Where", _WHERE), ("By whom", _BY_WHOM)):
            if found := pattern.fullmatch(rest):
                return f"{word} {verb} {subject} {found['done']}?"
        if _SORT.fullmatch(rest):
            person = _NAME.fullmatch(parts["subject"]) and _OF_PEOPLE.search(rest)
            return f"{'Who' if person else 'What'} {verb} {subject}?"
    return f"What is known about {subject}?"
