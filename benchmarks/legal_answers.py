"""Whether every answer under the quote constraint is well formed and verbatim: the 100 % table.

    python benchmarks/legal_answers.py [--data ../shared/data] [--prompts 300] [--samples 8]
    python benchmarks/legal_answers.py --omissions 2   # quotes may be several runs

A model with random weights answers at temperature 1 about real pages (Wikipedia paragraphs and
whole textbook sections) and about generated ones, over vocabularies of four kinds that are trained
here in seconds. Half of the samples prefer tokens with the marks' characters, so that claims end
early; the others hardly ever end anything before they must. Each answer is judged twice: by
`evidence.faults`, and by the tests' judge, which also wants the exact form and exact case.
"""

import argparse
import functools
import gzip
import json
import pathlib
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gophercite import evidence  # noqa: E402
from gophercite.decoding.constraint import NoLegalAnswer, PromptGraph, QuoteConstraint  # noqa: E402
from gophercite.decoding.quote_settings import QuoteSettings  # noqa: E402
from gophercite.decoding.quote_state import QuoteTables, advance, allowed, initial  # noqa: E402
from gophercite.documents import Document  # noqa: E402
from gophercite.vocabularies import (  # noqa: E402
    HuggingFaceVocabulary,
    Vocabulary,
    train_sentencepiece,
)
from tests.decoding.quote_worlds import TokenList, hostile_documents, is_legal  # noqa: E402

PIECES = 2048
PROMPTS_A_BATCH = 8
Prompt = list[Document]

# --- documents ---


def paragraphs(data: pathlib.Path) -> list[Document]:
    """Wikipedia paragraphs; those of an article share its title."""
    with gzip.open(data / "squad/wikipedia.json.gz") as file:
        articles = json.load(file)["data"]
    return [
        Document(f"{article['title']}/{number}", article["title"], paragraph["context"])
        for article in articles
        for number, paragraph in enumerate(article["paragraphs"])
    ]


def sections(data: pathlib.Path) -> list[Document]:
    """Textbook sections of at most 100 kB."""
    found = []
    for path in sorted((data / "text").glob("openstax_*.jsonl.gz"))[:3]:
        with gzip.open(path, "rt") as lines:
            for number, record in enumerate(map(json.loads, lines)):
                text = record["text"][:100_000]
                found.append(Document(f"{path.name}/{number}", record["title"][:60], text))
    return found


def characters(rng: random.Random, planes: list[tuple[int, int]], count: int) -> str:
    """A text of random characters from some ranges, with blanks between them."""
    drawn = (chr(rng.randint(*rng.choice(planes))) for _ in range(count))
    return "".join(
        c + (" " if rng.random() < 0.2 else "") for c in drawn if not 0xD800 <= ord(c) < 0xE000
    )


def generated(
    rng: random.Random, planes: list[tuple[int, int]], size: int = 300
) -> Callable[[], Prompt]:
    return lambda: [
        Document(str(i), characters(rng, planes, 5), characters(rng, planes, rng.randint(5, size)))
        for i in range(rng.randint(1, 3))
    ]


def same_titles(rng: random.Random, pages: list[Document]) -> Prompt:
    return [Document(page.id, "One title", page.text) for page in rng.sample(pages, 3)]


def prefix_titles(rng: random.Random, pages: list[Document]) -> Prompt:
    titles = ["", "T", "Th", "The", "The (", "The ()", "The ()%"]
    chosen = rng.sample(titles, 4)
    return [
        Document(page.id, title, page.text)
        for page, title in zip(rng.sample(pages, 4), chosen, strict=True)
    ]


def long_page(rng: random.Random, pages: list[Document]) -> Prompt:
    text = "\n\n".join(page.text for page in rng.sample(pages, min(len(pages), 400)))
    return [Document("long", "A long page", text.encode()[:100_000].decode(errors="ignore"))]


def kinds_of_prompts(
    rng: random.Random, pages: list[Document], whole: list[Document]
) -> dict[str, Callable[[], Prompt]]:
    everywhere = [(plane << 16, (plane << 16) + 0xFFFD) for plane in range(17)]
    everywhere += [(0x20, 0x7E)] * 5
    emoji = [(0x1F300, 0x1FAFF), (0x200D, 0x200D), (0xFE0F, 0xFE0F), (0x1F1E6, 0x1F1FF)]
    kinds = {
        "Unicode of all planes": generated(rng, everywhere),
        "emoji": generated(rng, emoji),
        "control characters": generated(rng, [(0, 0x1F), (0x7F, 0x9F), (0x41, 0x5A)]),
        "reserved marks and white space": lambda: hostile_documents(rng, 80),
    }
    if pages:
        kinds = {
            "Wikipedia paragraphs": lambda: rng.sample(pages, rng.randint(1, 4)),
            "textbook sections": lambda: [rng.choice(whole)],
            "pages of one title": functools.partial(same_titles, rng, pages),
            "titles that begin others": functools.partial(prefix_titles, rng, pages),
            "100 kB": functools.partial(long_page, rng, pages),
            **kinds,
        }
    return kinds


# --- vocabularies ---


def vocabularies(texts: list[str]) -> Iterator[tuple[str, Vocabulary]]:
    """One of each kind, made when its turn comes."""
    yield "SentencePiece, unigram", train_sentencepiece(texts, PIECES)
    yield "SentencePiece, BPE", train_sentencepiece(texts, PIECES, "bpe", reserved_marks=False)
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    yield "byte-level BPE", HuggingFaceVocabulary(tokenizer.to_str())
    yield "bytes", TokenList([])


# --- samples ---


@functools.partial(jax.jit, static_argnums=(5, 6))
def answer(
    tables: QuoteTables,
    prompts: Any,
    preferred: Any,
    weights: tuple[Any, Any],
    key: Any,
    eos_id: int,
    longest: int,
) -> tuple[Any, Any]:
    """Samples of a model whose logits are a random function of the token before."""
    inputs, outputs = weights
    rows = prompts.shape[0]

    def unfinished(carry: Any) -> Any:
        return (carry[0] < longest) & ~carry[2].all()

    def turn(carry: Any) -> Any:
        i, state, done, before, tokens, stuck = carry
        mask = allowed(tables, state, jnp.full(rows, longest) - i)
        logits = inputs[before] @ outputs + preferred
        noise = jax.random.gumbel(jax.random.fold_in(key, i), mask.shape)
        token = jnp.argmax(jnp.where(mask, logits + noise, -jnp.inf), axis=1)
        token = jnp.where(done, eos_id, token)
        stuck += jnp.sum(~mask.any(axis=1) & ~done)
        done |= token == eos_id
        return (
            i + 1, advance(tables, state, token), done, token, tokens.at[:, i].set(token), stuck,
        )  # fmt: skip

    start = (
        0, initial(tables, prompts), jnp.zeros(rows, bool), jnp.full(rows, eos_id),
        jnp.full((rows, longest), eos_id), jnp.zeros((), int),
    )  # fmt: skip
    _, _, _, _, tokens, stuck = jax.lax.while_loop(unfinished, turn, start)
    return tokens, stuck


class Counts:
    """A row of the table."""

    def __init__(self) -> None:
        self.prompts = self.pages = self.samples = self.faulty = self.illegal = self.stuck = 0
        self.joined = 0

    def add(self, text: str, sources: Prompt, omissions: int) -> None:
        self.samples += 1
        self.faulty += bool(evidence.faults(text, sources, maximum_omissions=omissions))
        self.illegal += not is_legal(text, sources, omissions=omissions)
        self.joined += omissions > 0 and evidence.OMISSION in text


def measure(
    vocabulary: Vocabulary,
    make: Callable[[], Prompt],
    prompts: int,
    samples: int,
    seed: int,
    omissions: int,
) -> Counts:
    """Samples answers to so many prompts, and judges them."""
    constraint = QuoteConstraint(vocabulary, QuoteSettings(maximum_omissions=omissions))
    numbers = np.random.default_rng(seed)
    weights = (numbers.normal(size=(vocabulary.size, 8)), numbers.normal(size=(8, vocabulary.size)))
    inputs, outputs = (jnp.asarray(array, jnp.float32) for array in weights)
    marks = [
        4.0 * bool(set(vocabulary.token_bytes(id) or b"") & set(b"%()[]<>"))
        for id in range(vocabulary.size)
    ]
    preferred = jnp.where(jnp.arange(samples)[:, None] % 2 == 0, jnp.array(marks), 0.0)
    counts, waiting = Counts(), []
    while counts.prompts < prompts:
        waiting.append(next_prompt(constraint, make))
        counts.prompts += 1
        counts.pages += len(waiting[-1][0])
        if len(waiting) < PROMPTS_A_BATCH and counts.prompts < prompts:
            continue
        graphs = [graph for _, graph in waiting]
        # A length of which there are few, and at which answers are often cut short.
        longest = 32 << max(0, (max(g.shortest_answer for g in graphs) * 3 // 64).bit_length())
        owners = np.repeat(np.arange(len(waiting)), samples)
        tokens, stuck = answer(
            constraint.tables(graphs, longest),
            jnp.asarray(owners),
            jnp.tile(preferred, (len(waiting), 1)),
            (inputs, outputs),
            jax.random.key(seed + counts.prompts),
            vocabulary.eos_id,
            longest,
        )
        counts.stuck += int(stuck)
        for owner, row in zip(owners, np.asarray(tokens), strict=True):
            counts.add(vocabulary.decode(row), waiting[owner][0], omissions)
        waiting = []
    return counts


def next_prompt(
    constraint: QuoteConstraint, make: Callable[[], Prompt]
) -> tuple[Prompt, PromptGraph]:
    """A prompt from which something can be quoted."""
    while True:
        sources = make()
        try:
            return sources, constraint.graph(sources)
        except NoLegalAnswer:
            continue


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "../shared/data")
    parser.add_argument("--prompts", type=int, default=300, help="of each kind (default: 300)")
    parser.add_argument("--samples", type=int, default=8, help="of each prompt (default: 8)")
    parser.add_argument("--omissions", type=int, default=0, help="of words in a quote (default: 0)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pages", nargs="+", metavar="KIND", help="only these rows")
    flags = parser.parse_args()
    real = flags.data.exists()
    pages, whole = (paragraphs(flags.data), sections(flags.data)) if real else ([], [])
    if not real:
        print(f"{flags.data}: no such folder; generated pages only", file=sys.stderr)
    rng = random.Random(flags.seed)
    texts = [page.text for page in pages[:300]] or [hostile_documents(rng, 80)[0].text] * 300
    kinds = kinds_of_prompts(rng, pages, whole)
    if unknown := set(flags.pages or ()) - kinds.keys():
        parser.error(f"--pages: no such kind as {unknown.pop()!r}; there are {', '.join(kinds)}")
    print(
        "| vocabulary | pages | prompts | pages in them | answers | with omissions "
        "| evidence.faults | judge | s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    wrong = 0
    for name, vocabulary in vocabularies(texts):
        for kind, make in kinds.items():
            if flags.pages and kind not in flags.pages:
                continue
            # Building the tables of 100 kB takes a second or more.
            prompts = max(1, flags.prompts // (20 if kind == "100 kB" else 1))
            begun = time.perf_counter()
            found = measure(vocabulary, make, prompts, flags.samples, flags.seed, flags.omissions)
            seconds = time.perf_counter() - begun
            wrong += found.faulty + found.illegal + found.stuck
            print(
                f"| {name} | {kind} | {found.prompts} | {found.pages} | {found.samples} "
                f"| {found.joined} | {found.faulty} | {found.illegal} | {seconds:.0f} |",
                flush=True,
            )
    print(f"\n{wrong} answers were not legal.")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
