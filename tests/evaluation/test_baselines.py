"""The sentence baselines."""

import dataclasses

from gophercite.documents import Document
from gophercite.evaluation import baselines
from gophercite.evaluation.metrics import judge
from gophercite.evidence import Evidence, format
from gophercite.records import Hit, Question, Span

ORMSBY = Document(
    "o",
    "Ormsby",
    "Ormsby is a fishing town on the coast. The town has a lighthouse. "
    "Ada Fenwick built it in 1874. Salt is made in the yards of the town.",
)
ILSE = Document(
    "i", "Ilse (river)", "The Ilse is a river. It is 40 km long and feeds the salt yards."
)
ANSWERING = "Ada Fenwick built it in 1874."
START = ORMSBY.text.index(ANSWERING)
QUESTION = Question(
    id="q",
    question="Which engineer built the lighthouse of the town?",
    source="test",
    documents=(ILSE, ORMSBY),
    answers=("Ada Fenwick",),
    evidence=(Span("o", START, START + len(ANSWERING)),),
)


def test_first_sentences() -> None:
    first = "The Ilse is a river."
    assert baselines.first_sentence(QUESTION) == Evidence(first, "Ilse (river)", first)
    gold = Evidence("Ada Fenwick", "Ormsby", "Ormsby is a fishing town on the coast.")
    assert baselines.gold_first_sentence(QUESTION) == gold


def test_bm25_compares_stems() -> None:
    question = dataclasses.replace(QUESTION, question="Where are fishes?")
    fishing = "Ormsby is a fishing town on the coast."
    assert baselines.bm25_sentence(question) == Evidence(fishing, "Ormsby", fishing)
    assert baselines.bm25_sentence(dataclasses.replace(QUESTION, documents=())) is None


def test_the_gold_evidence_is_quoted_whole() -> None:
    assert baselines.gold_evidence(QUESTION) == Evidence("Ada Fenwick", "Ormsby", ANSWERING)
    assert baselines.gold_evidence(dataclasses.replace(QUESTION, evidence=())) is None
    elsewhere = dataclasses.replace(QUESTION, documents=(ILSE, Hit("o", "a snippet")))
    assert baselines.gold_evidence(elsewhere) is None


def test_random_sentences_are_of_the_gold_page_and_stay_the_same() -> None:
    drawn = set()
    for number in range(40):
        question = dataclasses.replace(QUESTION, id=str(number))
        found = baselines.gold_random_sentence(question)
        assert found is not None
        assert found == baselines.gold_random_sentence(question)
        drawn.add(found.quote)
    assert len(drawn) == 4
    assert all(sentence in ORMSBY.text for sentence in drawn)


def test_the_first_chunk_that_says_the_answer_is_quoted() -> None:
    filler = "word " * 98
    # The first chunk of a hundred words ends between the answer's two, the second begins there.
    text = f"{filler}\nmore Ada\nFenwick {filler}\n\nmore Ada  Fenwick built it."
    question = dataclasses.replace(
        QUESTION, documents=(ILSE, Document("p", "P", text), ORMSBY), evidence=()
    )
    found = baselines.gold_answering_chunk(question)
    assert found == Evidence("Ada Fenwick", "P", "Ada  Fenwick built it.")
    assert judge(format(found), question).verbatim
    only = dataclasses.replace(question, documents=(ILSE,))
    assert baselines.gold_answering_chunk(only) is None


def test_the_answer_in_the_query_changes_the_nearest_sentence() -> None:
    """As the paper found: question and answer together do better than the question alone."""
    alone = baselines.tfidf_sentence(QUESTION)
    assert alone is not None
    assert alone.quote == "The town has a lighthouse."
    both = baselines.gold_tfidf_sentence(QUESTION)
    assert both == Evidence("Ada Fenwick", "Ormsby", ANSWERING)
    assert judge(format(both), QUESTION).supported


def test_rare_words_weigh_more_than_common_ones() -> None:
    page = Document("p", "P", "It is the one of the many. The mill of it. Of the town it is one.")
    question = dataclasses.replace(QUESTION, question="Is it the mill?", documents=(page,))
    nearest = baselines.tfidf_sentence(question)
    assert nearest is not None
    assert nearest.quote == "The mill of it."


def test_the_first_of_equally_near_sentences_is_chosen() -> None:
    question = dataclasses.replace(QUESTION, question="xyzzy?")
    nearest = baselines.tfidf_sentence(question)
    assert nearest is not None
    assert nearest.quote == "The Ilse is a river."


def test_sentences_that_evidence_cannot_hold_are_passed_over() -> None:
    page = Document("p", "P", "A bad %< sentence. A good sentence.")
    untitled = Document("u", "U ]%", "A sentence.")
    question = dataclasses.replace(QUESTION, documents=(untitled, page), evidence=())
    for name, baseline in baselines.BASELINES.items():
        found = baseline(question)
        if found is not None:
            assert found.quote == "A good sentence.", name
            assert judge(format(found), question).verbatim


def test_without_pages_or_answers_there_is_nothing_to_say() -> None:
    for documents in ((), (Hit("h", "snippet"),), (Document("e", "Empty", " "),)):
        question = dataclasses.replace(QUESTION, documents=documents)
        assert [baseline(question) for baseline in baselines.BASELINES.values()] == [None] * 8
    unanswered = dataclasses.replace(QUESTION, answers=())
    assert baselines.gold_tfidf_sentence(unanswered) is None
    assert baselines.first_sentence(unanswered) is not None
