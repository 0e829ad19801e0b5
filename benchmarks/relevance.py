"""How well `gophercite ask --extractive` tells questions that its pages answer from others.

    python benchmarks/relevance.py [--data DATA] [--questions 1000]

Each question of `benchmarks/search.py` is asked twice: of 29 pages on other subjects with its own
page among them, and of 30 pages on other subjects. For each threshold: `given` is the share that is
answered where the page is there, `right` the share of the answers that hold an accepted one which
are still given, `declined` the share that is declined where it is not there.
"""

import argparse
import collections
import random

from public_data import add_data
from search import Wanted, natural_questions, squad  # which puts ROOT on the path

from gophercite.answering.extractive import LEAST_RELEVANCE, extractive_answer
from gophercite.answering.pages import IndexedPages, index_in_memory
from gophercite.documents import Document
from gophercite.text.answer_matching import contains_answer

PAGES = 30
SUBJECTS = 20
OF_A_SUBJECT = 3
THRESHOLDS = (0.0, 0.2, 0.25, 0.3, LEAST_RELEVANCE, 0.4, 0.5)


def measure(documents: list[Document], wanted: list[Wanted]) -> list[str]:
    own = {document.id: document for document in documents}
    subjects = collections.defaultdict(list)
    for document in documents:
        subjects[document.title].append(document)
    draw = random.Random(1)
    given, right, declined = collections.Counter(), collections.Counter(), collections.Counter()
    for question, id, accepted in wanted:
        others = sorted(subjects.keys() - {own[id].title})
        titles = draw.sample(others, min(SUBJECTS, len(others)))
        pages = [page for title in titles for page in subjects[title][:OF_A_SUBJECT]][:PAGES]
        for are_there, shown in ((True, [*pages[1:], own[id]]), (False, pages)):
            with index_in_memory(shown) as index:
                found = IndexedPages(index).find(question, 5)
            for least in THRESHOLDS:
                answer = extractive_answer(question, found, least_relevance=least)
                if not are_there:
                    declined[least] += answer.declined
                elif not answer.declined:
                    given[least] += 1
                    right[least] += contains_answer(answer.citations[0].quote, accepted)
    number = len(wanted)
    return [
        f"{least:.2f} | {given[least] / number:.3f} | {right[least] / right[0.0]:.3f} | "
        f"{declined[least] / number:.3f}"
        for least in THRESHOLDS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data(parser)
    parser.add_argument("--questions", type=int, default=1000)
    flags = parser.parse_args()
    print("| corpus | threshold | given | right | declined |\n|---|---|---|---|---|")
    for name, load in (("SQuAD", squad), ("Natural Questions", natural_questions)):
        documents, wanted = load(flags.data)
        random.Random(0).shuffle(wanted)
        for row in measure(documents, wanted[: flags.questions]):
            print(f"| {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
