"""What T5X itself makes of our exports, and how it trains our models; skipped where it is not.

T5X is not on PyPI; docs/t5x.md names the versions with which these tests passed.
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gophercite.decoding.sampler import sample
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.model_folders.folder import load_model, read_description, save_model
from gophercite.models.config import TransformerConfig
from gophercite.vocabularies import load_vocabulary
from gophercite.weights.t5x import import_t5x
from gophercite.weights.t5x_bridged import export_bridged, import_bridged
from gophercite.weights.t5x_export import export_t5x
from tests.weights import parity
from tests.weights.t5x_samples import CHECKPOINTS, KINDS, STEP, random_model, t5x_run

t5x = pytest.importorskip("t5x", reason="T5X is not installed (docs/t5x.md)", exc_type=ImportError)

ROOT = pathlib.Path(__file__).parents[1]
CONFIG = ROOT / "gin_configs/t5x"
TINY = TransformerConfig(
    vocab_size=2048, d_model=16, num_layers=2, num_heads=2, head_dim=8, d_ff=24, dtype="float32"
)


def t5x_logits(kind: str, checkpoint: pathlib.Path) -> parity.Rows:
    """What T5X's network computes with the parameters that T5X reads."""
    from t5x import checkpoints
    from t5x.examples.decoder_only import network

    from tests.weights.make_t5x_checkpoints import KINDS as NETWORKS

    fields: dict[str, Any] = NETWORKS[kind][0]
    module = network.DecoderWrapper(network.TransformerConfig(**fields, dropout_rate=0.0))
    restored = checkpoints.load_t5x_checkpoint(str(checkpoint), restore_dtype=jnp.float32)
    assert int(restored["state"]["step"]) == STEP
    sequences, _ = parity.stored_logits(CHECKPOINTS / f"{kind}.npz")
    rows = []
    for tokens in sequences:
        ids = jnp.asarray(tokens[None])
        variables = {"params": restored["target"]}
        found = module.apply(variables, ids, jnp.ones_like(ids), enable_dropout=False)
        rows.append(np.asarray(found[0], np.float32))
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_t5x_reads_what_we_export(kind: str, tmp_path: pathlib.Path) -> None:
    source = t5x_run(kind, tmp_path / "run")
    import_t5x(source, tmp_path / "model", source.parent / "sentencepiece.model")
    (name,) = export_t5x(tmp_path / "model", tmp_path / "exported").files
    _, expected = parity.stored_logits(CHECKPOINTS / f"{kind}.npz")
    found = t5x_logits(kind, tmp_path / "exported" / name)
    assert parity.largest_difference(found, expected) < 1e-5


def train(folder: pathlib.Path, model: pathlib.Path, steps: int, *more: str) -> str:
    """Runs T5X's own trainer on the sample world; gives what it logged."""
    command = [
        *(sys.executable, "-m", "t5x.train", f"--gin_search_paths={CONFIG}"),
        "--gin_file=train_sample_world.gin",
        f'--gin.MODEL_DIR="{folder}"',
        f'--gin.MODEL_FOLDER="{model}"',
        f"--gin.TRAIN_STEPS={steps}",
        "--gin.EVALUATE_EVERY=2",
        "--gin.BATCH_SIZE=4",
        *more,
    ]
    # One device: the tests' own eight are simulated.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def test_t5x_trains_a_model_of_ours_and_begins_where_we_left_it(tmp_path: pathlib.Path) -> None:
    from t5x import checkpoints

    from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER

    model = tmp_path / "model"
    random = random_model(TINY, {"step": 10})
    save_model(model, dataclasses.replace(random, vocabulary=load_vocabulary(VOCABULARY_FOLDER)))
    (start,) = export_bridged(model, tmp_path / "start").files
    stored = checkpoints.load_t5x_checkpoint(str(tmp_path / "start" / start))["target"]
    ours = load_model(model).params
    assert jax.tree.all(jax.tree.map(np.array_equal, stored, ours))
    # No learning: T5X begins and ends with what it was given, but for its optimizer's rounding.
    restored = (
        f'--gin.INITIAL_CHECKPOINT="{tmp_path / "start" / start}"',
        "--gin.LEARNING_RATE=0.0",
    )
    logged = train(tmp_path / "run", model, 12, *restored)
    assert "Computing training evaluation metrics" in logged
    import_bridged(tmp_path / "run" / "checkpoint_12", tmp_path / "same", model)
    same = load_model(tmp_path / "same").params
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-6), same, ours)
    assert read_description(tmp_path / "same").provenance["step"] == 12
    # And with a learning rate it learns.
    train(tmp_path / "learning", model, 12, restored[0])
    import_bridged(tmp_path / "learning" / "checkpoint_12", tmp_path / "learnt", model)
    learnt = load_model(tmp_path / "learnt").params
    moved = np.abs(learnt["trained_layers"]["up"] - ours["trained_layers"]["up"])
    assert moved.max() > 1e-4


def test_scores_and_predictions_are_our_own(tmp_path: pathlib.Path) -> None:
    from data_pipelines.t5x_bridge import GopherCiteModel

    save_model(tmp_path / "model", random_model(TINY, {}))
    model = load_model(tmp_path / "model")
    bridged = GopherCiteModel(str(tmp_path / "model"), optimizer_def=None)
    prompts, length = [[0, 5, 9, 31], [0, 77]], 12
    rows = np.zeros((2, length), np.int32)
    shown = np.zeros_like(rows)
    for row, prompt in enumerate(prompts):
        rows[row, : len(prompt)], shown[row, : len(prompt)] = prompt, 1
    batch = {"decoder_input_tokens": rows, "decoder_causal_attention": shown}
    found = np.asarray(bridged.predict_batch(model.params, batch))
    settings = SamplingSettings(max_tokens=length, temperature=0.0)
    expected = sample(
        model.transformer,
        model.params,
        prompts,
        jax.random.key(0),
        settings,
        eos_id=1,
        pad_id=0,
        vocabulary_size=model.vocabulary.size,
    )
    for row, prompt in enumerate(prompts):
        room = length - len(prompt) + 1
        np.testing.assert_array_equal(found[row, :room], expected.tokens[row, :room])
        assert not found[row, room:].any()
    targets = np.roll(rows, -1, axis=1)
    batch = {"decoder_input_tokens": rows, "decoder_target_tokens": targets}
    weights = (targets > 0).astype(np.float32)
    scores = bridged.score_batch(model.params, {**batch, "decoder_loss_weights": weights})
    places = np.broadcast_to(np.arange(length), rows.shape)
    hidden, _ = model.transformer.apply(model.params, rows, places, (targets > 0).astype(np.int32))
    logs = jax.nn.log_softmax(model.transformer.logits(model.params, hidden))
    chosen = np.take_along_axis(np.asarray(logs), targets[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(scores, (chosen * weights).sum(axis=-1), rtol=1e-5)
