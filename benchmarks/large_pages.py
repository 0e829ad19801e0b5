"""Training rows from search results of five pages of 1 MB each: how many per second, and memory.

    python benchmarks/large_pages.py [--pages 60] [--page-characters 1000000] [--records 240]
        [--vocabulary models/smollm2/vocabulary]

The rows are those of supervised fine-tuning with prompts of appendix D.2: one to five pages, each
cut to a window around its snippet, drawn again in each epoch, 4,096 tokens a row. One process reads
the pages from the index, cuts and tokenises them while the run goes on. It prints the time until
the first batch, which includes planning the rows, then rows per second, and its peak memory.
"""

import argparse
import itertools
import pathlib
import random
import resource
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from data_pipelines import tasks
from data_pipelines.document_choice import ContextReport
from data_pipelines.inputs import Input
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER
from gophercite import records
from gophercite.documents import Document
from gophercite.records import Hit, RatedAnswer
from gophercite.retrieval.contexts import ContextSettings
from gophercite.retrieval.index import DocumentIndex

RESULTS, LENGTH, ROWS = 5, 4096, 4
SYLLABLES = [
    "ba",
    "ko",
    "mi",
    "re",
    "tu",
    "sel",
    "dor",
    "van",
    "ish",
    "lem",
    "pra",
    "qui",
    "ost",
    "fen",
    "ga",
    "hul",
]


def sentence(draw: random.Random) -> str:
    """A sentence of made-up words."""
    words = ("".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(12))
    return " ".join(words).capitalize() + "."


def make_pages(count: int, characters: int) -> list[tuple[Document, list[str]]]:
    """Pages of about a number of characters, with some of their sentences."""
    draw = random.Random(0)
    pages = []
    for number in range(count):
        sentences, size = [], 0
        while size < characters:
            sentences.append(sentence(draw))
            size += len(sentences[-1]) + 1
        page = Document(f"page{number}", f"Page {number}", " ".join(sentences))
        pages.append((page, draw.sample(sentences, 40)))
    return pages


def make_answer(number: int, pages: list[tuple[Document, list[str]]]) -> RatedAnswer:
    """A rated answer whose documents are found pages, with their snippets; the first is quoted."""
    draw = random.Random(number)
    found = draw.sample(pages, RESULTS)
    snippets = [draw.choice(sentences) for _, sentences in found]
    page = found[0][0]
    return RatedAnswer(
        question_id=str(number),
        question=f"What does sentence {number} say?",
        documents=tuple(
            Hit(page.id, snippet) for (page, _), snippet in zip(found, snippets, strict=True)
        ),
        claim=snippets[0].split()[0],
        title=page.title,
        quote=snippets[0],
        document=page.id,
        plausible=True,
        supported=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=60, help="in the index (default: 60)")
    parser.add_argument("--page-characters", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=240, help="rated answers (default: 240)")
    parser.add_argument("--batches", type=int, default=40, help=f"of {ROWS} rows (default: 40)")
    parser.add_argument("--vocabulary", default=str(VOCABULARY_FOLDER))
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pages = make_pages(flags.pages, flags.page_characters)
        index = pathlib.Path(folder) / "pages.db"
        with DocumentIndex(index, write=True) as file:
            file.add(page for page, _ in pages)
        path = pathlib.Path(folder) / "rated.jsonl"
        records.write(path, [make_answer(number, pages) for number in range(flags.records)])
        report = ContextReport()
        name = tasks.add_rated_answers(
            "large_pages",
            {"train": path},
            flags.vocabulary,
            contexts=ContextSettings(),
            report=report,
            index=str(index),
        )
        del pages
        source = Input(name, "train", LENGTH, ROWS, seed=0, plan_folder=folder)
        begun = time.monotonic()
        batches = source.batches()
        next(batches)
        print(
            f"first batch, after planning {flags.records} records: {time.monotonic() - begun:.1f} s"
        )
        begun, cpu = time.monotonic(), time.process_time()
        made = report.made
        tokens = sum(
            int((batch["segments"] > 0).sum()) for batch in itertools.islice(batches, flags.batches)
        )
        wall, cpu, made = time.monotonic() - begun, time.process_time() - cpu, report.made - made
        rows = ROWS * flags.batches
        print(f"{rows} rows: {rows / wall:.0f} a second, {rows / cpu:.0f} a second of a core")
        print(
            f"{made} prompts, {tokens / wall:,.0f} tokens a second; dropped: {dict(report.dropped)}"
        )
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"peak memory of the process: {peak:.1f} GiB")


if __name__ == "__main__":
    main()
