"""One changed bit, anywhere in a folder: it is named, or nothing that is loaded differs."""

import copy
import json
import pathlib
import random
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from vocabulary_fixtures import trained

from gophercite import cli
from gophercite.learning.state import TrainState
from gophercite.model_folders.checkpoint_errors import CheckpointError
from gophercite.model_folders.checkpoint_scores import Score
from gophercite.model_folders.folder import (
    Model,
    ModelFolderError,
    describe_run,
    load_model,
    read_description,
    read_vocabulary,
    save_model,
)
from gophercite.model_folders.tensors import TensorFileError
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.training.checkpoints import Checkpoints
from gophercite.vocabularies import (
    HuggingFaceVocabulary,
    Vocabulary,
    VocabularyError,
    load_vocabulary,
)
from tests.long_forms import IS_LONG
from tests.weights.samples import byte_tokenizer

CONFIG = TransformerConfig(
    vocab_size=512, d_model=8, num_layers=2, num_heads=2, head_dim=4, d_ff=12, position="rope"
)
REFUSALS = (ModelFolderError, TensorFileError, CheckpointError, VocabularyError)
TEXT = "née “Orm”, 1874 ☃ %<Claim>%"


def sentence_piece() -> Vocabulary:
    vocabulary = copy.copy(trained())
    vocabulary.question_first = True
    vocabulary.end_by([40, 41])
    vocabulary.chat_template = "{{ messages }}"
    return vocabulary


def hugging_face() -> Vocabulary:
    return HuggingFaceVocabulary(byte_tokenizer())


def model(vocabulary: Vocabulary) -> Model:
    transformer, draw = Transformer(CONFIG), np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(draw.normal(size=leaf.shape), leaf.dtype), transformer.abstract()
    )
    return Model(transformer, params, vocabulary, {"run": "a test", "prompt": {"examples": 3}})


def save_run(folder: pathlib.Path, saved: Model) -> None:
    describe_run(folder, saved.transformer, saved.vocabulary, saved.provenance)
    checkpoints = Checkpoints(folder, keep_newest=2)
    for step, score in ((1, 0.5), (2, 0.7)):
        state = TrainState(jnp.int32(step), saved.params, {}, None, jax.random.key(0))
        checkpoints.save(state, {}, Score(score))
    checkpoints.close()


def contents(folder: pathlib.Path) -> dict[str, Any]:
    """Everything that a model has."""
    loaded = load_model(folder)
    return {
        "config": loaded.transformer.config,
        "provenance": loaded.provenance,
        "parameters": [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(loaded.params)],
        "vocabulary": tokens(loaded.vocabulary),
    }


def tokens(vocabulary: Vocabulary) -> list[Any]:
    spelled = [vocabulary.token_bytes(id) for id in range(vocabulary.size)]
    special = (vocabulary.eos_id, vocabulary.pad_id, vocabulary.bos_id, vocabulary.unk_id)
    ends = (vocabulary.other_eos_ids, vocabulary.chat_template, vocabulary.dummy_prefix)
    return [spelled, special, ends, vocabulary.question_first, vocabulary.encode(TEXT)]


def flip_everywhere(folder: pathlib.Path, read: Callable[[], Any], flips: int) -> None:
    """Flips single bits at random places of every file, and reads. Each run draws other places."""
    flips *= 10 if IS_LONG else 1
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    expected, draw = read(), random.Random(seed)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole = path.read_bytes()
        for _ in range(min(flips, 8 * len(whole))):
            place, bit = draw.randrange(len(whole)), draw.randrange(8)
            damaged = bytearray(whole)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            where = f"{path.relative_to(folder)}, byte {place}, bit {bit}, seed {seed}"
            try:
                found = read()
            except REFUSALS as error:
                right = str(folder) in str(error) and "\n" not in str(error)
            else:
                right = found == expected
            assert right, where
        path.write_bytes(whole)


@pytest.mark.parametrize("vocabulary", [sentence_piece, hugging_face])
def test_a_flipped_bit_in_a_model_folder(
    vocabulary: Callable[[], Vocabulary], tmp_path: pathlib.Path
) -> None:
    folder = tmp_path / "model"
    save_model(folder, model(vocabulary()))
    flip_everywhere(folder, lambda: contents(folder), flips=4)


@pytest.mark.parametrize("vocabulary", [sentence_piece, hugging_face])
def test_a_flipped_bit_in_a_vocabulary(
    vocabulary: Callable[[], Vocabulary], tmp_path: pathlib.Path
) -> None:
    """Also where it lies alone, as a run's input names it."""
    folder = tmp_path / "vocabulary"
    vocabulary().save(folder)
    flip_everywhere(folder, lambda: tokens(load_vocabulary(folder)), flips=20)


def test_a_flipped_bit_in_a_run(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "run"
    save_run(folder, model(sentence_piece()))
    flip_everywhere(folder, lambda: contents(folder), flips=1)


def test_a_damaged_checkpoint_does_not_make_another_one_the_best(tmp_path: pathlib.Path) -> None:
    save_run(tmp_path, model(trained()))
    assert load_model(tmp_path).provenance["step"] == 1
    path = tmp_path / "checkpoints" / "1" / "metadata" / "metadata"
    text = path.read_text()
    assert '"score": {"value": 0.5' in text
    path.write_text(text.replace('"value": 0.5', '"value": 0.6'))
    with pytest.raises(CheckpointError, match=r"checkpoints/1/.*copy checkpoint 1 again"):
        load_model(tmp_path)
    shutil.move(path.parents[1], tmp_path / "aside")
    assert load_model(tmp_path).provenance["step"] == 2


@pytest.fixture
def saved(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "model"
    save_model(folder, model(sentence_piece()))
    return folder


DAMAGES: dict[str, tuple[Callable[[pathlib.Path], object], str]] = {
    "another file": (
        lambda folder: (folder / "vocabulary" / "tokenizer_config.json").write_text("{}"),
        r"vocabulary/tokenizer_config\.json: is not on the list",
    ),
    "a file less": (
        lambda folder: (folder / "vocabulary" / "generation_config.json").unlink(),
        r"vocabulary/generation_config\.json: the file is missing",
    ),
    "another form of prompts": (
        lambda folder: (folder / "vocabulary" / "prompt.json").write_text(
            '{"question_first": false}'
        ),
        r"vocabulary/prompt\.json: is damaged or was edited",
    ),
    "no form of prompts": (
        lambda folder: (folder / "vocabulary" / "prompt.json").unlink(),
        r"vocabulary/prompt\.json: the file is missing",
    ),
    "no list": (
        lambda folder: (folder / "vocabulary" / "vocabulary.sha256").unlink(),
        r"vocabulary\.sha256 is missing",
    ),
    "an empty list": (
        lambda folder: (folder / "vocabulary" / "vocabulary.sha256").write_text(""),
        r"vocabulary\.sha256 is damaged or belongs to another model",
    ),
    "another vocabulary": (
        lambda folder: hugging_face().save(folder / "vocabulary"),
        r"vocabulary\.sha256 is damaged or belongs to another model",
    ),
    "an edit": (
        lambda folder: (folder / "model.json").write_text(
            (folder / "model.json").read_text().replace("1e-06", "1.0")
        ),
        r"model\.json: is damaged or was edited.*gophercite renew",
    ),
    "an empty file": (
        lambda folder: (folder / "model.json").write_text(""),
        r"model\.json: expected an object, got an empty file",
    ),
    "a list": (
        lambda folder: (folder / "model.json").write_text("[]"),
        r"model\.json: expected an object, got the list",
    ),
    "nested": (
        lambda folder: (folder / "model.json").write_text("[" * 10**6),
        r"model\.json: not JSON",
    ),
    "a folder": (
        lambda folder: ((folder / "model.json").unlink(), (folder / "model.json").mkdir()),
        r"model\.json: can't be read: Is a directory",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_was_changed_is_named(name: str, saved: pathlib.Path) -> None:
    damage, message = DAMAGES[name]
    damage(saved)
    with pytest.raises(ModelFolderError, match=rf"\A[^\n]*{message}[^\n]*\Z"):
        read_vocabulary(saved)


def test_an_edit_by_hand_is_taken_in_by_a_command(
    saved: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    description = saved / "model.json"
    fields = json.loads(description.read_text())
    fields["architecture"]["norm_epsilon"] = 1e-3
    description.write_text(json.dumps(fields))
    (saved / "vocabulary" / "chat_template.jinja").write_text("edited")
    assert cli.main(["info", str(saved)]) == 1
    assert f"gophercite renew {saved}" in capsys.readouterr().err
    assert cli.main(["renew", str(saved)]) == 0
    loaded = load_model(saved)
    assert loaded.transformer.config.norm_epsilon == 1e-3
    assert loaded.vocabulary.chat_template == "edited"
    form = saved / "vocabulary" / "prompt.json"
    form.write_text("[]")
    assert cli.main(["renew", str(saved)]) == 1
    assert "prompt.json" in capsys.readouterr().err
    form.unlink()
    assert cli.main(["renew", str(saved)]) == 0
    assert not load_model(saved).vocabulary.question_first
    fields["architecture"]["norm_epsilon"] = -1
    description.write_text(json.dumps(fields))
    assert cli.main(["renew", str(saved)]) == 1
    assert "norm_epsilon" in capsys.readouterr().err
    assert json.loads(description.read_text()) == fields  # what can't be used is left as it was


def test_older_folders_are_read_and_can_be_renewed(saved: pathlib.Path) -> None:
    expected = contents(saved)
    path = saved / "model.json"
    fields = json.loads(path.read_text())
    older = {name: fields[name] for name in ("architecture", "provenance", "parameters")}
    path.write_text(json.dumps({"format": 1, **older}))
    (saved / "vocabulary" / "vocabulary.sha256").unlink()
    assert contents(saved) == expected
    assert cli.main(["renew", str(saved)]) == 0
    assert json.loads(path.read_text()) == fields
    assert read_description(saved).vocabulary == fields["vocabulary"]
    assert contents(saved) == expected


def test_a_vocabulary_that_was_edited_is_renewed(tmp_path: pathlib.Path) -> None:
    sentence_piece().save(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 50]}')
    with pytest.raises(VocabularyError, match=r"generation_config\.json: is damaged or was edited"):
        load_vocabulary(tmp_path)
    with pytest.raises(VocabularyError, match=r"generation_config\.json: is damaged or was edited"):
        load_vocabulary(tmp_path / "vocabulary.model")
    assert cli.main(["renew", str(tmp_path)]) == 0
    assert load_vocabulary(tmp_path).other_eos_ids == (50,)


def test_a_damaged_run_is_told_in_words_for_people(tmp_path: pathlib.Path) -> None:
    """Not in those of Orbax, TensorStore or Python."""
    save_run(tmp_path, model(trained()))
    folder = tmp_path / "checkpoints" / "1"
    metadata, state = folder / "metadata" / "metadata", folder / "state"
    whole = metadata.read_text()
    message = r"\A{path}: {said}[^\n]*; copy checkpoint 1 again, or move it away[^\n]*\Z"
    for content, said in (
        ("", "is empty"),
        (whole[:50], "is cut short or damaged: it is not JSON"),
        ("[]", "is damaged: it is not what was saved"),
        (whole.replace("0.5", "0.4"), "is damaged: it is not what was saved"),
    ):
        metadata.write_text(content)
        with pytest.raises(CheckpointError, match=message.format(path=metadata, said=said)):
            load_model(tmp_path)
    metadata.unlink()
    with pytest.raises(
        CheckpointError, match=message.format(path=metadata, said="the file is miss")
    ):
        load_model(tmp_path)
    metadata.write_text(whole)
    described = state / "_METADATA"
    kept, said = described.read_text(), "files are missing, cut short or damaged"
    for content in ("", kept.replace("embedding", "embeddinh")):
        described.write_text(content)
        with pytest.raises(CheckpointError, match=message.format(path=state, said=said)):
            load_model(tmp_path)
    described.write_text(kept)
    for path in (path for path in state.rglob("*") if path.is_file() and path.parent.name == "d"):
        path.write_bytes(b"")
    with pytest.raises(CheckpointError, match=message.format(path=state, said=said)):
        load_model(tmp_path)


def test_what_still_reads_when_an_array_is_damaged_prints_no_tracebacks(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_run(tmp_path, model(trained()))
    for path in (tmp_path / "checkpoints" / "1" / "state").rglob("d/*"):
        path.write_bytes(b"")
    printed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: printed.append(raised.exc_value))
    for _ in range(5):
        with pytest.raises(CheckpointError):
            load_model(tmp_path)
    time.sleep(0.1)  # for threads that would be late
    assert printed == []
