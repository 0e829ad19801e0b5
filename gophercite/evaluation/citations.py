"""Citation recall and precision: whether quotes entail claims, by a language-inference model.

As defined by Gao et al. (2023, "Enabling Large Language Models to Generate Text with Citations",
ALCE): a claim is recalled when its quotes together entail it. A citation is precise when its claim
is recalled and the citation is needed: either it entails the claim by itself, or the others do not
without it. Consecutive claims with the same words count as one claim with several quotes.
"""

import dataclasses
import itertools
import time
from collections.abc import Sequence
from typing import Protocol

import httpx

from gophercite.evidence import Evidence
from gophercite.storage.json_fields import printable
from gophercite.text.counting import counted

ENTAILED = 0.5  # probability from which a claim counts as entailed

_WORTH_ANOTHER_TRY = frozenset({408, 429, 500, 502, 503, 504})
_SHOWN = 200  # characters of a server's answer in an error's message


class EntailmentModel(Protocol):
    """A natural-language-inference model."""

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Returns the probability, in 0 … 1, that each premise entails its hypothesis."""


@dataclasses.dataclass(frozen=True)
class CitationQuality:
    """Recall and precision of one answer's citations.

    Attributes:
      recall: share of claims that are entailed by their quotes.
      precision: share of quotes that an entailed claim needs.
    """

    recall: float
    precision: float


def citation_quality(
    answers: Sequence[Sequence[Evidence]], entails: EntailmentModel
) -> list[CitationQuality | None]:
    """Measures the citations of answers; the model gets all pairs in a single call.

    Args:
      answers: each answer's triples; the result is None for an answer without any.
      entails: the model.
    """
    claims = [_claims(triples) for triples in answers]
    asked = {pair for claim in itertools.chain(*claims) for pair in claim.pairs()}
    pairs = sorted(asked)
    likely = dict(zip(pairs, entails(pairs) if pairs else [], strict=True))
    holds = {pair for pair in pairs if likely[pair] >= ENTAILED}
    return [_quality(claims_of_one, holds) if claims_of_one else None for claims_of_one in claims]


@dataclasses.dataclass(frozen=True)
class _Claim:
    text: str
    quotes: tuple[str, ...]

    @property
    def together(self) -> tuple[str, str]:
        return " ".join(self.quotes), self.text

    def alone(self, place: int) -> tuple[str, str]:
        return self.quotes[place], self.text

    def without(self, place: int) -> tuple[str, str]:
        return " ".join(self.quotes[:place] + self.quotes[place + 1 :]), self.text

    def pairs(self) -> list[tuple[str, str]]:
        """All pairs to ask the model about: for a single quote one pair is enough."""
        if len(self.quotes) == 1:
            return [self.together]
        places = range(len(self.quotes))
        return [self.together, *map(self.alone, places), *map(self.without, places)]

    def needed(self, place: int, holds: set[tuple[str, str]]) -> bool:
        """Whether an entailed claim needs this quote."""
        if len(self.quotes) == 1:
            return True
        return self.alone(place) in holds or self.without(place) not in holds


def _claims(triples: Sequence[Evidence]) -> list[_Claim]:
    groups = itertools.groupby(triples, key=lambda triple: triple.claim)
    return [_Claim(text, tuple(triple.quote for triple in group)) for text, group in groups]


def _quality(claims: Sequence[_Claim], holds: set[tuple[str, str]]) -> CitationQuality:
    entailed = [claim for claim in claims if claim.together in holds]
    needed = sum(
        claim.needed(place, holds) for claim in entailed for place in range(len(claim.quotes))
    )
    return CitationQuality(
        len(entailed) / len(claims), needed / sum(len(claim.quotes) for claim in claims)
    )


class EntailmentServerError(ValueError):
    """A server can't be used as a natural-language-inference model."""


class EntailmentServer:
    """A model behind Hugging Face's text-embeddings-inference, or a server with its `/predict`.

    It serves classifiers such as `cross-encoder/nli-deberta-v3-base`:

        POST /predict {"inputs": [[premise, hypothesis], …], "truncate": true}
        [[{"label": "entailment", "score": 0.97}, …], …]

    A request is repeated while the server is overloaded or starting (408, 429, 5xx), and while it
    can't be reached although it could before; the waits are about a minute in all.

    Args:
      url: the server's address, without `/predict`.
      batch_size: pairs per request; the server's default limit is 32.
      timeout: seconds that the server may be silent.
      attempts: maximum number of attempts for a request.
      wait: seconds to wait after the first attempt; each wait is twice the one before.

    Raises:
      EntailmentServerError: `url` is not the address of a server.
    """

    def __init__(
        self,
        url: str,
        batch_size: int = 32,
        timeout: float = 60.0,
        attempts: int = 7,
        wait: float = 1.0,
    ) -> None:
        if not _is_address(url):
            raise EntailmentServerError(
                f"{url}: is not the address of a server, such as http://localhost:8080"
            )
        self._url = url.rstrip("/") + "/predict"
        self._batch_size = batch_size
        self._timeout = timeout
        self._attempts = attempts
        self._wait = wait
        self._has_answered = False

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """See `EntailmentModel`.

        Raises:
          EntailmentServerError: the server can't be reached, refuses, or does not return scores of
            labels of which one is "entailment" (or "entailed", in any case).
        """
        scores: list[float] = []
        with httpx.Client(timeout=self._timeout) as client:
            for start in range(0, len(pairs), self._batch_size):
                batch = pairs[start : start + self._batch_size]
                scores += self._scores(self._ask(client, batch), batch)
        return scores

    def check(self) -> None:
        """Asks about one pair, so that a server that can't be used is noticed before long work.

        Raises:
          EntailmentServerError: as from a call.
        """
        self([("The lighthouse was built in 1874.", "The lighthouse was built in 1874.")])

    def _ask(self, client: httpx.Client, batch: Sequence[tuple[str, str]]) -> httpx.Response:
        """The answer to a request, after as many attempts as it takes, within the limit."""
        body = {"inputs": [list(pair) for pair in batch], "truncate": True}
        for attempt in range(1, self._attempts + 1):
            try:
                answer = client.post(self._url, json=body)
            except httpx.HTTPError as error:
                problem = f"can't be reached: {error or type(error).__name__}"
                is_worth_another_try = self._has_answered
            else:
                self._has_answered = True
                if answer.status_code == httpx.codes.OK:
                    return answer
                problem = f"answered with status {answer.status_code}{_said(answer)}"
                is_worth_another_try = answer.status_code in _WORTH_ANOTHER_TRY
            if not is_worth_another_try or attempt == self._attempts:
                break
            time.sleep(self._wait * 2 ** (attempt - 1))
        tried = f" (after {counted(attempt, 'attempt')})" if attempt > 1 else ""
        raise EntailmentServerError(f"{self._url}: {problem}{tried}")

    def _scores(self, answer: httpx.Response, batch: Sequence[tuple[str, str]]) -> list[float]:
        try:
            found = answer.json()
        except (ValueError, RecursionError):
            problem = f"the answer is not JSON{_said(answer)}"
            raise EntailmentServerError(f"{self._url}: {problem}") from None
        try:
            scores = [_entailment(labels) for labels in found]
        except (TypeError, KeyError, ValueError, StopIteration) as error:
            raise EntailmentServerError(
                f"{self._url}: answered {str(found)[:_SHOWN]!r}; expected for each pair a list of "
                "labels with scores, one of them 'entailment'"
            ) from error
        if len(scores) != len(batch):
            problem = f"answered {len(scores)} of the {len(batch)} pairs that were sent"
            raise EntailmentServerError(f"{self._url}: {problem}")
        return scores


def _is_address(url: str) -> bool:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.host)


def _said(answer: httpx.Response) -> str:
    """The beginning of what a server said, for an error's message."""
    said = printable(" ".join(answer.text[:_SHOWN].split()))
    return f"; it says: {said}" if said else ""


def _entailment(labels: Sequence[dict[str, object]]) -> float:
    entailed = next(label for label in labels if _means_entailed(str(label["label"])))
    score = float(str(entailed["score"]))
    if not 0 <= score <= 1:
        raise ValueError(f"{score} is not a probability")
    return score


def _means_entailed(label: str) -> bool:
    return label.lower() in ("entailment", "entailed")
