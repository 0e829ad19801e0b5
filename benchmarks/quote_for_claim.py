"""Ways to find the quote that proves a claim: decoding, the constraint, likelihood, reward.

    python benchmarks/quote_for_claim.py --model models/smollm2-citing --limit 100 \\
      --reward-model models/smollm2-reward \\
      --questions runs/real_questions/data/new_wiki/questions_test.jsonl

Each question is asked once, greedily, under the quote constraint, of its own page; the quote need
not contain the claim. For the same claim, other quotes are then chosen: the one that is decoded if
the quote has to contain the claim, which is the default of `gophercite ask`; and of all the page's
sentences the most likely one given the claim (by the mean or the sum of its tokens'
log-probabilities), the one with the highest reward, and the highest sum of both (mean
log-probabilities and rewards, each minus its mean and divided by its deviation over the sentences).
Where sentences contain the claim, the rows "that contains the claim" choose among these only.

Prints how often a quote contains an accepted answer, how often it does and the claim is exact, and
how often it contains the claim, with 90 % intervals (Wilson's).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite import evidence, records
from gophercite.answering.answerer import Answerer, AnsweringSettings, Prepared
from gophercite.answering.pages import FoundPages
from gophercite.decoding.claim_in_quote import holds_claim
from gophercite.decoding.rerank import Scorer
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.decoding.scoring import score
from gophercite.evaluation.intervals import estimate
from gophercite.evidence import Evidence
from gophercite.model_folders.folder import Model, load_model, load_reward_model
from gophercite.reports.tables import Table
from gophercite.retrieval.contexts import SearchResult
from gophercite.text.answer_matching import contains_answer, exact_match
from gophercite.text.sentences import sentence_spans

ROWS = 8  # the number of sentences is rounded up to a multiple of this, so that few programs serve


def evidences(prepared: Prepared, claim: str, title: str) -> list[Evidence]:
    """The claim with each sentence of the first prompt's page that can be quoted."""
    text = prepared.contexts[0].windows[0].text
    sentences = [text[start:end] for start, end in sentence_spans(text)]
    return [
        Evidence(claim, title, sentence)
        for sentence in dict.fromkeys(sentences)
        if not evidence.holds_mark(sentence)
    ]


def log_probs(
    model: Model, prepared: Prepared, triples: Sequence[Evidence]
) -> tuple[np.ndarray, np.ndarray]:
    """Sum and mean of the log-probabilities of what differs: each quote, with the answer's end."""
    vocabulary = model.vocabulary
    texts = [[*vocabulary.encode(evidence.format(one)), vocabulary.eos_id] for one in triples]
    filled = texts + [texts[0]] * (-len(texts) % ROWS)
    found = score(
        model.transformer,
        model.params,
        [prepared.contexts[0].tokens],
        [filled],
        pad_id=vocabulary.pad_id,
    ).log_probs[: len(texts)]
    first, *others = texts
    same = min(map(len, texts)) - 1  # at least the end differs
    for other in others:
        same = min(same, next((i for i in range(same) if other[i] != first[i]), same))
    sums = found[:, same:].sum(axis=1)
    return sums, sums / np.array([len(text) - same for text in texts])


def standardised(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / max(float(values.std()), 1e-6)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="the model's folder, or its training run's")
    add("--reward-model", help="the reward model's folder, or its training run's")
    add("--questions", required=True, help="questions with answers and pages, JSON lines")
    add("--limit", type=int, default=100, help="questions, spread over the file (default: 100)")
    add("--max-tokens", type=int, default=128, help="longest answer (default: 128)")
    flags = parser.parse_args()

    every = [q for q in records.read(flags.questions, records.Question) if q.answers]
    chosen = every[:: max(1, len(every) // flags.limit)][: flags.limit]
    model = load_model(flags.model)
    scorer = Scorer(load_reward_model(flags.reward_model)) if flags.reward_model else None
    sampling = SamplingSettings(flags.max_tokens, 0.0)
    free, holding = (
        Answerer(model, AnsweringSettings(1, claim_in_quote=held, sampling=sampling))
        for held in (False, True)
    )
    rows: dict[str, list[list[float]]] = {}
    for number, question in enumerate(chosen):
        found = FoundPages(tuple(map(SearchResult, question.documents[:1])))
        prepared = free.prepare(question.question, found)
        if not prepared.contexts:
            continue
        batch = free.batch([prepared])
        drawn = [answerer.answer_batch(batch, [0])[0].citations[0] for answerer in (free, holding)]
        claim, title = drawn[0].claim, drawn[0].title
        quotes = dict(
            zip(
                ("as decoded", "decoded, contains the claim"), (d.quote for d in drawn), strict=True
            )
        )
        triples = evidences(prepared, claim, title)
        if not triples:
            continue
        sums, means = log_probs(model, prepared, triples)
        scores = {"the most likely sentence, mean": means, "the most likely sentence, sum": sums}
        if scorer is not None:
            rewards = scorer.score_each([(question.question, (one,)) for one in triples]).reward
            scores["the sentence with the highest reward"] = rewards
            scores["the highest reward and mean"] = standardised(rewards) + standardised(means)
        holds = np.array([holds_claim(one.quote, claim) for one in triples])
        for way, values in scores.items():
            quotes[way] = triples[int(values.argmax())].quote
            among = np.where(holds, values, -np.inf) if holds.any() else values
            quotes[f"{way}, that contains the claim"] = triples[int(among.argmax())].quote
        exact = exact_match(claim, question.answers)
        for way, quote in quotes.items():
            answered = contains_answer(quote, question.answers)
            figures = [answered, answered and exact, holds_claim(quote, claim)]
            rows.setdefault(way, []).append(list(map(float, figures)))
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{len(chosen)}", end="", file=sys.stderr)
    names = ["quote contains an answer %", "that, and claim exact %", "quote contains the claim %"]
    cells = [
        [way, *(str(estimate(list(column))) for column in zip(*of, strict=True))]
        for way, of in rows.items()
    ]
    print(Table(["quote", *names], cells).markdown(), end="")
    print(f"{len(next(iter(rows.values())))} of {len(chosen)} questions")


if __name__ == "__main__":
    main()
