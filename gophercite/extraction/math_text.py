"""Mathematics of web pages as a line of text: its TeX if there is any, else from its MathML."""

import re
from collections.abc import Iterator

import lxml.etree

LONGEST = 2000  # characters of a formula
_DEEPEST = 60  # nested elements

_TEX = ("application/x-tex", "text/latex", "latex", "tex")
_TEX_CLASSES = frozenset({"tex", "latex", "math", "mwe-math-fallback-image-inline"})
_STYLE = re.compile(r"\{?\\(?:display|text|script)style\s+")


def of_element(math: lxml.etree._Element) -> str:
    """Returns the text of a `<math>` element."""
    for each in math.iter():
        if _name(each) == "annotation" and each.get("encoding", "").lower() in _TEX and each.text:
            return of_tex(each.text)
    if math.get("alttext"):
        return of_tex(math.get("alttext"))
    return _one_line("".join(_linear(math, 0)))


def of_tex(tex: str) -> str:
    r"""Returns TeX without commands that only set its size, such as `{\displaystyle …}`."""
    text = _one_line(tex)
    match = _STYLE.match(text)
    if match is None:
        return text
    text = text[match.end() :]
    return text.removesuffix("}").strip() if match.group().startswith("{") else text.strip()


def is_tex_image(alternative: str, classes: str) -> bool:
    """Whether an image shows a formula whose TeX is its alternative text."""
    if alternative.startswith(("{\\displaystyle", "{\\textstyle")):
        return True
    return bool(alternative and _TEX_CLASSES & set(classes[:1000].lower().split()))


def _linear(element: lxml.etree._Element, depth: int) -> Iterator[str]:
    """An element of MathML as text, with `^`, `_` and `/`."""
    if depth > _DEEPEST or not isinstance(element.tag, str):
        return
    name = _name(element)
    if name in ("annotation", "annotation-xml"):
        return
    parts = ["".join(_linear(child, depth + 1)) for child in element]
    match name, parts:
        case (("msup" | "mover"), [base, above]):
            yield f"{base}^{_grouped(above)}"
        case (("msub" | "munder"), [base, below]):
            yield f"{base}_{_grouped(below)}"
        case (("msubsup" | "munderover"), [base, below, above]):
            yield f"{base}_{_grouped(below)}^{_grouped(above)}"
        case "mfrac", [over, under]:
            yield f"{_grouped(over)}/{_grouped(under)}"
        case "msqrt", _:
            yield f"√{_grouped(''.join(parts))}"
        case "mroot", [base, degree]:
            yield f"{_grouped(base)}^{_grouped(f'1/{_grouped(degree)}')}"
        case "mtr", _:
            yield ", ".join(parts) + "; "
        case "mo", []:
            operator = (element.text or "").strip()
            yield operator if operator in "()[]{}|,.!′" else f" {operator} "
        case _:
            yield (element.text or "").strip()
            yield from parts


def _grouped(text: str) -> str:
    text = text.strip()
    return text if len(text) < 2 or text.isalnum() else f"({text})"


def _name(element: lxml.etree._Element) -> str:
    return element.tag.rpartition("}")[2].rpartition(":")[2] if isinstance(element.tag, str) else ""


def _one_line(text: str) -> str:
    return " ".join(text[:LONGEST].split())
