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

import dataclasses
from collections.abc import Sequence

import numpy as np
from choosing import parser_of, spread  # which puts the repository on the path

from gophercite import evidence, records
from gophercite.answering.answerer import Answerer
from gophercite.answering.many_questions import Asked, answer_each
from gophercite.answering.pages import FoundPages
from gophercite.answering.preparing import Prepared
from gophercite.answering.settings import AnsweringSettings
from gophercite.cli.sources import keep_compiled_programs
from gophercite.decoding.claim_in_quote import holds_claim
from gophercite.decoding.rerank import Scorer
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.decoding.scoring import score
from gophercite.evaluation.intervals import estimate
from gophercite.evidence import Evidence
from gophercite.model_folders.folder import Model, load_model, load_reward_model
from gophercite.records.answers import Answer
from gophercite.reports.tables import Table
from gophercite.retrieval.contexts import SearchResult
from gophercite.text.answer_matching import contains_answer, exact_match
from gophercite.text.sentences import sentence_spans

BATCH = 16  # questions that are answered together
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


def answers(
    model: Model, questions: Sequence[records.Question], max_tokens: int, claim_in_quote: bool
) -> tuple[Answerer, list[Answer]]:
    """Each question's greedy answer from its first page, and what drew them."""
    sampling = SamplingSettings(max_tokens, 0.0)
    answerer = Answerer(
        model, AnsweringSettings(1, claim_in_quote=claim_in_quote, sampling=sampling)
    )
    asked = [Asked(q.question, lambda q=q: own_page(q), 0) for q in questions]
    return answerer, list(answer_each(answerer, asked, batch_size=BATCH))


def own_page(question: records.Question) -> FoundPages:
    return FoundPages(tuple(map(SearchResult, question.documents[:1])))


@dataclasses.dataclass
class Case:
    """One question: its claim with every sentence, and the two decoded quotes."""

    question: records.Question
    triples: list[Evidence]
    sums: np.ndarray
    means: np.ndarray
    decoded: dict[str, str]

    def quotes(self, rewards: np.ndarray | None) -> dict[str, str]:
        """The quote that each way chooses."""
        scores = {
            "the most likely sentence, mean": self.means,
            "the most likely sentence, sum": self.sums,
        }
        if rewards is not None:
            scores["the sentence with the highest reward"] = rewards
            both = standardised(rewards) + standardised(self.means)
            scores["the highest reward and mean"] = both
        holds = np.array([holds_claim(one.quote, one.claim) for one in self.triples])
        quotes = dict(self.decoded)
        for way, values in scores.items():
            quotes[way] = self.triples[int(values.argmax())].quote
            among = np.where(holds, values, -np.inf) if holds.any() else values
            quotes[f"{way}, that contains the claim"] = self.triples[int(among.argmax())].quote
        return quotes


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--max-tokens", type=int, default=128, help="longest answer (default: 128)")
    flags = parser.parse_args()
    keep_compiled_programs()
    chosen = spread(flags.questions, flags.limit)
    model = load_model(flags.model)
    free, first = answers(model, chosen, flags.max_tokens, claim_in_quote=False)
    _, holding = answers(model, chosen, flags.max_tokens, claim_in_quote=True)
    cases = []
    for question, one, other in zip(chosen, first, holding, strict=True):
        if one.declined:
            continue
        prepared = free.prepare(question.question, own_page(question))
        (said,), (again,) = one.citations, other.citations
        triples = evidences(prepared, said.claim, said.title)
        if triples:
            decoded = {"as decoded": said.quote, "decoded, contains the claim": again.quote}
            cases.append(Case(question, triples, *log_probs(model, prepared, triples), decoded))
    rewards: list[np.ndarray] = []
    if flags.reward_model:
        scorer = Scorer(load_reward_model(flags.reward_model))
        every = scorer.score_each([(c.question.question, (t,)) for c in cases for t in c.triples])
        rewards = np.split(every.reward, np.cumsum([len(c.triples) for c in cases])[:-1])
    rows: dict[str, list[list[float]]] = {}
    for number, case in enumerate(cases):
        claim, accepted = case.triples[0].claim, case.question.answers
        exact = exact_match(claim, accepted)
        for way, quote in case.quotes(rewards[number] if rewards else None).items():
            answered = contains_answer(quote, accepted)
            figures = [answered, answered and exact, holds_claim(quote, claim)]
            rows.setdefault(way, []).append(list(map(float, figures)))
    names = ["quote contains an answer %", "that, and claim exact %", "quote contains the claim %"]
    cells = [
        [way, *(str(estimate(list(column))) for column in zip(*of, strict=True))]
        for way, of in rows.items()
    ]
    print(Table(["quote", *names], cells).markdown(), end="")
    print(f"{len(cases)} of {len(chosen)} questions")


if __name__ == "__main__":
    main()
