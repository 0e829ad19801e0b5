"""What any output shows as verbatim is the page's text at the place that the answer names."""

import html
import io
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from gophercite.answering.citing import cited
from gophercite.answering.extractive import extractive_answer
from gophercite.answering.highlighting import highlight
from gophercite.answering.pages import FoundPages
from gophercite.answering.verification import in_documents, verify
from gophercite.cli.answer_text import AnswerText
from gophercite.documents import Document, Window
from gophercite.evidence import Evidence
from gophercite.records.answers import Answer, answer_to_json
from gophercite.retrieval.contexts import SearchResult

QUESTION = "Who built the lighthouse?"

words = st.sampled_from(["lighthouse", "built", "Ada", "<b>", "&amp;", "é", "1874.", "tall.\n\nIt"])
gaps = st.sampled_from([" ", "\n", "  ", " \n "])
passages = st.lists(st.tuples(words, gaps), min_size=1, max_size=30).map(
    lambda parts: "".join(word + gap for word, gap in parts)
)


@settings(max_examples=60, deadline=None)
@given(passages, st.integers(0, 3))
def test_what_is_shown_as_verbatim_is_the_text_at_its_place(passage: str, repeated: int) -> None:
    """In each output, and where a passage stands in its page several times."""
    text = f"It is tall.\n{passage}" + f"\n\n{passage}" * repeated
    document = Document("o", "Ormsby", text, page_starts=(0, len(text) // 2))
    check_outputs(extractive_answer(QUESTION, FoundPages((SearchResult(document),))), document)


@settings(max_examples=60, deadline=None)
@given(passages, st.integers(0, 3), st.data())
def test_so_it_is_where_a_model_quotes_from_a_window(
    passage: str, repeated: int, data: st.DataObject
) -> None:
    text = f"It is tall.\n{passage}" + f"\n\n{passage}" * repeated
    document = Document("o", "Ormsby", text, page_starts=(0, len(text) // 2))
    first = data.draw(st.integers(0, len(text) - 6))
    window = Window(document, first, data.draw(st.integers(first + 6, len(text))))
    start = data.draw(st.integers(0, len(window.text) - 6))
    quote = window.text[start : data.draw(st.integers(start + 6, len(window.text)))]
    triple = Evidence("Ada", "Ormsby", quote)
    if quote.strip():
        found = Answer(QUESTION, "m", citations=tuple(cited(triple, [window], 0)))
        # At the first place in the window, or at a later one that has it as whole words.
        place = found.citations[0].start or 0
        assert window.start <= place
        assert place + len(quote) <= window.start + len(window.text)
        assert text.startswith(quote, place)
        check_outputs(found, document)


def check_outputs(found: Answer, document: Document) -> None:
    text = document.text
    for citation in found.citations:
        assert citation.start is not None
        said = answer_to_json(found)["answer"][0]
        assert text[said["start"] : said["end"]] == said["quote"] == citation.quote
        (check,) = verify(found, in_documents([document], found))
        assert (check.start, check.end) == (said["start"], said["end"])
        body = highlight(found, [document]).body
        shown = body[body.index('<div class="text"') : body.index("</div>")]
        marked = re.findall(r"<mark>(.*?)</mark>", shown, re.DOTALL)
        assert [html.unescape(each) for each in marked] == [citation.quote]
        box = [line[4:] for line in AnswerText(io.StringIO()).citation(citation)
               if line.startswith("  │ ")]  # fmt: skip
        assert " ".join(box).split() == citation.quote.split()
