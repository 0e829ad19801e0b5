"""Rollouts: samples of the policy with their rewards, computed and kept on the device.

A batch of prompts has

* `prompts` [prompts, length], padded on the right, and `prompt_lengths` [prompts];
* `questions` [prompts, question_length], the reward model's input before a response, and
  `question_lengths` [prompts];
* `weights` [prompts], 0 for a row that only pads the batch;
* `quotes`: `QuoteTables`, to sample under the quote constraint; or `fault_tables`: `FaultTables`,
  to sample without constraint and track each sample's faults; or neither, to sample without
  constraint and report no faults.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.decoded import Decoded
from gophercite.learning.gradient_learner import cut_rows, join_rows
from gophercite.learning.phases import phase
from gophercite.learning.ranges import require_number
from gophercite.learning.reencoding import Reencoding
from gophercite.models.parameters import FROZEN, REWARD_MODEL, Params
from gophercite.models.reward_model import RewardModel, Verdict
from gophercite.quoting.quote_state import QuoteState, QuoteTables, advance, initial

Prompts = Mapping[str, Any]  # see the module docstring


class Rollouts(NamedTuple):
    """Samples as rows; those of one prompt are adjacent.

    Attributes:
      tokens: each prompt followed by its sample, then padding.
      prompt_lengths: number of tokens in each row's prompt.
      responses: the samples without prompts.
      response_lengths: number of their tokens, including the end of sequence.
      frozen_activations: the inputs of the trained layers (`Transformer.frozen_activations`); None
        if nothing is frozen.
      quote: each sample's state in its graph before each token; None without a constraint.
      verdicts: the reward model's verdicts.
      rewards: the rewards to maximise.
      faults: the faults of each sample, as bit sets.
      weights: 0 for samples that don't count.
    """

    tokens: Int[Array, "rows length"]
    prompt_lengths: Int[Array, " rows"]
    responses: Int[Array, "rows places"]
    response_lengths: Int[Array, " rows"]
    frozen_activations: Float[Array, "rows length d_model"] | None
    quote: QuoteState | None
    verdicts: Verdict
    rewards: Float[Array, " rows"]
    faults: Int[Array, " rows"]
    weights: Float[Array, " rows"]


@dataclasses.dataclass(frozen=True)
class Rewards:
    """How samples are rewarded.

    Attributes:
      model: scores a question with a response; its parameters are the part `reward_model`.
      syntax_penalty: subtracted from a sample's reward if it has any of the seven syntax faults
        (F.1).
      reencode: for a reward model with its own vocabulary: samples then go to the host and back,
        which works in a single process only. None if the vocabularies are the same; then nothing
        leaves the device.
    """

    model: RewardModel
    syntax_penalty: float = 2.0
    reencode: Reencoding | None = None

    def __post_init__(self) -> None:
        """Checks the penalty.

        Raises:
          ValueError: it is not a finite number of at least 0.
        """
        require_number("rewards.syntax_penalty", self.syntax_penalty, least=0)


def roll_out(
    plan: Plan,
    rewards: Rewards,
    params: Params,
    batch: Prompts,
    key: Key[Array, ""],
    pieces: int = 1,
) -> Rollouts:
    """Draws samples and scores them.

    Args:
      plan: how to sample.
      rewards: how to score.
      params: the policy's parameters, with the part `reward_model`.
      batch: see the module docstring.
      key: random key of the draws.
      pieces: number of pieces that the prompts are split into, which are sampled one after the
        other; divides the memory of the KV cache and does not change the samples.

    Returns:
      The rollouts.
    """
    prompts, lengths = batch["prompts"], batch["prompt_lengths"]
    count = prompts.shape[0]
    keys = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(count))
    plan = dataclasses.replace(plan, frozen_activations=FROZEN in params)
    policy = {name: part for name, part in params.items() if name != REWARD_MODEL}
    quotes = batch.get("quotes")
    with phase("sampling"):
        decoded = _decode(plan, policy, batch, keys, pieces)

    of_row = jnp.repeat(jnp.arange(count), plan.samples)
    flat = lambda part: part.reshape(-1, *part.shape[2:])  # noqa: E731
    responses, sizes = flat(decoded.tokens), flat(decoded.lengths)
    frozen_activations = None
    if decoded.frozen_activations is not None:
        activations = decoded.frozen_activations
        frozen_activations = append(
            activations.prompts[of_row], lengths[of_row], flat(activations.samples)
        )
    with phase("rewards"):
        verdicts = _judge(plan, rewards, params, batch, responses, sizes)
    faults = _faults(decoded)
    return Rollouts(
        tokens=append(prompts[of_row], lengths[of_row], responses),
        prompt_lengths=lengths[of_row],
        responses=responses,
        response_lengths=sizes,
        frozen_activations=frozen_activations,
        quote=states_along(quotes, of_row, responses) if quotes is not None else None,
        verdicts=verdicts,
        rewards=verdicts.reward - rewards.syntax_penalty * (faults != 0),
        faults=faults,
        weights=batch["weights"][of_row],
    )


def append(
    first: Shaped[Array, "rows length *rest"],
    lengths: Int[Array, " rows"],
    second: Shaped[Array, "rows places *rest"],
) -> Shaped[Array, "rows length+places *rest"]:
    """Concatenates right-padded rows, without a gap between the two parts.

    Args:
      first: the first parts, padded on the right.
      lengths: length of each first part without padding.
      second: the second parts, padded on the right.

    Returns:
      The joined rows; entries after the end of the second part are meaningless.
    """
    both = jnp.concatenate([first, second], axis=1)
    place = jnp.arange(both.shape[1])
    start = lengths[:, None]
    index = jnp.where(place < start, place, first.shape[1] + place - start)
    index = jnp.minimum(index, both.shape[1] - 1).reshape(*index.shape, *[1] * (both.ndim - 2))
    return jnp.take_along_axis(both, index, axis=1)


def states_along(
    quotes: QuoteTables, prompts: Int[Array, " rows"], tokens: Int[Array, "rows places"]
) -> QuoteState:
    """Each sample's state in its prompt's graph before each token.

    Args:
      quotes: the batch's tables.
      prompts: which prompt each row answers.
      tokens: the tokens of each row.

    Returns:
      States whose fields are [rows, places].
    """

    def step(state: QuoteState, token: Array) -> tuple[QuoteState, QuoteState]:
        return advance(quotes, state, token), state

    states = jax.lax.scan(step, initial(quotes, prompts), tokens.T)[1]
    return jax.tree.map(lambda part: part.T, states)


def distinct_samples(responses: Int[Array, "rows places"], samples: int) -> Float[Array, ""]:
    """Mean number of distinct samples per prompt; each prompt's `samples` rows are adjacent."""
    by_prompt = responses.reshape(-1, samples, responses.shape[-1])
    same = jnp.all(by_prompt[:, :, None] == by_prompt[:, None], axis=-1)
    earlier = jnp.tril(jnp.ones((samples, samples), bool), -1)
    repeated = jnp.any(same & earlier, axis=-1)
    return jnp.mean(jnp.sum(~repeated, axis=-1).astype(jnp.float32))


def _decode(
    plan: Plan, policy: Params, batch: Prompts, keys: Key[Array, " prompts"], pieces: int
) -> Decoded:
    """Samples `pieces` groups of prompts in turn, each with its part of the batch's tables."""
    quotes, fault_tables = batch.get("quotes"), batch.get("fault_tables")
    prompts: dict[str, Any] = {name: batch[name] for name in ("prompts", "prompt_lengths")}
    if quotes is not None:
        prompts["quotes"] = {"first": quotes.first}
    if fault_tables is not None:
        prompts["fault_tables"] = {
            "titles": fault_tables.titles,
            "everything": fault_tables.everything,
        }

    def some(rows: tuple[dict[str, Any], Key[Array, " prompts"]]) -> Decoded:
        own, keys = rows
        return decode(
            plan,
            policy,
            own["prompts"],
            own["prompt_lengths"],
            keys,
            None if quotes is None else quotes._replace(**own["quotes"]),
            None if fault_tables is None else fault_tables._replace(**own["fault_tables"]),
        )

    if pieces == 1:
        return some((prompts, keys))
    by_piece: Decoded = jax.lax.map(some, cut_rows((prompts, keys), pieces))
    joined: Decoded = join_rows(by_piece._replace(passes=by_piece.passes[:, None]))
    return joined._replace(passes=jnp.sum(joined.passes))


def _faults(made: Decoded) -> Int[Array, " rows"]:
    if made.faults is not None:
        return made.faults.reshape(-1)
    return jnp.zeros(made.lengths.size, jnp.int32)


def _judge(
    plan: Plan,
    rewards: Rewards,
    params: Params,
    batch: Prompts,
    responses: Int[Array, "rows places"],
    lengths: Int[Array, " rows"],
) -> Verdict:
    """Scores questions with samples; truncated samples get an end of sequence."""
    if rewards.reencode is not None:
        sizes = (len(responses), rewards.reencode.longest), lengths.shape
        shapes = tuple(jax.ShapeDtypeStruct(size, jnp.int32) for size in sizes)
        responses, lengths = jax.pure_callback(rewards.reencode, shapes, responses, lengths)
    else:
        responses, lengths = _ended(plan.eos_id, responses, lengths)
    questions, asked = batch["questions"], batch["question_lengths"]
    of_row = jnp.repeat(jnp.arange(questions.shape[0]), plan.samples)
    tokens = append(questions[of_row], asked[of_row], responses)
    return rewards.model.judge(params[REWARD_MODEL], tokens, asked[of_row] + lengths)


def _ended(
    eos_id: int, tokens: Int[Array, "rows places"], lengths: Int[Array, " rows"]
) -> tuple[Int[Array, "rows places+1"], Int[Array, " rows"]]:
    place = jnp.arange(tokens.shape[1] + 1)
    inside: Bool[Array, "rows places"] = place[:-1] < lengths[:, None]
    ended = jnp.any(inside & (tokens == eos_id), axis=1)
    room = jnp.pad(tokens, [(0, 0), (0, 1)])
    put = ~ended[:, None] & (place == lengths[:, None])
    return jnp.where(put, eos_id, room), lengths + ~ended
