"""What chooses the best of a model's answers: their consensus, their likelihood, a reward model.

    python benchmarks/choosing.py --model models/smollm2-citing --limit 100 \\
      --reward-model models/smollm2-reward \\
      --questions runs/real_questions/data/new_wiki/questions_test.jsonl \\
      --index runs/real_questions/data/new_wiki/documents_*.jsonl

Each question is asked as `gophercite ask` would, of the pages that an index of all these documents
finds, or without --index of its own documents. With --articles the index has whole articles: all
documents of a title as one, of which prompts show the passages that fit the question best, or with
--around-snippets what is around the index's snippets. With --alone, too, each question is asked of
its own article only. The same samples are then ranked in each way, those whose quote lacks its
claim last: by their consensus, with and without the weights of their pages, by agreement alone, by
the mean and the sum of their tokens' log-probabilities, and by the reward, alone and with the
logarithm of the consensus, once, twice, four and eight times. Prints for each way how often the
chosen claim is exact, its F1, how often its quote contains an answer, and how often it comes from
one of the question's own documents. Intervals are 90 %, Wilson's. *any* is what the best possible
choice would get, *one* a choice by chance. The last rows are of the 70 % of the answers that are
surest, by what chose them or by their consensus. The last line says how long samples are: a
question waits for the longest of its own.
"""

import argparse
import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite import records
from gophercite.answering.answerer import Answerer
from gophercite.answering.many_questions import Asked, answer_each
from gophercite.answering.pages import FoundPages, IndexedPages, given_pages, index_in_memory
from gophercite.answering.settings import AnsweringSettings
from gophercite.decoding.consensus import agreement, consensus
from gophercite.decoding.rerank import Scorer
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.documents import Document
from gophercite.evaluation.intervals import estimate
from gophercite.evidence import parse
from gophercite.model_folders.folder import load_model, load_reward_model
from gophercite.records.answers import Answer, Sample
from gophercite.reports.tables import Table
from gophercite.retrieval.contexts import SearchResult
from gophercite.text.answer_matching import contains_answer, exact_match, f1

COVERAGE = 0.7


def judged(sample: Sample, question: records.Question) -> list[float]:
    """The figures of a sample, each from 0 to 1."""
    claim, cited = sample.citations[0].claim, sample.citations[0].document
    own = {document.id for document in question.documents}
    own |= {article_id(document.title) for document in question.documents}
    quotes = " ".join(each.quote for each in sample.citations)
    return [
        exact_match(claim, question.answers),
        f1(claim, question.answers),
        contains_answer(quotes, question.answers),
        cited in own,
    ]


def article_id(title: str, first: int = 0) -> str:
    return f"article: {title}" + (f", from {first}" if first else "")


def articles_of(
    documents: Iterable[Document], joined: int | None = None
) -> Iterator[tuple[Document, list[Document]]]:
    """Articles and the documents that they consist of, in order, as paragraphs.

    All documents of a title are joined, or so many of them at a time.
    """
    by_title: dict[str, list[Document]] = {}
    for document in documents:
        by_title.setdefault(document.title, []).append(document)
    for title, of in by_title.items():
        size = joined or len(of)
        for first in range(0, len(of), size):
            parts = of[first : first + size]
            text = "\n\n".join(part.text for part in parts)
            yield Document(article_id(title, first), title, text), parts


def ways(question: str, samples: Sequence[Sample], scorer: Scorer | None) -> dict[str, list[float]]:
    """What each way ranks the samples by."""
    said = [parse(sample.text) for sample in samples]
    means = [sample.likelihood / sample.tokens for sample in samples]
    found = {
        "consensus": [sample.score for sample in samples],
        "consensus, all pages alike": consensus(said, means),
        "agreement, all pages alike": agreement(said),
        "mean log-probability": means,
        "log-probability": [sample.likelihood for sample in samples],
    }
    if scorer is not None:
        rewards = scorer.score_each([(question, tuple(each)) for each in said]).reward.tolist()
        found["reward"] = rewards
        for factor in (1, 2, 4, 8):
            found[f"reward + {factor} log consensus"] = [
                reward + factor * math.log(max(sample.score, 1e-9))
                for reward, sample in zip(rewards, samples, strict=True)
            ]
    return found


@dataclasses.dataclass
class Choice:
    """What a way of choosing chose for one question.

    Attributes:
      figures: of the chosen sample.
      sureness: by the way itself, and by consensus.
    """

    figures: list[float]
    sureness: tuple[float, float]


def choices(
    answered: Sequence[tuple[records.Question, Answer]], scorer: Scorer | None
) -> dict[str, list[Choice]]:
    """Each way's choices; "one" is the mean of all samples, "any" the best of each figure."""
    found: dict[str, list[Choice]] = {}
    for question, answer in answered:
        figures = [judged(sample, question) for sample in answer.samples]
        by = ways(question.question, answer.samples, scorer)
        for way, scores in by.items():
            holds = [not sample.quote_lacks_claim for sample in answer.samples]
            best = max(range(len(scores)), key=lambda place: (holds[place], scores[place]))
            sure = scores[best], by["consensus"][best]
            found.setdefault(way, []).append(Choice(figures[best], sure))
        for way, over in (("one", lambda column: sum(column) / len(column)), ("any", max)):
            columns = [over(column) for column in zip(*figures, strict=True)]
            found.setdefault(way, []).append(Choice(columns, (0.0, 0.0)))
    return found


def table(found: dict[str, list[Choice]]) -> Table:
    """A row for each way of choosing, and for what is left without the least sure answers."""
    kept = {way: [each.figures for each in of] for way, of in found.items()}
    for way in ("consensus", "reward"):
        for number, by in enumerate((way, "consensus")):
            of = sorted(found.get(way, []), key=lambda each: -each.sureness[number])
            if of:
                name = f"{way}, the {COVERAGE:.0%} surest by {by}"
                kept[name] = [each.figures for each in of[: round(COVERAGE * len(of))]]
    rows = [
        [name, *(str(estimate([float(v) for v in column])) for column in zip(*of, strict=True))]
        for name, of in kept.items()
    ]
    names = ["claim exact %", "claim F1 %", "quote contains an answer %", "own document %"]
    return Table(["chosen by", *names], rows)


def lengths(answers: Sequence[Answer]) -> str:
    """How long samples are, and how long the longest of a question's, for which all others wait."""
    each = np.array([[sample.tokens for sample in answer.samples] for answer in answers])
    of_samples = np.percentile(each, [50, 99, 100])
    of_questions = np.percentile(each.max(axis=1), [50, 90])
    over = ", ".join(f"{limit}: {np.mean(each > limit):.2%}" for limit in (64, 96, 128, 192))
    return (
        "tokens of a sample: {:.0f} (half), {:.0f} (99 %), {:.0f} (longest); ".format(*of_samples)
        + "of a question's longest sample: {:.0f} (half), {:.0f} (90 %); ".format(*of_questions)
        + f"samples longer than {over}"
    )


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser of the flags that name models and questions."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="the model's folder, or its training run's")
    add("--reward-model", help="the reward model's folder, or its training run's")
    add("--questions", required=True, help="questions with answers, JSON lines")
    add("--limit", type=int, default=100, help="questions, spread over the file (default: 100)")
    return parser


def spread(questions: str, limit: int) -> list[records.Question]:
    """At most `limit` questions with answers, spread over their file."""
    every = [q for q in records.read(questions, records.Question) if q.answers]
    return every[:: max(1, len(every) // limit)][:limit]


def main() -> None:
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--index", nargs="+", default=[], metavar="FILE", help="documents to search, JSON lines")
    add("--articles", action="store_true", help="index all documents of a title as one")
    add("--alone", action="store_true", help="ask each question only of its own article")
    add("--around-snippets", action="store_true", help="show no passages of long pages")
    add("--pages", type=int, default=5, help="pages of a question (default: 5)")
    add(
        "--joint",
        action=argparse.BooleanOptionalAction,
        help="put a question's pages into one prompt, or each into its own (default: like ask)",
    )
    add("--samples", type=int, default=16, help="answers of each question (default: 16)")
    add("--temperature", type=float, default=1.0, help="of the sampling (default: 1)")
    add("--top-p", type=float, default=1.0, help="of the sampling (default: 1, all tokens)")
    add("--max-tokens", type=int, help="longest answer (default: like ask)")
    add("--prompt-tokens", type=int, help="longest prompt (default: as in training, like ask)")
    add("--seed", type=int, default=0, help="seed of the first question (default: 0)")
    flags = parser.parse_args()
    if flags.alone and not flags.articles:
        parser.error("--alone needs --articles")

    chosen = spread(flags.questions, flags.limit)
    documents = {
        document.id: document for file in flags.index for document in records.read(file, Document)
    }
    if flags.articles:
        documents = {article.id: article for article, _ in articles_of(documents.values())}
    sampling = SamplingSettings(temperature=flags.temperature, top_p=flags.top_p)
    settings = AnsweringSettings(
        flags.samples,
        flags.prompt_tokens,
        joint=flags.joint,
        sampling=sampling,
        max_tokens=flags.max_tokens,
    )
    answerer = Answerer(load_model(flags.model), settings)
    start, answered = time.monotonic(), []
    with index_in_memory(documents.values()) as index:

        def pages(question: records.Question) -> Callable[[], FoundPages]:
            if documents:
                if flags.alone:
                    own = documents[article_id(question.documents[0].title)]
                    with index_in_memory([own]) as alone:
                        found = IndexedPages(alone).find(question.question, 1)
                else:
                    found = IndexedPages(index).find(question.question, flags.pages)
                inside = not flags.around_snippets
                return lambda: dataclasses.replace(found, search_inside=inside)
            return lambda: given_pages(map(SearchResult, question.documents))

        asked = [
            Asked(question.question, pages(question), flags.seed + number)
            for number, question in enumerate(chosen)
        ]
        answers = answer_each(answerer, asked, keep_samples=True, batch_size=4)
        for question, answer in zip(chosen, answers, strict=True):
            if not answer.declined:
                answered.append((question, answer))
            if sys.stderr.isatty():
                print(f"\r{len(answered)}/{len(chosen)}", end="", file=sys.stderr)
    seconds = time.monotonic() - start
    scorer = Scorer(load_reward_model(flags.reward_model)) if flags.reward_model else None
    print(table(choices(answered, scorer)).markdown(), end="")
    print(f"{len(answered)} of {len(chosen)} questions have answers; {seconds:.0f} s")
    print(lengths([answer for _, answer in answered]))


if __name__ == "__main__":
    main()
