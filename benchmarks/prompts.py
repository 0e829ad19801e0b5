"""Prompts of appendix D.2 from whole pages: how fast they are made, and what they hold.

    python benchmarks/prompts.py [--data DATA] [--vocabulary FOLDER] [--prompts 60]

Speed, on one core: a target page and nine results of 5 to 200 kB with their snippets, half of which
have changed by a word since; prompts of 4096 - 256 tokens. The same with `fuzzywuzzy` where that is
installed (extra `paper`): both from pages that are held with their tokens, and both from pages that
are not, so that the search for the snippet alone differs. They take turns, and the least processor
time of three turns counts; the words of the pages were met before. Then prompts from pages with
words that were not, each made once. Contents: questions on articles (SQuAD and SquadShifts'
Wikipedia) that the embedded index finds among all articles and stories, with its snippets.
"""

import argparse
import collections
import gzip
import importlib.util
import itertools
import json
import pathlib
import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator

from public_data import add_data

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from gophercite import records
from gophercite.documents import Document
from gophercite.evidence import holds_mark
from gophercite.retrieval.contexts import Context, ContextSettings, SearchResult
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.snippets import Engine, find_snippet, fragments
from gophercite.retrieval.tokenised_pages import TokenisedPages
from gophercite.retrieval.training_contexts import training_context
from gophercite.text.sentences import sentence_spans
from gophercite.vocabularies import Vocabulary, load_vocabulary, train_sentencepiece

PROMPT_TOKENS = 4096 - 256
RESULTS = 10
TURNS = 3
FIRST_PAGES = 80  # whose words are met for the first time, and as many whose words are known
SMALLEST, LARGEST = 5_000, 200_000  # characters of a page


def lines(path: pathlib.Path) -> Iterator[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def articles(path: pathlib.Path) -> Iterator[tuple[Document, list[tuple[str, int]]]]:
    """Each article as one page, with its questions and where their answers start."""
    with gzip.open(path) as file:
        data = json.load(file)["data"]
    for article in data:
        text, questions = "", []
        for paragraph in article["paragraphs"]:
            for asked in paragraph["qas"]:
                if asked["answers"]:
                    start = len(text) + asked["answers"][0]["answer_start"]
                    questions.append((asked["question"], start))
            text += paragraph["context"] + "\n\n"
        page = Document(article["title"], article["title"].replace("_", " "), text)
        if page.text == text:  # else offsets would have to move along
            yield page, questions


def sentence_around(page: Document, place: int) -> str:
    text = page.text
    paragraph = text.rfind("\n\n", 0, place) + 2 if "\n\n" in text[:place] else 0
    end = text.find("\n\n", place)
    spans = [(paragraph + a, paragraph + b) for a, b in sentence_spans(text[paragraph:end])]
    start, stop = next((a, b) for a, b in spans if a <= place < b)
    return text[start:stop]


# --- Speed ---


def long_pages(data: pathlib.Path, number: int, draw: random.Random) -> list[Document]:
    """Pages of textbook prose, each size between the bounds equally likely on a log scale."""
    texts = (line["text"] for path in sorted((data / "text").glob("*.gz")) for line in lines(path))
    pages = []
    for place in range(number):
        size = int(SMALLEST * (LARGEST / SMALLEST) ** draw.random())
        text = ""
        while len(text) < size:
            text += next(texts) + "\n\n"
        pages.append(Document(str(place), f"Section {place}", text[:size]))
    return pages


def some_sentence(page: Document, draw: random.Random) -> str:
    start = draw.randrange(len(page.text) // 2)
    region = page.text[start : start + 2000]
    sentences = [region[a:b] for a, b in sentence_spans(region)[1:-1]]
    return draw.choice(sentences or [region[:200]])


def result(page: Document, draw: random.Random) -> SearchResult:
    words: list[str] = []
    while len(words) < 10:  # elsewhere than in a formula
        start = draw.randrange(len(page.text) - 200)
        words = page.text[start : start + 160].split()[1:-1]
    middle = len(words) // 2
    if draw.random() < 0.5:
        words[middle] = "formerly"  # the page has changed since
    return SearchResult(page, f"{' '.join(words[:3])} <b>{words[3]}</b> {' '.join(words[4:])} …")


def measure_speed(data: pathlib.Path, vocabulary: Vocabulary, prompts: int) -> None:
    draw = random.Random(0)
    pages = long_pages(data, 40, draw)
    engines: list[Engine] = ["rapidfuzz"]
    if importlib.util.find_spec("fuzzywuzzy"):
        engines.append("fuzzywuzzy")
        warnings.filterwarnings("ignore", module="fuzzywuzzy")
    held = TokenisedPages(vocabulary)
    begun = time.process_time()
    for page in pages:
        held.page(page)
    characters = sum(len(page.text) for page in pages)
    print(f"tokenising a page once: {1e6 * (time.process_time() - begun) / characters:.3f} ms/kB")
    cases = []
    for _ in range(prompts):
        target, *rest = draw.sample(pages, RESULTS)
        cases.append((target, some_sentence(target, draw), [result(page, draw) for page in rest]))
    for target, quote, results in cases:  # the words of all pages and titles are known then
        training_context("What is it?", target, quote, results, PROMPT_TOKENS, vocabulary, draw,
                         pages=held)  # fmt: skip
    making: dict[tuple[str, bool], float] = {}
    shown: collections.Counter[str] = collections.Counter()
    sought: collections.Counter[str] = collections.Counter()
    for _, cached, engine in itertools.product(range(TURNS), (True, False), engines):
        fragments.cache_clear()
        settings = ContextSettings(engine=engine)
        contexts = []
        begun = time.process_time()
        for number, (target, quote, results) in enumerate(cases):
            context = training_context(
                "What is it?", target, quote, results, PROMPT_TOKENS, vocabulary,
                random.Random(number), settings, pages=held if cached else None,
            )  # fmt: skip
            contexts.append(context)
        seconds = time.process_time() - begun
        making[engine, cached] = min(seconds, making.get((engine, cached), seconds))
        shown[engine] = sum(len(context.windows) - 1 for context in contexts)
        sought[engine] = shown[engine] + sum(len(context.left_out) for context in contexts)
    print("| engine | prompts/s, pages held | prompts/s, pages new | snippets found |")
    print("|---|---|---|---|")
    for engine in engines:
        rates = (prompts / making[engine, cached] for cached in (True, False))
        found = shown[engine] / sought[engine]
        print(f"| {engine} | {' | '.join(f'{rate:.0f}' for rate in rates)} | {found:.1%} |")
    if len(engines) == 2:
        for name, cached in (("held", True), ("new", False)):
            ratio = making["fuzzywuzzy", cached] / making["rapidfuzz", cached]
            print(f"pages {name}: fuzzywuzzy takes {ratio:.1f} times as long")


def measure_first_words(data: pathlib.Path, vocabulary: Vocabulary) -> None:
    """Prompts from pages that are seen once, when the words of as many others have been met."""
    draw = random.Random(3)
    pages = long_pages(data, 2 * FIRST_PAGES, draw)
    met, new = pages[:FIRST_PAGES], pages[FIRST_PAGES:]
    known: set[str] = set()
    for page in met:
        vocabulary.encode(page.text)
        known.update(vocabulary.word.findall(page.text))
        if vocabulary.splits_words:
            vocabulary.words(page.text)
    others = [result(met[1], draw)]  # this prompt loads what is compiled
    training_context("", met[0], met[0].text[:100], others, PROMPT_TOKENS, vocabulary, draw)
    words = [word for page in new for word in vocabulary.word.findall(page.text)]
    seconds = 0.0
    for first in range(0, FIRST_PAGES, RESULTS):
        target, *rest = new[first : first + RESULTS]
        quote, results = some_sentence(target, draw), [result(page, draw) for page in rest]
        begun = time.process_time()
        training_context("What is it?", target, quote, results, PROMPT_TOKENS, vocabulary,
                         random.Random(first))  # fmt: skip
        seconds += time.process_time() - begun
    unknown = sum(word not in known for word in words) / len(words)
    print(
        f"pages of which {unknown:.1%} of the words are new: "
        f"{1000 * seconds / (FIRST_PAGES // RESULTS):.2f} ms a prompt"
    )


def measure_matches(data: pathlib.Path) -> None:
    """The time to find a snippet of 100 characters near the end of a page, or not at all."""
    draw = random.Random(1)
    texts = (line["text"] for path in sorted((data / "text").glob("*.gz")) for line in lines(path))
    prose = ""
    while len(prose) < 1_100_000:
        prose += next(texts) + "\n\n"
    print("| characters of the page | verbatim, ms | changed by 10 %, ms | absent, ms |")
    print("|---|---|---|---|")
    for size in (50_000, 200_000, 1_000_000):
        seconds = []
        for kind in ("verbatim", "changed", "absent"):
            begun, times = time.process_time(), 30
            for _ in range(times):
                place = draw.randrange(size * 9 // 10, size - 100)
                place = 1_000_000 + place % 99_900 if kind == "absent" else place
                snippet = prose[place : place + 100]
                if kind == "changed":
                    snippet = "".join("x" if draw.random() < 0.1 else c for c in snippet)
                find_snippet(snippet, prose[:size])
            seconds.append((time.process_time() - begun) / times)
        print(f"| {size:,} | " + " | ".join(f"{1000 * s:.2f}" for s in seconds) + " |")


def measure_pipeline(data: pathlib.Path, vocabulary: Vocabulary, examples: int) -> None:
    """From JSON lines with ten whole pages a record to batches of rows, through seqio."""
    from data_pipelines import tasks  # TensorFlow takes seconds to load
    from data_pipelines.document_choice import ContextReport
    from data_pipelines.inputs import Input

    draw = random.Random(2)
    pages = long_pages(data, 40, draw)
    answers = []
    while len(answers) < examples:
        target, *rest = draw.sample(pages, RESULTS)
        quote = some_sentence(target, draw)
        shown: list[Document] = [target]
        for page in rest:
            snippet = result(page, draw).snippet
            shown.append(records.FoundDocument(page.id, page.title, page.text, snippet=snippet))
        if not holds_mark(quote):
            name = str(len(answers))
            answer = records.RatedAnswer(
                name, "What is it?", tuple(shown), "It.", target.title, quote, target.id, True, True
            )
            answers.append(answer)
    report = ContextReport()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "answers.jsonl")
        records.write(path, answers)
        settings = ContextSettings()
        tasks.add_rated_answers(
            "prompts", {"train": path}, vocabulary, contexts=settings, report=report
        )
        source = Input("prompts", "train", PROMPT_TOKENS + settings.response_tokens, 4, seed=0)
        list(source.one_pass())  # reads the file
        begun = time.process_time()
        list(source.one_pass())
        seconds = time.process_time() - begun
    size = statistics.mean(sum(len(page.text) for page in answer.documents) for answer in answers)
    print(f"seqio: {examples / seconds:.1f} examples/s, of records of {size:,.0f} characters")


# --- Contents ---


def measure_contents(data: pathlib.Path, vocabulary: Vocabulary, number: int) -> None:
    asked: list[tuple[Document, str, int]] = []
    with DocumentIndex(None) as index:
        for name in ("wikipedia", "shifts_new_wiki"):
            for page, questions in articles(data / f"squad/{name}.json.gz"):
                index.add([page])
                asked += [(page, *question) for question in questions]
        for name in ("train", "val"):
            stories = lines(data / f"fairytaleqa/{name}.jsonl.gz")
            texts = ("\n\n".join(story["sections"]) for story in stories)
            index.add(Document(f"{name} {i}", f"Story {i}", text) for i, text in enumerate(texts))
        counts: collections.Counter[str] = collections.Counter()
        for place, (target, question, start) in enumerate(random.Random(0).sample(asked, number)):
            quote = sentence_around(target, start)
            hits = index.search(question, RESULTS)
            results = [SearchResult(index.document(hit.id or ""), hit.snippet) for hit in hits]
            for of in results:
                counts["snippets"] += 1
                counts["dropped"] += find_snippet(of.snippet or "", of.document.text) is None
            others = [of for of in results if of.document.id != target.id]
            context: Context = training_context(
                question, target, quote, others, PROMPT_TOKENS, vocabulary, random.Random(place)
            )
            shown = next(w for w in context.windows if w.document is target)
            counts["with quote"] += quote in shown.text
            counts["longest"] = max(counts["longest"], len(context.tokens))
            counts["tokens"] += len(context.tokens)
        print(f"{number} questions on {len(index)} pages:")
    print(f"prompts that hold the quote: {counts['with quote'] / number:.1%}")
    print(f"pages dropped by the 0.75 rule: {counts['dropped']} of {counts['snippets']}")
    print(f"tokens a prompt: mean {counts['tokens'] / number:.0f}, largest {counts['longest']}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data(parser)
    parser.add_argument("--vocabulary", help="its folder; without, one of 8,192 pieces is trained")
    parser.add_argument("--prompts", type=int, default=60)
    parser.add_argument("--questions", type=int, default=300, help="0 measures speed alone")
    arguments = parser.parse_args()
    if not (arguments.data / "squad").is_dir():
        parser.error(f"{arguments.data} has no folder squad; --data says where the data are")
    if arguments.vocabulary:
        vocabulary = load_vocabulary(arguments.vocabulary)
    else:
        pages = [page.text for page, _ in articles(arguments.data / "squad/wikipedia.json.gz")]
        vocabulary = train_sentencepiece("\n\n".join(pages).split("\n"), 8192, "unigram")
    measure_first_words(arguments.data, vocabulary)
    measure_matches(arguments.data)
    measure_speed(arguments.data, vocabulary, arguments.prompts)
    measure_pipeline(arguments.data, vocabulary, arguments.prompts)
    if arguments.questions:
        measure_contents(arguments.data, vocabulary, arguments.questions)


if __name__ == "__main__":
    main()
