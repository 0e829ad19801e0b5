"""Baselines that choose a quote by rule (GopherCite, section 3.2).

The paper's own baselines are given the gold answer as their claim, and the page that holds it; they
bound what choosing a quote by rule can reach. At test time no answer is known: the question-only
baselines see what a model sees, and their claim is the very sentence that they quote.
"""

import random
import re
from collections.abc import Callable, Sequence

from gophercite import evidence
from gophercite.documents import Document
from gophercite.evaluation.metrics import ClaimRule, Judgement, judge
from gophercite.evidence import Evidence
from gophercite.records import Question
from gophercite.text import bm25, tfidf
from gophercite.text.answer_matching import contains_answer
from gophercite.text.sentences import sentence_spans


def first_sentence(question: Question) -> Evidence | None:
    """Takes the first sentence of the first page as claim and quote; None if there is none."""
    chosen = next(iter(_sentences(_pages(question))), None)
    return None if chosen is None else _claiming_itself(*chosen)


def tfidf_sentence(question: Question) -> Evidence | None:
    """Takes the sentence nearest to the question, of all pages, as claim and quote.

    Nearest means by the cosine of TF-IDF vectors, with document frequencies counted over the
    sentences of the pages shown; on a tie the first wins. None if there is no sentence.
    """
    chosen = _nearest(question.question, _sentences(_pages(question)))
    return None if chosen is None else _claiming_itself(*chosen)


def bm25_sentence(question: Question) -> Evidence | None:
    """Takes the best sentence for the question's words by BM25, of all pages, as claim and quote.

    None if there is no sentence.
    """
    sentences = _sentences(_pages(question))
    found = bm25.best(question.question, [sentence for _, sentence in sentences])
    return None if found is None else _claiming_itself(*sentences[found])


def gold_evidence(question: Question) -> Evidence | None:
    """Gold + GoldEvidence: claims the answer and quotes the complete gold evidence.

    None if the record lacks either of them, or the page.
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
    """Gold + Random-Sentence: claims the answer and quotes a random sentence of its page.

    The draw is seeded by the question's id, so it is always the same. None as for
    `gold_first_sentence`.
    """
    sentences = _sentences(_gold_page(question))
    if not sentences:
        return None
    chosen = random.Random(f"random sentence/{question.id}").choice(sentences)
    return _claiming_answer(question, *chosen)


def gold_first_sentence(question: Question) -> Evidence | None:
    """Gold + First-Sentence: claims the answer and quotes its page's first sentence.

    None if the record gives no answer or the page is missing.
    """
    chosen = next(iter(_sentences(_gold_page(question))), None)
    return None if chosen is None else _claiming_answer(question, *chosen)


def gold_tfidf_sentence(question: Question) -> Evidence | None:
    """Gold + TFIDF-Sentence: claims the answer and quotes the sentence of its page nearest to both.

    The query is the question followed by the answer, and document frequencies are counted over the
    sentences of that page alone, as in the paper. None as for `gold_first_sentence`.
    """
    query = " ".join((question.question, *question.answers[:1]))
    chosen = _nearest(query, _sentences(_gold_page(question)))
    return None if chosen is None else _claiming_answer(question, *chosen)


def gold_answering_chunk(question: Question) -> Evidence | None:
    """Gold + the first chunk of 100 words that contains the answer, in the order of the pages.

    The paper shows FiD-DPR's answers with such evidence; here the answer is the gold one, so no
    reader is needed. None if the record gives no answer or no page contains it.
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
_CHUNK_WORDS = 100  # as in DPR's passages

BASELINES: dict[str, Callable[[Question], Evidence | None]] = {
    "first sentence": first_sentence,
    "TF-IDF sentence": tfidf_sentence,
    "BM25 sentence": bm25_sentence,
    "gold + gold evidence": gold_evidence,
    "gold + random sentence": gold_random_sentence,
    "gold + first sentence": gold_first_sentence,
    "gold + TF-IDF sentence": gold_tfidf_sentence,
    "gold + answering chunk": gold_answering_chunk,
}


def judge_baselines(
    questions: Sequence[Question], claims: ClaimRule = "equal"
) -> dict[str, list[Judgement]]:
    """Judges each baseline on the questions; a missing answer counts as malformed.

    Args:
      questions: with their pages.
      claims: which claims count as correct (`metrics.judge`).
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
    """Returns the page of the first gold span; without gold evidence, the first page."""
    pages = _pages(question)
    if not question.evidence:
        return pages[:1]
    return [page for page in pages if page.id == question.evidence[0].document]


def _sentences(pages: Sequence[Document]) -> list[tuple[Document, str]]:
    """Returns the pages' sentences, except those that inline evidence cannot hold."""
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
