"""How well and how fast the embedded search engine finds the page that answers a question.

    python benchmarks/search.py [--data DATA] [--questions 2000]

Recall at 1, 5 and 10 and the time of a query over two corpora: the paragraphs of SQuAD's Wikipedia
articles (each question's own paragraph is wanted; the article's title is known to all of them), and
the gold passages of Natural Questions. `snippet` is the share of questions whose answer stands in
the snippet of the wanted hit, when it is among ten.
"""

import argparse
import gzip
import json
import pathlib
import random
import sys
import tempfile
import time
from typing import NamedTuple

from public_data import add_data

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gophercite.documents import Document  # noqa: E402
from gophercite.retrieval.index import DocumentIndex  # noqa: E402


class Wanted(NamedTuple):
    question: str
    document: str
    answers: list[str]


def squad(data: pathlib.Path) -> tuple[list[Document], list[Wanted]]:
    with gzip.open(data / "squad/wikipedia.json.gz") as file:
        articles = json.load(file)["data"]
    documents, wanted = [], []
    for article in articles:
        for number, paragraph in enumerate(article["paragraphs"]):
            id = f"{article['title']}/{number}"
            documents.append(Document(id, article["title"], paragraph["context"]))
            wanted += [
                Wanted(q["question"], id, [a["text"] for a in q["answers"]])
                for q in paragraph["qas"]
            ]
    return documents, wanted


def natural_questions(data: pathlib.Path) -> tuple[list[Document], list[Wanted]]:
    documents: dict[str, Document] = {}  # by text: some passages answer several questions
    wanted = []
    with gzip.open(data / "natural_questions/gold_passages.jsonl.gz", "rt") as lines:
        for record in map(json.loads, lines):
            gold = record["ctxs"][0]
            document = Document(str(len(documents)), gold["title"], gold["text"])
            document = documents.setdefault(gold["text"], document)
            wanted.append(Wanted(record["question"], document.id, record["answers"]))
    return list(documents.values()), wanted


def measure(documents: list[Document], wanted: list[Wanted]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "corpus.db")
        start = time.perf_counter()
        with DocumentIndex(path, write=True) as index:
            index.add(documents)
        built = time.perf_counter() - start
        ranks, in_snippet = [], 0
        with DocumentIndex(path) as index:
            start = time.perf_counter()
            for question, id, answers in wanted:
                hits = index.search(question, 10)
                found = [hit.id for hit in hits]
                ranks.append(found.index(id) if id in found else 10)
                if id in found:
                    snippet = hits[ranks[-1]].snippet.lower()
                    in_snippet += any(answer.lower() in snippet for answer in answers)
            seconds = time.perf_counter() - start
        size = path.stat().st_size
    texts = sum(len(document.text.encode()) for document in documents)
    return {
        "documents": len(documents),
        "questions": len(wanted),
        **{f"recall@{k}": round(sum(r < k for r in ranks) / len(ranks), 3) for k in (1, 5, 10)},
        "snippet": round(in_snippet / sum(rank < 10 for rank in ranks), 3),
        "ms_a_query": round(1000 * seconds / len(wanted), 2),
        "seconds_to_build": round(built, 2),
        "bytes_of_file_a_byte_of_text": round(size / texts, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add_data(parser)
    parser.add_argument("--questions", type=int, default=2000, help="of each corpus, at random")
    options = parser.parse_args()
    for corpus in (squad, natural_questions):
        documents, wanted = corpus(options.data)
        wanted = random.Random(0).sample(wanted, min(options.questions, len(wanted)))
        print(json.dumps({"corpus": corpus.__name__, **measure(documents, wanted)}))


if __name__ == "__main__":
    main()
