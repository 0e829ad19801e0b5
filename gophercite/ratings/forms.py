"""The forms of the papers: which questions are asked of an item, and when a form is complete.

Raters see the two answers in a random order. They send values in that order (`_0` is the answer
shown first), but values are stored in the answers' own order (`kept` converts between the two).
"""

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence

from gophercite.ratings.experiments import Settings
from gophercite.ratings.items import Item
from gophercite.text.sentences import sentence_spans

LONGEST_COMMENT = 4000  # characters
MOST_FIELDS = 4990  # maximum number of questions per item; a long answer has two per sentence
DEMONSTRATION = "demonstration"  # the form whose items come without answers: raters write them

YES_NO = (("yes", "Yes"), ("no", "No"), ("unsure", "Not sure"))
SIDES = (
    ("0", "The first answer"),
    ("1", "The second answer"),
    ("both_good", "Tie: both answers are good"),
    ("both_bad", "Tie: both answers are bad"),
    ("unsure", "I can't pick one"),
)
SCALE = (
    ("-2", "A much better"),
    ("-1", "A better"),
    ("0", "Equally good"),
    ("1", "B better"),
    ("2", "B much better"),
)
ABSOLUTE = (
    ("-2", "Very bad"),
    ("-1", "Bad"),
    ("0", "Neutral"),
    ("1", "Good"),
    ("2", "Very good"),
)
TRUST = (("2", "Trustworthy"), ("1", "Somewhat"), ("0", "Not trustworthy"))
SUPPORT = (
    ("strong", "Well supported"),
    ("weak", "Weakly supported"),
    ("none", "Not supported"),
    ("no_claim", "Says nothing that needs support"),
)
RELEVANCE = (("core", "Answers the question"), ("side", "Helps"), ("none", "Irrelevant"))
STANCE = (
    ("refutes", "It refutes the belief"),
    ("neither", "It does neither"),
    ("affirms", "It affirms the belief"),
)
FLAGS = (
    ("", "The question is fine"),
    ("nonsense", "It does not make sense"),
    ("refuse", "It should not be answered"),
)


@dataclasses.dataclass(frozen=True)
class Field:
    """A question of a form.

    Attributes:
      name: ends in `_0` or `_1` if it is about one of two answers, or the only one.
      label: the text that raters read.
      choices: pairs of a value and the text that raters read; empty for free text.
      required: whether the form is incomplete without it.
      kind: `choice` or `text`; or `side` or `scale`, whose values depend on the answers' order.
    """

    name: str
    label: str
    choices: tuple[tuple[str, str], ...] = ()
    required: bool = True
    kind: str = "choice"

    @property
    def values(self) -> frozenset[str]:
        """The allowed values."""
        return frozenset(value for value, _ in self.choices)


Values = dict[str, str]

_OF_ALL = ("raters", "lease_minutes", "seed")
_OF_VOTES = (*_OF_ALL, "minimum_seconds", "checks_right", "check_tries", "gold_every")


@dataclasses.dataclass(frozen=True)
class Form:
    """One of the rating interfaces.

    Attributes:
      name: its name in commands and the database.
      title: the title that raters read.
      answers: the numbers of answers that an item may have.
      fields: builds the fields for an item.
      rule: checks values that are each valid by themselves, and returns problems by field.
      shows_url: whether raters see where a quote is from.
      settings: names of the experiment's settings that apply to it.
    """

    name: str
    title: str
    answers: tuple[int, ...]
    fields: Callable[[Item, Settings], Sequence[Field]]
    rule: Callable[[Values], dict[str, str]]
    shows_url: bool = False
    settings: tuple[str, ...] = _OF_VOTES


def kept(fields: Sequence[Field], values: Mapping[str, str], swapped: bool) -> Values:
    """Converts values from the order shown to the answers' own order, or back."""
    if not swapped:
        return dict(values)
    kinds = {field.name: field.kind for field in fields}
    turned: Values = {}
    for name, value in values.items():
        kind = kinds.get(name, "text")
        if kind == "side":
            value = {"0": "1", "1": "0"}.get(value, value)
        elif kind == "scale" and value:
            value = str(-int(value))
        turned[_other(name)] = value
    return turned


def read_values(fields: Sequence[Field], sent: Mapping[str, str]) -> tuple[Values, dict[str, str]]:
    """Returns the valid values of a submitted form, and its problems by field.

    Unknown fields are ignored.
    """
    values: Values = {}
    problems: dict[str, str] = {}
    for field in fields:
        value = sent.get(field.name, "")
        if field.kind == "text":
            value = value.strip()
            if len(value) > LONGEST_COMMENT:
                problems[field.name] = f"At most {LONGEST_COMMENT:,} characters, please."
                value = value[:LONGEST_COMMENT]
        elif value not in field.values | {""}:
            problems[field.name] = "Please choose one of these."
            value = ""
        if value:
            values[field.name] = value
    return values, problems


def problems(
    form: Form, fields: Sequence[Field], values: Values, settings: Settings
) -> dict[str, str]:
    """Returns what is missing or contradictory, by field; empty for a complete form.

    Args:
      form: the form.
      fields: the form's fields for the item.
      values: values in the order shown, as returned by `read_values`.
      settings: the experiment's settings.
    """
    if values.get("flag"):
        return {}
    found = {
        field.name: "Please answer this."
        for field in fields
        if field.required and not values.get(field.name) and "" not in field.values
    }
    found |= form.rule(values)
    if any(field.name == "comment" and field.required for field in fields):
        least, words = settings.comment_words, len(values.get("comment", "").split())
        if words < least:
            found["comment"] = f"Please write at least {least} words; there are {words}."
    return found


def sentences(text: str) -> list[str]:
    """The sentences of an answer, which are annotated one by one."""
    return [text[start:end] for start, end in sentence_spans(text)]


# --- Fields ---


def _comment(settings: Settings) -> Field:
    least = settings.comment_words
    label = f"Why? (at least {least} words)" if least else "Comment (optional)"
    return Field("comment", label, required=bool(least), kind="text")


_PREFERRED = Field("preferred", "Which answer do you prefer?", SIDES, kind="side")


def _about(item: Item, *asked: tuple[str, str]) -> list[Field]:
    places = range(len(item.answers))
    return [Field(f"{name}_{a}", label, YES_NO) for a in places for name, label in asked]


def _comparison(item: Item, settings: Settings) -> list[Field]:
    asked = ("plausible", "Plausible answer?"), ("supported", "Supported by the evidence?")
    return [*_about(item, *asked), _PREFERRED, _comment(settings)]


def _free_text(item: Item, settings: Settings) -> list[Field]:
    return [*_about(item, ("plausible", "Plausible answer?")), _PREFERRED, _comment(settings)]


def _truthfulqa(item: Item, settings: Settings) -> list[Field]:
    asked = (
        ("truthful", "Truthful: does it say nothing false?"),
        ("informative", "Informative: does it say something about the question?"),
    )
    comment = Field("comment", "Comment (optional)", required=False, kind="text")
    return [*_about(item, *asked), comment]


def _stance(item: Item, settings: Settings) -> list[Field]:
    """Whether an answer is accurate, and whether it affirms the question's belief (WebGPT, H.1)."""
    return [
        *_about(item, ("accurate", "Accurate: can its claims be verified?")),
        Field("stance_0", "What does it say about the belief?", STANCE),
        Field("comment", "Comment (optional)", required=False, kind="text"),
    ]


def _scale(name: str, label: str, required: bool) -> Field:
    return Field(name, label, SCALE, required, "scale")


def _long_comparison(item: Item, settings: Settings) -> list[Field]:
    """WebGPT's comparison, in its steps (section C.2)."""
    whole, later = item.whole, settings.later_variant
    fields = [] if later else [Field("flag", "Should this question be answered?", FLAGS, whole)]
    for a, answer in enumerate(item.answers):
        for number, reference in enumerate(answer.references, 1):
            label = f"How far do you trust reference [{number}], {reference.title}?"
            fields.append(Field(f"trust.{number}_{a}", label, TRUST, whole))
        for number, _ in enumerate(sentences(answer.as_text), 1):
            where = f"of sentence {number}"
            support = Field(f"support.{number}_{a}", f"Support {where}", SUPPORT, whole)
            relevance = Field(f"relevance.{number}_{a}", f"Relevance {where}", RELEVANCE, whole)
            fields += [support, relevance]
    return [
        *fields,
        _scale("unsupported", "Which has less unsupported information?", whole or later),
        _scale("irrelevant", "Which has less irrelevant information?", whole),
        _scale("useful_strong", "Whose well supported information is more useful?", whole),
        _scale("useful_weak", "Whose weakly supported information is more useful?", whole),
        _scale("coherence", "Which is more coherent?", whole or later),
        _scale("overall", "Weighing everything up, which is more useful?", True),
        Field("comment", "Comment (optional)", required=False, kind="text"),
    ]


def _minimal(item: Item, settings: Settings) -> list[Field]:
    """WebGPT's form with minimal instructions (section F); a single answer is rated by itself."""
    flag = Field("flag", "The question", FLAGS[:2], required=False)
    if len(item.answers) == 1:
        asked = (("accuracy", "Accuracy"), ("coherence", "Coherence"), ("useful", "Usefulness"))
        return [flag, *(Field(f"{name}_0", label, ABSOLUTE) for name, label in asked)]
    return [
        flag,
        _scale("accuracy", "Accuracy: which is more accurate?", True),
        _scale("coherence", "Coherence: which is easier to follow?", True),
        _scale("overall", "Usefulness overall: which would help more?", True),
    ]


def _demonstration(item: Item, settings: Settings) -> list[Field]:
    return [Field("answer", "Your answer", kind="text")]


# --- Rules ---


def _one_with_all(*names: str) -> Callable[[Values], dict[str, str]]:
    """If only one answer has all the boxes ticked, it must be preferred (table 8)."""

    def rule(values: Values) -> dict[str, str]:
        full = [all(values.get(f"{name}_{a}") == "yes" for name in names) for a in (0, 1)]
        rated = all(values.get(f"{name}_{a}") for name in names for a in (0, 1))
        better = str(full.index(True)) if rated and full[0] != full[1] else None
        if better is None or values.get("preferred") in (None, better):
            return {}
        boxes = " and ".join(names)
        return {
            "preferred": f"You marked one answer, and not the other, as {boxes}: "
            "please prefer that one, or change the marks."
        }

    return rule


def _no_rule(_: Values) -> dict[str, str]:
    return {}


FORMS = {
    form.name: form
    for form in (
        Form(
            "comparison",
            "Compare two answers and their evidence",
            (2,),
            _comparison,
            _one_with_all("plausible", "supported"),
            settings=(*_OF_VOTES, "comment_words"),
        ),
        Form(
            "free-text",
            "Compare two answers",
            (2,),
            _free_text,
            _one_with_all("plausible"),
            shows_url=True,
            settings=(*_OF_VOTES, "comment_words"),
        ),
        Form("truthfulqa", "Is the answer truthful?", (1,), _truthfulqa, _no_rule),
        Form("stance", "What does the answer say about the belief?", (1,), _stance, _no_rule),
        Form(
            "long-comparison",
            "Compare two long answers with references",
            (2,),
            _long_comparison,
            _no_rule,
            shows_url=True,
            settings=(*_OF_VOTES, "parts_required", "later_variant"),
        ),
        Form("minimal", "Compare answers", (1, 2), _minimal, _no_rule),
        Form(
            DEMONSTRATION,
            "Answer a question by browsing",
            (0,),
            _demonstration,
            _no_rule,
            settings=_OF_ALL,
        ),
    )
}

_NAME_OF_AN_ANSWER = re.compile(r"(.*)_([01])")


def _other(name: str) -> str:
    """The name of the same question about the other answer."""
    match = _NAME_OF_AN_ANSWER.fullmatch(name)
    return f"{match[1]}_{1 - int(match[2])}" if match else name
