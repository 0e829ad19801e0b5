import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from data_pipelines import packing
from data_pipelines.packing import Example, PackingReport
from gophercite.learning.gradient_learner import cut_rows
from gophercite.learning.optimizers import adafactor, adam
from gophercite.learning.supervised import SupervisedLearner
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import split_layers
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.planning.compiled import costs
from tests.drawn_parameters import drawn_parameters
from tests.long_forms import IS_LONG, LONG

CONFIG = TransformerConfig(
    vocab_size=40,
    d_model=16,
    num_layers=5,
    num_heads=4,
    head_dim=4,
    position="learned",
    max_positions=16,
    dtype="float32",
    remat_every=1,
)


def make_batch(rows=8, length=16, vocab=40, seed=0):
    """Two packed sequences and padding a row; the last third of each sequence is the response."""
    rng = np.random.default_rng(seed)
    first, second = length // 2, length // 3
    rest = length - first - second
    places = [*range(first), *range(second), *([0] * rest)]
    segments = [1] * first + [2] * second + [0] * rest
    weights = [float(s > 0 and p % 3 == 2) for p, s in zip(places, segments, strict=True)]
    tile = lambda x, dtype: np.tile(np.array(x, dtype), (rows, 1))  # noqa: E731
    return {
        "tokens": rng.integers(0, vocab, (rows, length)).astype(np.int32),
        "targets": rng.integers(0, vocab, (rows, length)).astype(np.int32),
        "weights": tile(weights, np.float32),
        "positions": tile(places, np.int32),
        "segments": tile(segments, np.int32),
    }


def make_learner(config=CONFIG, **settings):
    return SupervisedLearner(Transformer(config), adafactor(), lambda step: 1e-2, **settings)


LEARNER = make_learner()
WITHOUT_REMAT = dataclasses.replace(CONFIG, remat_every=0)
GRADIENTS = jax.jit(make_learner(WITHOUT_REMAT, microbatches=4).gradients)


@functools.cache
def initial(transformer, frozen):
    return drawn_parameters(transformer, frozen_layers=frozen)


def start(learner, frozen=0):
    return learner.init_state(initial(learner.transformer, frozen), jax.random.key(1))


@jax.jit
@functools.partial(jax.value_and_grad, has_aux=True)
def plain_loss(params, batch):
    """The mean over the whole batch, written plainly, and the logits."""
    model = Transformer(WITHOUT_REMAT)
    hidden, _ = model.apply(params, batch["tokens"], batch["positions"], batch["segments"])
    logits = model.logits(params, hidden)
    nll = optax.softmax_cross_entropy_with_integer_labels(logits, batch["targets"])
    return jnp.sum(nll * batch["weights"]) / jnp.sum(batch["weights"]), logits


# A step on a mesh has microbatches and blocks that are rematerialised, too.
@pytest.mark.parametrize("remat_every", [0, pytest.param(2, marks=LONG)])
def test_microbatches_give_the_whole_batch_s_gradient(remat_every):
    """Blocks that are rematerialised add theirs into one buffer, others do not."""
    batch, config = make_batch(), dataclasses.replace(CONFIG, remat_every=remat_every)
    params = start(LEARNER).params
    (loss, _), whole = plain_loss(params, batch)
    gradients = jax.jit(make_learner(config, microbatches=4).gradients)
    pieces, losses = (gradients if remat_every else GRADIENTS)(
        params, batch, batch["weights"].sum()
    )
    for name in ("loss/total", "loss/nll"):
        np.testing.assert_allclose(losses[name], loss, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-6), pieces, whole)


ROTARY = dataclasses.replace(CONFIG, position="rope", max_positions=None, remat_every=0)
READER = make_learner(ROTARY)


@jax.jit
def read(params, batch):
    weight = jnp.sum(batch["weights"])
    return READER.gradients(params, batch, weight), READER.evaluate(params, batch)


def answers_by_page(draws):
    """A few pages, each with a few questions that begin with it; the answers have weights."""
    examples = []
    for size, answers in ((20, 3), (17, 1), (25, 2)):
        page = draws.integers(0, 40, size)
        for _ in range(answers):
            rest = draws.integers(0, 40, draws.integers(4, 9))
            weights = np.zeros(size + len(rest), np.float32)
            weights[size + 2 :] = draws.uniform(0.5, 1.5, len(rest) - 2)
            examples.append(Example(np.concatenate([page, rest]).astype(np.int32), weights))
    return examples


@pytest.mark.parametrize("seed", range(3))
def test_a_page_read_once_for_all_its_questions_gives_the_same_gradient(seed):
    examples, length = answers_by_page(np.random.default_rng(seed)), 80
    params = start(READER).params
    results = []
    for share in (False, True):
        report = PackingReport()
        groups = packing.group(examples, length, report, share_beginnings=share)
        # Where nothing is shared, each example is a branch of its own, so that programs are alike.
        branches = share or not IS_LONG
        rows = [packing.build_row(row, length, branches=branches) for row in groups]
        rows += [packing.build_row([], length, branches=branches)] * (4 - len(rows))
        batch = packing.stack_rows(rows, length, branches=branches)
        assert (report.tokens < sum(len(example.tokens) for example in examples)) == share
        results.append(read(params, batch))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6), *results)


def test_positions_that_count_the_row_can_not_branch():
    batch = make_batch()
    batch["branches"] = np.zeros_like(batch["segments"])
    for change in ({"position": "transformer_xl"}, {"window": 4}, {"attention_kernel": "splash"}):
        learner = make_learner(dataclasses.replace(ROTARY, **change))
        with pytest.raises(ValueError, match="branching segments"):
            jax.eval_shape(learner.evaluate, learner.transformer.abstract(), batch)


def test_targets_of_weight_zero_do_not_matter():
    batch = make_batch()
    other = {**batch, "targets": np.where(batch["weights"] > 0, batch["targets"], 7)}
    assert np.any(other["targets"] != batch["targets"])
    params = start(LEARNER).params
    weight = batch["weights"].sum()
    before, after = (GRADIENTS(params, each, weight) for each in (batch, other))
    jax.tree.map(np.testing.assert_array_equal, before, after)


def test_a_piece_of_a_batch_has_every_nth_row():
    rows = np.arange(12).reshape(6, 2)
    pieces = cut_rows({"rows": rows}, 2)["rows"]
    np.testing.assert_array_equal(pieces, [rows[0::2], rows[1::2]])
    with pytest.raises(ValueError, match="6 rows can't be divided into 4"):
        cut_rows(rows, 4)


# The paper's positions. An optimiser that is no sign function near 0, where the order of a sum
# decides the sign.
SMOOTH = SupervisedLearner(
    Transformer(dataclasses.replace(CONFIG, position="transformer_xl", max_positions=None)),
    adam(eps=1.0),
    lambda step: 3.0,
    frozen_parts=("embed",),
    max_grad_norm=1.0,
    ema_decay=0.9,
)
UPDATE = jax.jit(SMOOTH.update)


def test_training_lowers_the_loss_and_leaves_frozen_parts_alone():
    state, batch = start(SMOOTH, frozen=2), make_batch(rows=16)
    losses = []
    after = state
    for _ in range(20):
        after, metrics = UPDATE(after, batch)
        losses.append(float(metrics["loss/nll"]))
    assert losses[-1] < 0.8 * losses[0]
    assert int(after.step) == 20
    for part in ("embed", "frozen_layers"):
        jax.tree.map(np.testing.assert_array_equal, after.params[part], state.params[part])
        assert part not in after.optimizer.statistics
    moved = jax.tree.map(
        lambda a, b: bool(np.any(np.not_equal(a, b))),
        after.params["trained_layers"],
        state.params["trained_layers"],
    )
    assert all(jax.tree.leaves(moved))
    assert UPDATE(after, batch)[1]["loss/nll"] < losses[-1] * 1.05


def test_evaluation_is_the_weighted_mean_of_the_tokens():
    batch, params = make_batch(), start(LEARNER).params
    logits = np.asarray(plain_loss(params, batch)[0][1], np.float64)
    log_probs = logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))
    nll = -np.take_along_axis(log_probs, batch["targets"][..., None], -1)[..., 0]
    above_frozen_layers = jax.device_put(split_layers(jax.device_get(params), 2))
    total, weight = jax.jit(LEARNER.evaluate)(above_frozen_layers, batch)["loss"]
    np.testing.assert_allclose(total, np.sum(nll * batch["weights"]), rtol=1e-5)
    assert weight == batch["weights"].sum()


def test_a_misspelt_frozen_part_is_named():
    said = (
        r"SupervisedLearner.frozen_parts = \('embedd',\): the model has no part 'embedd'; .* embed,"
    )
    with pytest.raises(ValueError, match=said):
        start(make_learner(frozen_parts=("embedd",)))


@pytest.mark.parametrize(
    ("setting", "wrong", "right"),
    [
        ("microbatches", (0, -2, 2.0, True), "a whole number, at least 1"),
        ("max_grad_norm", (0, 0.0), "a finite number above 0, or None for no clipping"),
        ("ema_decay", (1,), "a finite number at least 0 and below 1, or None for no average"),
    ],
)
def test_settings_that_would_train_nothing_are_refused(setting, wrong, right):
    for value in wrong:
        said = f"SupervisedLearner.{setting} = {value!r}: must be {right}"
        with pytest.raises(ValueError, match=re.escape(said)):
            make_learner(**{setting: value})


def test_a_batch_must_have_rows_for_every_microbatch():
    make_learner(microbatches=4).check_batch(8)
    said = "SupervisedLearner.microbatches = 3: must divide the 8 rows of a batch"
    with pytest.raises(ValueError, match=said):
        make_learner(microbatches=3).check_batch(8)


def test_frozen_layers_cost_no_backward_pass_no_state_and_no_activations():
    """As the compiler counts: half of the layers frozen against none."""
    config = dataclasses.replace(
        CONFIG,
        num_layers=8,
        d_model=64,
        head_dim=16,
        vocab_size=64,
        max_positions=64,
        remat_every=0,
    )
    rows, length = 32, 64
    batch = make_batch(rows, length, vocab=64)
    compiled, state_bytes = {}, {}
    for frozen in (0, 4):
        learner = SupervisedLearner(Transformer(config), adam(), lambda step: 1e-3)
        state = jax.eval_shape(
            lambda learner=learner, frozen=frozen: learner.init_state(
                learner.transformer.init(jax.random.key(0), frozen), jax.random.key(1)
            )
        )
        state_bytes[frozen] = sum(
            leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state.optimizer)
        )
        # Gradients alone: the optimiser has no products, and no activations.
        gradients = jax.jit(learner.gradients).lower(state.params, batch, np.float32(1))
        compiled[frozen] = gradients.compile()
    layer = config.layer_parameters
    assert state_bytes[0] - state_bytes[4] == 4 * layer * 2 * 4  # two float32 moments
    temporary = {n: c.memory_analysis().temp_size_in_bytes for n, c in compiled.items()}
    # A trained layer keeps its input, five products of attention's width, and one of the MLP's.
    kept = rows * length * (6 * config.d_model + config.mlp_width) * 4
    assert temporary[0] - temporary[4] > 0.8 * 4 * kept
    # A forward pass of all layers and the two products of each backward one: 8 + 2 · 4 of 24.
    operations = {n: costs(c.as_text()).flops for n, c in compiled.items()}
    assert operations[4] / operations[0] == pytest.approx(16 / 24, rel=0.05)


@pytest.mark.parametrize(
    ("data", "fsdp", "model"),
    [(2, 2, 2), *(pytest.param(*mesh, marks=LONG) for mesh in ((1, 8, 1), (1, 1, 4), (4, 1, 2)))],
)
def test_a_sharded_step_equals_that_of_one_device(data, fsdp, model):
    """In two microbatches, whose gradients are added into one buffer."""
    state, batch = start(SMOOTH, frozen=2), make_batch(rows=16)
    alone, losses = UPDATE(state, batch)

    of = dataclasses.replace(SMOOTH, microbatches=2)
    mesh = make_mesh(data, fsdp, model, devices=jax.devices()[: data * fsdp * model])
    partitioner = Partitioner(mesh)
    shardings = partitioner.shardings(SMOOTH.state_axes(state.params), state)
    placed = jax.device_put(jax.device_get(state), shardings)
    rows = jax.device_put(batch, partitioner.batch_sharding)
    with partitioner.activate():
        step = jax.jit(of.update, out_shardings=(shardings, partitioner.replicated))
        after, same = step(placed, rows)
    assert after.params["trained_layers"]["up"].sharding == shardings.params["trained_layers"]["up"]
    if fsdp * model > 1:
        up = after.params["trained_layers"]["up"]
        assert up.addressable_shards[0].data.size == up.size // (fsdp * model)
    np.testing.assert_allclose(same["loss/nll"], losses["loss/nll"], rtol=1e-5)
    for ours, theirs in ((after.params, alone.params), (after.ema, alone.ema)):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5), ours, theirs
        )
