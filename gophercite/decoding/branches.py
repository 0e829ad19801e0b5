"""Samples that have drawn the same tokens so far are on one branch, which the model reads once.

The samples of a prompt all begin alike, and a model that is sure of its answer draws most of them
alike to the end. An accelerator needs about as long for a hundred tokens in a pass as for one. A
CPU does not, so there a pass has a place for each branch instead of one for each sample. Each
sample still draws its own tokens with its own random numbers, from its branch's logits.

Places that are left over read drafts (`drafts.draft`): the tokens by which branches go on if their
quotes go on as their pages do. A row that draws the drafted token can draw the next one at once.
Whatever is drafted, the samples are the same.

All branches of a prompt share one row of the cache, in which each token sees those of its own
branch alone (tree attention, Miao et al. 2023). So nothing is moved when a branch splits or ends.
"""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from gophercite.decoding.decode_state import Branches, DecodeState, Plan, Work, alive
from gophercite.decoding.drafts import draft
from gophercite.decoding.sampling import Logits, LogitsOf
from gophercite.quoting.look_ups import look_up, look_up_by_row

# A pass of SmolLM2 on two cores takes 36 to 43 ms for 1 to 4 tokens, 48 for 8, and 67 for 16.
_PLACES, _PLACES_WITH_DRAFTS, _FACTOR, _FEWEST_SAMPLES = 4, 8, 4, 8
# From here on a question alone, in branches, takes less time than beside others (see `outrun`).
_MANY_PARAMETERS, _MANY_SAMPLES = 2**25, 16

# Draws a token for some rows. Returns the state with the tokens, the tokens, and the rows whose
# samples have ended.
Draw = Callable[
    [DecodeState, Bool[Array, "slots rows"], Logits],
    tuple[DecodeState, Int[Array, "slots rows"], Bool[Array, "slots rows"]],
]


def usual_sizes(samples: int, drafts: bool) -> tuple[int, ...]:
    """The numbers of places for which a CPU's program has a pass each.

    Args:
      samples: number of samples per prompt.
      drafts: whether there are any, as there are under the quote constraint.

    Returns:
      8, 32 and so on, the last of them the number of samples if that is more than 8. Without drafts
      4, 16 and so on up to the number of samples; but none for fewer than 8 samples, where a pass
      more to compile isn't worth it.
    """
    if samples < _FEWEST_SAMPLES and not drafts:
        return ()
    sizes = [_PLACES_WITH_DRAFTS if drafts else _PLACES]
    while sizes[-1] < samples:
        sizes.append(min(_FACTOR * sizes[-1], samples))
    return tuple(sizes)


def outrun(parameters: int, samples: int) -> bool:
    """Whether branches sample one prompt after another faster than a batch without them.

    A batch shares what each pass costs whatever it reads, which is most of the time of a small
    model, and of few samples. Of a larger model's many samples each token costs more than that, and
    branches have fewer tokens to read.

    Args:
      parameters: number of the model's parameters.
      samples: number of samples per prompt.
    """
    return parameters >= _MANY_PARAMETERS and samples >= _MANY_SAMPLES


def require_sizes(sizes: Sequence[int], rows: int) -> None:
    """Checks numbers of places: more branches than fit into any pass would wait for ever.

    Args:
      sizes: the numbers.
      rows: number of rows in each slot.

    Raises:
      ValueError: they do not rise from at least 1 to the number of rows or more.
    """
    if list(sizes) != sorted({*sizes}) or sizes[0] < 1 or sizes[-1] < rows:
        raise ValueError(f"branches = {tuple(sizes)}: must rise from 1 or more to {rows} or more")


def beginning(plan: Plan, work: Work, last: Float[Array, "slots d_model"]) -> Branches:
    """One branch for all rows of a slot, at the end of its prompt.

    Args:
      plan: what the program is compiled for.
      work: the loop's constant inputs.
      last: the representation of each prompt's last token.

    Returns:
      Rows that can all draw their first token.
    """
    slots, rows, places = len(last), plan.rows, plan.branches[-1]
    zeros = jnp.zeros((slots, rows), jnp.int32)
    read = jnp.zeros((slots, places), jnp.int32)
    logits, totals = None, None
    if _has_all_logits(plan, work):
        first, total = _all_logits(plan, work, last[:, None])
        logits = jnp.zeros((slots, places, first.shape[-1]), first.dtype).at[:, :1].set(first)
        totals = jnp.zeros((slots, places), total.dtype).at[:, :1].set(total)
    return Branches(
        of_row=zeros,
        place=zeros,
        ready=jnp.ones((slots, rows), bool),
        token=zeros,
        read=read,
        goes_on=read.astype(bool),
        shown=jnp.zeros((slots, rows, entries(plan)), bool),
        start=jnp.zeros((), jnp.int32),
        logits=logits,
        totals=totals,
    )


def entries(plan: Plan) -> int:
    """The number of entries that a prompt needs in the cache.

    In each pass every branch reads a token that its rows have drawn, so there are fewer passes than
    tokens in the longest sample. Each pass takes an entry for each of its places. So a single
    sample takes as many as eight would if they were read by themselves.
    """
    return plan.settings.max_tokens * plan.branches[-1]


def run(draw: Draw, plan: Plan, work: Work, state: DecodeState) -> DecodeState:
    """Decodes until all samples have ended.

    Args:
      draw: draws a token for some rows.
      plan: what the program is compiled for.
      work: the loop's constant inputs.
      state: the state before the first token.

    Returns:
      The state after the last one.
    """

    def due(places: int, state: DecodeState) -> Bool[Array, ""]:
        """Whether no row can draw, and a pass has room for all branches."""
        waits = jnp.any(alive(work, state)) & ~jnp.any(_of(state).ready)
        return waits & (jnp.max(jnp.sum(_leads(work, state), axis=1)) <= places)

    def step(state: DecodeState) -> DecodeState:
        state = draw_ready(draw, plan, work, state)
        # The smallest pass that is due; after it rows can draw again, so that no other is. Loops,
        # not conditionals: XLA updates a loop's state in place.
        for places in plan.branches:
            one_pass = partial(read, plan, work, places)
            state = jax.lax.while_loop(partial(due, places), one_pass, state)
        return state

    return jax.lax.while_loop(lambda state: jnp.any(alive(work, state)), step, state)


def draw_ready(draw: Draw, plan: Plan, work: Work, state: DecodeState) -> DecodeState:
    """Draws a token for each row whose last one has been read.

    Rows that draw what was drafted go on to its place. Rows stay on one branch if they were on one
    before and have drawn the same token.
    """
    before = _of(state)
    ready = before.ready & alive(work, state)
    state, token, ended = draw(state, ready, _logits(plan, work, state))
    goes_on = ready & ~ended
    alike = goes_on[:, :, None] & goes_on[:, None, :]
    for of_row in (before.of_row, token):
        alike &= of_row[:, :, None] == of_row[:, None, :]
    following = jnp.minimum(before.place + 1, before.read.shape[1] - 1)
    drafted = look_up_by_row(before.read, following)
    hit = goes_on & look_up_by_row(before.goes_on, before.place) & (drafted == token)
    place = jnp.where(hit, following, before.place)
    return state._replace(
        branches=before._replace(
            of_row=jnp.where(goes_on, jnp.argmax(alike, axis=2), before.of_row),
            place=place,
            ready=hit,
            token=jnp.where(goes_on, token, before.token),
            shown=_also(before.shown, hit, before.start + place),
        )
    )


def read(plan: Plan, work: Work, places: int, state: DecodeState) -> DecodeState:
    """Runs the model over the token that each branch's rows have drawn last, and over drafts.

    Args:
      plan: what the program is compiled for.
      work: the loop's constant inputs.
      places: number of tokens of each slot in the pass, at least the number of branches.
      state: the state, in which no row can draw.

    Returns:
      The state, in which all rows that have not ended can.
    """
    before, goes_on, leads = _of(state), alive(work, state), _leads(work, state)
    count = jnp.sum(leads, axis=1, keepdims=True)
    width = places // jnp.max(count)  # places of each branch
    leader = jax.vmap(lambda row: jnp.nonzero(row, size=places, fill_value=0)[0])(leads)
    of_leader = partial(look_up_by_row, index=leader)
    branch, offset = jnp.arange(places) // width, jnp.arange(places) % width
    tokens, real = of_leader(before.token)[:, branch], branch < count
    if work.quotes is not None and state.quote is not None:
        rows = leader + jnp.arange(len(leader))[:, None] * plan.rows
        drafted, made = draft(
            work.quotes,
            jax.tree.map(lambda leaf: look_up(leaf, rows.reshape(-1)), state.quote),
            plan.settings.max_tokens - of_leader(state.position).reshape(-1),
            width - 1,
            places,
        )
        chosen = branch, jnp.maximum(offset - 1, 0)
        drafted, made = (x.reshape(*leader.shape, places)[:, *chosen] for x in (drafted, made))
        tokens = jnp.where(offset > 0, drafted, tokens)
        real &= (offset == 0) | made
    else:
        real &= offset == 0
    start = state.cache.entries.next
    entry = jnp.arange(before.shown.shape[2])
    own = start + jnp.arange(places)[:, None]
    seen = (entry <= own) & (entry >= own - offset[:, None])
    seen |= of_leader(before.shown)[:, branch]
    positions = of_leader(state.position)[:, branch] - 1 + offset
    positions = jnp.where(real, state.cache.entries.lengths[:, None] + positions, 0)
    reading = plan.transformer.decode(
        work.params, tokens, positions, real, state.cache, seen=seen[:, None]
    )

    def put(old: Array, new: Array) -> Array:
        return old.at[:, :places].set(new)

    is_next = jnp.pad(real[:, 1:] & (offset[1:] > 0), ((0, 0), (0, 1)))
    after = before._replace(
        read=put(before.read, tokens), goes_on=put(before.goes_on, is_next), start=start
    )
    if before.logits is not None and before.totals is not None:
        logits, totals = _all_logits(plan, work, reading.hidden)
        after = after._replace(logits=put(before.logits, logits), totals=put(before.totals, totals))
    numbers = look_up_by_row(jnp.cumsum(leads, axis=1) - 1, before.of_row)
    place = jnp.where(goes_on, numbers * width, before.place)
    hidden = state.hidden.reshape(len(leader), -1, state.hidden.shape[-1])
    return state._replace(
        made=state.made._replace(passes=state.made.passes + 1),
        hidden=put(hidden, reading.hidden).reshape(state.hidden.shape),
        cache=reading.cache,
        branches=after._replace(
            place=place,
            ready=goes_on,
            shown=_also(before.shown, goes_on, start + place),
        ),
    )


def _of(state: DecodeState) -> Branches:
    assert state.branches is not None
    return state.branches


def _leads(work: Work, state: DecodeState) -> Bool[Array, "slots rows"]:
    """Which rows are the first ones of their branches."""
    of_row = _of(state).of_row
    return alive(work, state) & (of_row == jnp.arange(of_row.shape[1]))


def _also(
    shown: Bool[Array, "slots rows entries"],
    rows: Bool[Array, "slots rows"],
    entry: Int[Array, "slots rows"],
) -> Bool[Array, "slots rows entries"]:
    """Shows some rows one more entry each."""
    return shown | (rows[..., None] & (jnp.arange(shown.shape[2]) == entry[..., None]))


def _has_all_logits(plan: Plan, work: Work) -> bool:
    return work.quotes is None or plan.settings.free_log_probs


def _all_logits(
    plan: Plan, work: Work, hidden: Float[Array, "slots places d_model"]
) -> tuple[Float[Array, "slots places vocab"], Float[Array, "slots places"]]:
    logits = plan.transformer.logits(work.params, hidden)[..., : plan.vocabulary_size]
    return logits, jax.nn.logsumexp(logits, axis=-1)


def _logits(plan: Plan, work: Work, state: DecodeState) -> Logits:
    """The logits at each row's place."""
    branches = _of(state)
    slots, places = branches.read.shape
    place = (branches.place + jnp.arange(slots)[:, None] * places).reshape(-1)
    if branches.logits is None or branches.totals is None:
        hidden = state.hidden
        of_place = look_up(hidden, place)
        of_tokens = partial(plan.transformer.logits_of, work.params, of_place)

        def of_rows(rows: Array) -> Array:
            return look_up(_all_logits(plan, work, hidden[None])[0][0], look_up(place, rows))

        return Logits(LogitsOf(of_rows, of_tokens), lambda: of_rows(jnp.arange(len(place))), None)
    by_place = branches.logits.reshape(slots * places, -1)
    on_demand = LogitsOf(
        lambda rows: look_up(by_place, look_up(place, rows)),
        lambda tokens: look_up(by_place, place[:, None], tokens),
    )
    totals = look_up(branches.totals.reshape(-1), place)
    return Logits(on_demand, lambda: look_up(by_place, place), totals)
