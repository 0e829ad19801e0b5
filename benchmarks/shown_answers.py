"""How often the prompts of `gophercite ask` show the answer, where pages are whole articles.

    python benchmarks/shown_answers.py --model models/smollm2-citing --limit 1000 \\
      --questions runs/real_questions/data/new_wiki/questions_test.jsonl \\
      --documents runs/real_questions/data/new_wiki/documents_*.jsonl

All documents of a title are one article, or with --joined 2 each two of them. Each question is
asked of five articles that an index of them finds, and of its own article alone; with one prompt
for all pages, and with a prompt for each. Prompts show what is around the index's snippets, or the
passages that fit the question best; with --always these even where a third of all pages, or more,
could be shown. An answer counts where it stands in the question's own document. Nothing is sampled.
Intervals are 90 %, Wilson's.
"""

import argparse
import dataclasses
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.choosing import articles_of, spread
from gophercite import records
from gophercite.answering import preparing
from gophercite.answering.answerer import Answerer
from gophercite.answering.pages import FoundPages, IndexedPages, index_in_memory
from gophercite.answering.preparing import Prepared
from gophercite.answering.settings import AnsweringSettings
from gophercite.documents import Document
from gophercite.evaluation.intervals import estimate
from gophercite.model_folders.folder import load_model
from gophercite.reports.tables import Table


def places(question: records.Question, articles: dict[str, Document]) -> tuple[str, list[slice]]:
    """The article with the question's document, and where answers stand in that part of it."""
    document = question.documents[0]
    article = articles[document.id]
    first = article.text.index(document.text)
    found = [
        slice(first + match.start(), first + match.end())
        for answer in question.answers
        for match in re.finditer(re.escape(answer), document.text, re.IGNORECASE)
    ]
    return article.id, found


def shows(prepared: Prepared, article: str, answers: list[slice]) -> bool:
    """Whether a prompt shows one of the places."""
    return any(
        window.document.id == article and window.start <= place.start and place.stop <= window.end
        for context in prepared.contexts
        for window in context.windows
        for place in answers
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="the model's folder; only its vocabulary is used")
    add("--questions", required=True, help="questions with answers and a document, JSON lines")
    add("--documents", nargs="+", required=True, metavar="FILE", help="documents, JSON lines")
    add("--limit", type=int, default=400, help="questions, spread over the file (default: 400)")
    add("--joined", type=int, help="documents of a title that make an article (default: all)")
    add("--always", action="store_true", help="show passages whatever the pages' length")
    flags = parser.parse_args()
    if flags.always:
        preparing.LEAST_AROUND_SNIPPETS = float("inf")

    documents = {
        document.id: document
        for file in flags.documents
        for document in records.read(file, Document)
    }
    made = list(articles_of(documents.values(), flags.joined))
    articles = {article.id: article for article, _ in made}
    article_of = {part.id: article for article, parts in made for part in parts}
    asked = [(q, *places(q, article_of)) for q in spread(flags.questions, flags.limit)]
    asked = [each for each in asked if each[2]]
    model = load_model(flags.model)
    found: dict[str, list[FoundPages]] = {"five found": [], "its own alone": []}
    with index_in_memory(articles.values()) as index:
        found["five found"] = [IndexedPages(index).find(q.question, 5) for q, _, _ in asked]
    for question, article, _ in asked:
        with index_in_memory([articles[article]]) as index:
            found["its own alone"].append(IndexedPages(index).find(question.question, 1))
    rows = []
    for joint in (True, False):
        answerer = Answerer(model, AnsweringSettings(joint=joint))
        for pages, results in found.items():
            for inside in (False, True):
                start, shown, prompts = time.process_time(), [], 0
                for (question, article, answers), result in zip(asked, results, strict=True):
                    pages_found = dataclasses.replace(result, search_inside=inside)
                    prepared = answerer.prepare(question.question, pages_found)
                    shown.append(float(shows(prepared, article, answers)))
                    prompts += len(prepared.contexts)
                each = 1000 * (time.process_time() - start) / len(asked)
                rows.append(
                    [
                        pages,
                        "one for all" if joint else "each its own",
                        "passages" if inside else "around snippets",
                        str(estimate(shown)),
                        f"{prompts / len(asked):.2f}",
                        f"{each:.1f}",
                    ]
                )
    names = ["articles", "prompt", "what is shown", "answer shown %", "prompts", "ms a question"]
    print(Table(names, rows).markdown(), end="")
    print(f"{len(asked)} questions, {len(articles)} articles")


if __name__ == "__main__":
    main()
