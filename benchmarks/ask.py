"""What `gophercite ask --extractive` is worth: how often its quote holds the answer, and its time.

    python benchmarks/ask.py [--data DATA] [--questions 1000]

Over the corpora of `benchmarks/search.py`: the paragraphs of SQuAD's Wikipedia articles, and the
gold passages of Natural Questions. `page` is the share of questions whose own page is the one that
is quoted, `answer` that whose quote holds an accepted answer, `declined` that without any; the
quote of every answer is checked against its page.
"""

import argparse
import random
import time

from public_data import add_data
from search import Wanted, natural_questions, squad  # which puts ROOT on the path

from gophercite.answering.extractive import extractive_answer
from gophercite.answering.pages import IndexedPages, index_in_memory
from gophercite.documents import Document
from gophercite.text.answer_matching import contains_answer


def measure(documents: list[Document], wanted: list[Wanted], pages: int) -> str:
    page = answer = declined = 0
    texts = {document.id: document.text for document in documents}
    with index_in_memory(documents) as index:
        source = IndexedPages(index)
        start = time.perf_counter()
        for question, id, accepted in wanted:
            found = extractive_answer(question, source.find(question, pages))
            declined += found.declined
            for citation in found.citations:
                assert texts[citation.document][citation.start : citation.end] == citation.quote
                page += citation.document == id
                answer += contains_answer(citation.quote, accepted)
        milliseconds = 1000 * (time.perf_counter() - start) / len(wanted)
    shares = (f"{share / len(wanted):.3f}" for share in (page, answer, declined))
    return " | ".join((*shares, f"{milliseconds:.1f} ms"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data(parser)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--pages", type=int, default=5)
    flags = parser.parse_args()
    print(
        "| corpus | questions | page | answer | declined | a question |\n|---|---|---|---|---|---|"
    )
    for name, load in (("SQuAD", squad), ("Natural Questions", natural_questions)):
        documents, wanted = load(flags.data)
        random.Random(0).shuffle(wanted)
        wanted = wanted[: flags.questions]
        row = measure(documents, wanted, flags.pages)
        print(f"| {name} | {len(wanted)} | {row} |", flush=True)


if __name__ == "__main__":
    main()
