"""Best of n: draws samples from several prompts in turn and scores them with a reward model.

GopherCite, figure 2 and section 2.8: each of the K retrieved pages has its own prompt, N > K
samples are drawn round-robin over the prompts, and the one with the highest reward is the answer.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from gophercite.browser.encoding import PREFIX_TOKENS, encode_judged_response
from gophercite.decoding.across_processes import on_all, on_host, shared_mesh
from gophercite.decoding.claim_in_quote import Shown, sample_supported
from gophercite.decoding.in_flight import slots, usual_slots
from gophercite.decoding.random_keys import take_keys
from gophercite.decoding.rows import padded_rows
from gophercite.decoding.sampler import Samples, sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.model_folders.folder import Model
from gophercite.models.parameters import Params
from gophercite.models.reward_model import RewardModel, Verdict
from gophercite.quoting.quote_state import QuoteTables
from gophercite.records import Response
from gophercite.vocabularies import Vocabulary


class Candidate(NamedTuple):
    """One sample.

    Attributes:
      prompt: index of the prompt that it continues.
      tokens: its token ids, with the end of sequence if there is one.
      text: the decoded tokens.
      log_prob: the sum of their log-probabilities under the model itself, in nats.
      constrained_log_prob: the same, renormalised over the tokens that the quote constraint
        allowed; None without a constraint.
      quote_lacks_claim: whether its quote lacks its claim, though another quote could contain it:
        to be chosen only if there is no other sample (`claim_in_quote`).
    """

    prompt: int
    tokens: tuple[int, ...]
    text: str
    log_prob: float
    constrained_log_prob: float | None
    quote_lacks_claim: bool = False

    @property
    def mean_log_prob(self) -> float:
        """The mean of its tokens' log-probabilities, in nats; does not favour short texts."""
        return self.log_prob / len(self.tokens)


def sample_in_turn(
    model: Model,
    questions: Sequence[Sequence[Sequence[int]]],
    count: int,
    keys: Key[Array, " questions"],
    settings: SamplingSettings,
    quotes: QuoteTables | None = None,
    *,
    shown: Shown | None = None,
    max_num_seqs: int | None = None,
    batch_size: int | None = None,
    coming: Callable[[], Params] | None = None,
) -> list[list[Candidate]]:
    """Draws each question's samples round-robin: sample i comes from prompt i modulo their number.

    Each prompt is prefilled once, and its samples share its keys and values. Questions are sampled
    in one batch. The batch is padded with questions that get no sample, to a power of two or to
    `batch_size`, so that few programs serve all numbers of questions. Prompts that do not fit at
    first take the slots of prompts that have finished. A question's samples do not depend on the
    other questions, up to rounding.

    Args:
      model: a language model.
      questions: the prompts of each question, as token ids, the same number for each; prompts after
        the first `count` get no sample.
      count: number of samples per question, at least 1.
      keys: random keys of the draws, one per question.
      settings: how tokens are drawn.
      quotes: the tables (`QuoteConstraint.tables`) of all prompts that get samples, question by
        question.
      shown: what those prompts show. With it, samples whose quotes needlessly lack their claims are
        marked, or drawn again if all samples of a question do (`claim_in_quote`). None keeps all
        samples as drawn.
      max_num_seqs: number of samples drawn at a time, which bounds the memory of the KV cache;
        chosen by `in_flight.usual_slots` when None. The samples do not depend on it.
      batch_size: number of questions that the batch is padded to, for callers whose batches mostly
        have this size; None pads to a power of two.
      coming: waits for the model's parameters and returns them, see `sampler.sample`; `model` then
        holds only their shapes.

    Returns:
      The samples of each question, in order.

    Raises:
      ValueError: there is no question, questions have no prompts or different numbers of them, a
        prompt is empty, `count` or `max_num_seqs` is less than 1, there are more questions than
        `batch_size`, or `settings` turn off the model's own log-probabilities.
    """
    if not settings.free_log_probs:
        raise ValueError("free_log_probs=False leaves no log-probabilities to compare samples by")
    vocabulary, transformer = model.vocabulary, model.transformer
    if max_num_seqs is not None and max_num_seqs < 1:
        raise ValueError(f"max_num_seqs = {max_num_seqs}: must be at least 1")
    turns = {min(count, len(prompts)) for prompts in questions}
    if len(turns) != 1 or 0 in turns:
        raise ValueError(f"all questions need the same number of prompts, not {sorted(turns)}")
    (each,) = turns
    size = 1 << (len(questions) - 1).bit_length() if batch_size is None else batch_size
    if size < len(questions):
        raise ValueError(f"batch_size = {size}: is too small for {len(questions)} questions")
    missing = size - len(questions)
    prompts = [prompt for of_one in questions for prompt in of_one[:each]]
    counts = [len(range(place, count, each)) for place in range(each)] * len(questions)
    whole, most = len(prompts) + each * missing, max(counts)
    if max_num_seqs is None:
        longest = max(1, *map(len, prompts))  # an empty one is refused below
        in_flight = usual_slots(
            transformer.config, model.params, whole, longest, most, settings.max_tokens,
            jax.default_backend(),
        )  # fmt: skip
    else:
        in_flight = slots(max_num_seqs, whole, most)
    filled = _filled_up(quotes, each * missing)
    # Questions that pad the batch draw nothing; they get the first one's key.
    of_prompt = np.repeat([*range(len(questions)), *[0] * missing], each)
    keys, numbers = take_keys(keys, of_prompt), [*range(each)] * size
    counts = counts + [0] * (each * missing)
    draw = partial(
        sample,
        transformer,
        model.params,
        prompts + prompts[:each] * missing,
        settings=settings,
        eos_id=vocabulary.eos_id,
        pad_id=vocabulary.pad_id,
        rows_per_prompt=in_flight.rows,
        prompts_in_flight=in_flight.prompts,
        vocabulary_size=vocabulary.size,
        other_eos_ids=vocabulary.other_eos_ids,
        coming=coming,
    )
    if shown is None or filled is None:
        drawn = draw(key=keys, key_numbers=numbers, quotes=filled, samples_per_prompt=counts)
        lacks = np.zeros(sum(counts), bool)
    else:
        drawn, lacks = sample_supported(
            draw, keys, numbers, filled, counts, vocabulary, shown, each
        )
    first = np.cumsum([0, *counts])  # index of each prompt's first sample
    turns_of = [divmod(number, each) for number in range(count)]
    return [
        [
            _candidate(vocabulary, drawn, lacks, place, int(first[question * each + place]) + turn)
            for turn, place in turns_of
        ]
        for question in range(len(questions))
    ]


def _candidate(
    vocabulary: Vocabulary,
    drawn: Samples,
    lacks: Bool[np.ndarray, " samples"],
    prompt: int,
    row: int,
) -> Candidate:
    tokens = tuple(drawn.tokens[row, : drawn.lengths[row]].tolist())
    log_prob = _sum(drawn.log_probs, row)
    assert log_prob is not None  # the settings ask for it
    constrained = _sum(drawn.constrained_log_probs, row)
    text, lacks_claim = vocabulary.decode(tokens), bool(lacks[row])
    return Candidate(prompt, tokens, text, log_prob, constrained, lacks_claim)


def _filled_up(quotes: QuoteTables | None, prompts: int) -> QuoteTables | None:
    """The tables of a batch with `prompts` more prompts, which are copies of the first."""
    if quotes is None or not prompts:
        return quotes
    return quotes._replace(first=jnp.concatenate([quotes.first, quotes.first[:1].repeat(prompts)]))


class Rewards(NamedTuple):
    """A reward model's scores of responses.

    Attributes:
      reward: the difference between two responses' rewards is the log-odds that people prefer the
        first.
      supported_and_plausible: the probability that raters find a response both supported and
        plausible.
    """

    reward: Float[np.ndarray, " responses"]
    supported_and_plausible: Float[np.ndarray, " responses"]


class Scorer:
    """Scores responses with a reward model, in batches of one size.

    Args:
      model: a reward model (`gophercite.models.reward_model.load_reward_model`).
      batch_size: number of responses per forward pass; bounds the memory.
      prefix_tokens: maximum number of tokens for a long answer's references and its question.
      widths: batches are padded to a multiple of this many tokens, because each width needs its own
        compiled program.

    Raises:
      ValueError: `batch_size` is less than 1.
    """

    def __init__(
        self,
        model: Model,
        batch_size: int = 16,
        prefix_tokens: int = PREFIX_TOKENS,
        widths: int = 1,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size = {batch_size}: must be at least 1")
        self._model = model
        self._batch_size = batch_size
        self._prefix_tokens, self._widths = prefix_tokens, widths

    def score(self, question: str, responses: Sequence[Response]) -> Rewards:
        """Scores responses to one question; see `score_each`."""
        return self.score_each([(question, response) for response in responses])

    def score_each(self, answered: Sequence[tuple[str, Response]]) -> Rewards:
        """Scores responses to their questions; duplicates are scored once.

        Args:
          answered: pairs of question and response. The question comes without pages, because the
            model sees what a rater is shown; the response is a claim with its evidence, an answer
            with numbered references, or any other text.

        Returns:
          The rewards, in the responses' order.

        Raises:
          ValueError: a claim, title or quote holds a reserved mark.
        """
        encoded = [
            tuple(encode_judged_response(self._model.vocabulary, *each, self._prefix_tokens))
            for each in answered
        ]
        # Sort by length, so that batches have little padding.
        unique = sorted(set(encoded), key=len)
        size = self._batch_size
        verdicts: dict[tuple[int, ...], tuple[float, float]] = {}
        mesh = shared_mesh(self._model.params)
        for start in range(0, len(unique), size):
            batch = unique[start : start + size]
            filled = batch + [batch[0]] * (size - len(batch))  # one shape for all batches
            width = -(-max(map(len, batch)) // self._widths) * self._widths
            transformer = self._model.transformer
            rows, lengths = padded_rows(
                *(filled, self._model.vocabulary.pad_id, "response", width),
                transformer.config.max_positions,
            )
            judge = RewardModel(transformer)
            verdict = on_host(
                mesh, _judge(judge, self._model.params, *on_all(mesh, (rows, lengths)))
            )
            both = np.asarray(jax.nn.sigmoid(verdict.supported_and_plausible))
            verdicts |= zip(batch, zip(verdict.reward, both, strict=True), strict=False)
        found = np.array([verdicts[tokens] for tokens in encoded], float).reshape(-1, 2)
        return Rewards(found[:, 0], found[:, 1])


@partial(jax.jit, static_argnums=0)
def _judge(
    model: RewardModel,
    params: Params,
    tokens: Int[Array, "batch length"],
    lengths: Int[Array, " batch"],
) -> Verdict:
    return model.judge(params, tokens, lengths)


def _sum(log_probs: Float[np.ndarray, "samples tokens"] | None, row: int) -> float | None:
    return None if log_probs is None else float(np.sum(log_probs[row], dtype=np.float64))
