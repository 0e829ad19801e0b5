"""Baselines that choose a quote by rule (GopherCite, section 3.2).

The paper's own are given the gold answer as their claim, and the page that holds it; they bound
what choosing a quote by rule can reach. At test time no answer is known: the question-only ones see
what a model sees, and their claim is the very sentence that they quote.
"""

import random
import re
from collections.abc import Callable, Sequence

from gophercite import evidence
from gophercite.documents import Document
from gophercite.evaluation.metrics import ClaimRule, Judgement, judge
from gophercite.evidence import Evidence
from gophercite.records import Question
from gophercite.text import tfidf
from gophercite.text.answer_matching import contains_answer
from gophercite.text.sentences import sentence_spans


def first_sentence(question: Question) -> Evidence | None:
    """Quotes, and claims, the first sentence of the first page; None where there is none."""
    chosen = next(iter(_sentences(_pages(question))), None)
    return None if chosen is None else _claiming_itself(*chosen)


def tfidf_sentence(question: Question) -> Evidence | None:
    """Quotes, and claims, the sentence of all pages that is nearest to the question.

    Nearest by the cosine of TF-IDF vectors, the document frequency counted over the sentences of
    the pages shown; of equally near sentences the first. None where there is none.
    """
    chosen = _nearest(question.question, _sentences(_pages(question)))
    return None if chosen is None else _claiming_itself(*chosen)


def gold_evidence(question: Question) -> Evidence | None:
    """Gold + GoldEvidence: claims the answer and quotes the gold evidence, whole.

    None where the record lacks one of them, or the page.
    """
    pages = _gold_page(question)
    if not pages or not question.evidence:
        return None
    span = question.evidence[0]
    quote = pages[0].text[span.start : span.end]
    if evidence.holds_mark(quote) or evidence.holds_mark(pages[0].title):
        return None
    return _claiming_answer(question, pages[0], quote)


def gold_random_sentence(question: Question) -> Evidence | None:
    """Gold + Random-Sentence: claims the answer and quotes any sentence of its page.

    Drawn by the question's id: the same at every time. None as for `gold_first_sentence`.
    """
    sentences = _sentences(_gold_page(question))
    if not sentences:
        return None
    chosen = random.Random(f"random sentence/{question.id}").choice(sentences)
    return _claiming_answer(question, *chosen)


def gold_first_sentence(question: Question) -> Evidence | None:
    """Gold + First-Sentence: claims the answer and quotes its page's first sentence.

    None where the record gives no answer or the page is not there.
    """
    chosen = next(iter(_sentences(_gold_page(question))), None)
    return None if chosen is None else _claiming_answer(question, *chosen)


def gold_tfidf_sentence(question: Question) -> Evidence | None:
    """Gold + TFIDF-Sentence: claims the answer and quotes the sentence of its page nearest to both.

    The query is the question followed by the answer, and the document frequency is counted over the
    sentences of that page alone, as in the paper. None as for `gold_first_sentence`.
    """
    query = " ".join((question.question, *question.answers[:1]))
    chosen = _nearest(query, _sentences(_gold_page(question)))
    return None if chosen is None else _claiming_answer(question, *chosen)


def gold_answering_chunk(question: Question) -> Evidence | None:
    """Gold + the first chunk of 100 words, by the pages' ranks, that says the answer.

    The paper shows FiD-DPR's answers with such evidence; here the answer is the gold one, so that
    no reader is needed. None where the record gives no answer or no page says it.
    """
    for page in _pages(question):
        if evidence.holds_mark(page.title):
            continue
        words = [match.span() for match in _WORD.finditer(page.text)]
        for first in range(0, len(words), _CHUNK_WORDS):
            chunk = words[first : first + _CHUNK_WORDS]
            quote = page.text[chunk[0][0] : chunk[-1][1]]
            if contains_answer(quote, question.answers[:1]) and not evidence.holds_mark(quote):
                return _claiming_answer(question, page, quote)
    return None


_WORD = re.compile(r"\S+")
_CHUNK_WORDS = 100  # of DPR's passages

BASELINES: dict[str, Callable[[Question], Evidence | None]] = {
    "first sentence": first_sentence,
    "TF-IDF sentence": tfidf_sentence,
    "gold + gold evidence": gold_evidence,
    "gold + random sentence": gold_random_sentence,
    "gold + first sentence": gold_first_sentence,
    "gold + TF-IDF sentence": gold_tfidf_sentence,
    "gold + answering chunk": gold_answering_chunk,
}


def judge_baselines(
    questions: Sequence[Question], claims: ClaimRule = "equal"
) -> dict[str, list[Judgement]]:
    """Judges each baseline on the questions; what it cannot answer counts as malformed.

    Args:
      questions: with their pages.
      claims: which claims are correct (`metrics.judge`).
    """
    systems: dict[str, list[Judgement]] = {}
    for name, baseline in BASELINES.items():
        chosen = ((question, baseline(question)) for question in questions)
        systems[name] = [
            judge("" if triple is None else evidence.format(triple), question, claims=claims)
            for question, triple in chosen
        ]
    return systems


def _pages(question: Question) -> list[Document]:
    return [source for source in question.documents if isinstance(source, Document)]


def _gold_page(question: Question) -> list[Document]:
    """Returns the page of the first gold span; where there is no gold evidence, the first page."""
    pages = _pages(question)
    if not question.evidence:
        return pages[:1]
    return [page for page in pages if page.id == question.evidence[0].document]


def _sentences(pages: Sequence[Document]) -> list[tuple[Document, str]]:
    """Returns the pages' sentences, but for those that inline evidence cannot hold."""
    return [
        (page, page.text[start:end])
        for page in pages
        if not evidence.holds_mark(page.title)
        for start, end in sentence_spans(page.text)
        if not evidence.holds_mark(page.text[start:end])
    ]


def _claiming_itself(page: Document, sentence: str) -> Evidence:
    return Evidence(claim=sentence, title=page.title, quote=sentence)


def _claiming_answer(question: Question, page: Document, sentence: str) -> Evidence | None:
    if not question.answers or evidence.holds_mark(question.answers[0]):
        return None
    return Evidence(claim=question.answers[0], title=page.title, quote=sentence)


def _nearest(query: str, sentences: Sequence[tuple[Document, str]]) -> tuple[Document, str] | None:
    found = tfidf.nearest(query, [sentence for _, sentence in sentences])
    return None if found is None else sentences[found[0]]
