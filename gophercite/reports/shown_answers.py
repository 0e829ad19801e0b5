"""A judged answer next to its page: its quote marked where it stands, and what is wrong with it."""

from gophercite import evidence
from gophercite.documents import Document
from gophercite.evaluation.curves import Line
from gophercite.evaluation.metrics import Judgement, judge
from gophercite.evidence import Evidence
from gophercite.html.escaping import escape_html
from gophercite.html.marked_pages import CONTEXT, Mark, MarkedPages, about, source
from gophercite.records import Question
from gophercite.retrieval.snippets import find_snippet

_COMPARED = 300  # characters of a quote that are compared to find similar text


def show_answer(
    line: Line, question: Question, *, maximum_omissions: int = 0, context: int = CONTEXT
) -> MarkedPages:
    """Shows an answer of an evaluation; notebooks display the return value.

    A quote that occurs in a page with the named title is marked there. If it does not, the most
    similar text of that page is marked in another colour. The question's other pages are not shown.

    Args:
      line: a line of PREFIX.jsonl or PREFIX_samples.jsonl that is not declined.
      question: the question that it answers, with its pages.
      maximum_omissions: maximum number of ` [...] ` in a quote, as when the model was prompted.
      context: characters of a page that are shown before and after a quote.

    Raises:
      ValueError: the line belongs to another question, or is declined.
    """
    if line["question_id"] != question.id:
        raise ValueError(f"the answer is to question {line['question_id']!r}, not {question.id!r}")
    if line.get("declined"):
        raise ValueError(f"question {question.id!r} was declined: {line.get('reason')}")
    answer = line.get("answer", line["text"])  # a few-shot sample goes on behind its answer
    judgement = judge(answer, question, maximum_omissions)
    pages = [page for page in question.documents if isinstance(page, Document)]
    parts = [f'<p dir="auto">{escape_html(question.question)}</p>\n']
    for triple in judgement.triples:
        parts.append(f'<p class="claim" dir="auto">{escape_html(triple.claim)}</p>\n')
        parts.append(_evidence(triple, pages, maximum_omissions, context))
    if not judgement.triples:
        parts.append(f"<blockquote>{escape_html(answer)}</blockquote>\n")
    parts.append(about(*_verdicts(judgement, question), *_scores(line)))
    return MarkedPages(question.question, "".join(parts))


def _evidence(triple: Evidence, pages: list[Document], omissions: int, context: int) -> str:
    runs = evidence.runs_of(triple.quote, omissions)
    named = [page for page in pages if page.title == triple.title]
    for page in named:
        if all(run and run in page.text for run in runs):
            places = [(page.text.index(run), run) for run in runs]
            marks = [Mark(start, start + len(run)) for start, run in places]
            return source(page, marks, "the quote is here, word for word", context)
    said = f"the quote {triple.quote!r} is not here"
    if not named:
        said = f"no page has the title {triple.title!r}, and {said}"
    for page in named or pages:
        match = find_snippet(triple.quote[:_COMPARED], page.text)
        if match is not None:
            marks = [Mark(*match.spans[0], is_quote=False)]
            return source(page, marks, f"{said}; this passage is the most similar", context)
    if named:
        return source(named[0], [], f"{said}, nor anything similar", context)
    return (
        f"<blockquote>{escape_html(triple.quote)}</blockquote>\n"
        f"{about(escape_html(f'{said}, and no page has anything similar'))}"
    )


def _verdicts(judgement: Judgement, question: Question) -> list[str]:
    """What is known about the answer, as a list of HTML fragments."""
    named = {
        "well-formed": judgement.well_formed,
        "verbatim": judgement.verbatim,
        "claim correct": judgement.claim_correct,
        "supported": judgement.supported,
    }
    found = [
        f'<span class="{"yes" if holds else "no"}">{"✓" if holds else "✗"} {name}</span>'
        for name, holds in named.items()
        if holds is not None
    ]
    if question.answers:
        found.append(f"accepted: {escape_html(' / '.join(question.answers))}")
    if judgement.faults:
        faults = ", ".join(sorted(fault.value for fault in judgement.faults))
        found.append(f'<span class="no">faults: {escape_html(faults)}</span>')
    return found


def _scores(line: Line) -> list[str]:
    named = {"reward": line.get("reward"), "log-probability": line.get("log_prob")}
    return [f"{name} {score:.3g}" for name, score in named.items() if score is not None]
