"""What is imported is what was published; what can't be is refused, and nothing stays."""

import collections
import json
import pathlib
import shutil
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from vocabulary_fixtures import llama_like_model

from gophercite import cli
from gophercite.model_folders.folder import ModelFolderError, load_model, read_description
from gophercite.models.config import RopeScaling
from gophercite.weights.architectures import read_architecture
from gophercite.weights.checkpoint import Checkpoint
from gophercite.weights.hugging_face import import_weights
from gophercite.weights.importing import Dtype
from tests.weights.samples import CHECKPOINTS, WITH_IMAGES, checkpoint, edit_config

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def llama(tmp_path: pathlib.Path) -> pathlib.Path:
    return checkpoint("llama2", tmp_path / "llama2")


def edit_tensors(folder: pathlib.Path, edit: Callable[[dict[str, np.ndarray]], object]) -> None:
    tensors = safetensors.numpy.load_file(folder / WEIGHTS)
    edit(tensors)
    tensors = {name: np.asarray(values, order="C") for name, values in tensors.items()}
    safetensors.numpy.save_file(tensors, folder / WEIGHTS)


def test_tensors_are_the_published_ones_in_our_layout(tmp_path: pathlib.Path) -> None:
    source = checkpoint("qwen2", tmp_path / "source")
    import_weights(source, tmp_path / "model")
    model = load_model(tmp_path / "model")
    theirs = safetensors.numpy.load_file(source / WEIGHTS)
    ours = model.params["trained_layers"]
    assert ours["key"].dtype == ml_dtypes.bfloat16
    assert (model.transformer.config.dtype, model.transformer.config.qkv_bias) == ("bfloat16", True)
    for layer in range(3):
        names = f"model.layers.{layer}.self_attn.k_proj"
        np.testing.assert_array_equal(ours["key"][layer], theirs[f"{names}.weight"].T)
        np.testing.assert_array_equal(ours["key_bias"][layer], theirs[f"{names}.bias"])
    np.testing.assert_array_equal(
        model.params["embed"]["embedding"], theirs["model.embed_tokens.weight"]
    )
    assert model.provenance == {"imported_from": "source", "dtype": "bfloat16"}
    assert model.vocabulary.decode(model.vocabulary.encode("née “Orm” ☃")) == "née “Orm” ☃"


def test_float16_becomes_float32_and_loses_nothing(
    llama: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    import_weights(llama, tmp_path / "model")
    kernel = load_model(tmp_path / "model").params["unembed"]["kernel"]
    theirs = safetensors.numpy.load_file(llama / WEIGHTS)["lm_head.weight"]
    assert (kernel.dtype, theirs.dtype) == (np.float32, np.float16)
    np.testing.assert_array_equal(kernel, theirs.T)


def test_chosen_dtype(llama: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import_weights(llama, tmp_path / "model", dtype="bfloat16")
    model = load_model(tmp_path / "model")
    theirs = safetensors.numpy.load_file(llama / WEIGHTS)["model.norm.weight"]
    scale = model.params["final_norm"]["scale"]
    np.testing.assert_array_equal(scale, theirs.astype(ml_dtypes.bfloat16))


def test_a_tied_head_must_be_the_embedding(tmp_path: pathlib.Path) -> None:
    """`transformers` computes with a stored head whatever the flag says, other programs do not."""
    source = checkpoint("qwen2", tmp_path / "source")
    embedding = "model.embed_tokens.weight"

    def store(head: np.ndarray) -> None:
        edit_tensors(source, lambda tensors: tensors.update({"lm_head.weight": head}))

    theirs = safetensors.numpy.load_file(source / WEIGHTS)[embedding]
    store(theirs)
    assert import_weights(source, tmp_path / "same").config.tied_embeddings
    other = theirs.copy()
    other[-1, -1] += 1
    for head in (other, theirs[:-1], theirs.astype(np.float32)):
        store(head)
        with pytest.raises(ValueError, match=rf"tensor 'lm_head.weight' is not '{embedding}'"):
            import_weights(source, tmp_path / "model")
    store(other)
    edit_config(source, tie_word_embeddings=False)
    import_weights(source, tmp_path / "model")
    kernel = load_model(tmp_path / "model").params["unembed"]["kernel"]
    np.testing.assert_array_equal(kernel, other.T)


@pytest.mark.parametrize("transposed", [False, True])
def test_chunks_are_the_tensor_row_by_row(
    llama: pathlib.Path, transposed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gophercite.weights.checkpoint.CHUNK_BYTES", 100)
    name = "model.layers.0.mlp.up_proj.weight"
    whole = safetensors.numpy.load_file(llama / WEIGHTS)[name]
    chunks = list(Checkpoint(llama).chunks(name, transposed))
    assert len(chunks) > 5
    assert max(chunk.nbytes for chunk in chunks) <= 100
    np.testing.assert_array_equal(np.concatenate(chunks), whole.T if transposed else whole)


def test_older_files_are_read_as_they_were_meant(
    llama: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Base and scaling of the rotation apart, and frequencies among the tensors."""
    scaling = {
        "type": "llama3",
        "factor": 8,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
        "original_max_position_embeddings": 8192,
    }
    edit_config(llama, rope_parameters=..., rope_theta=5e5, rope_scaling=scaling)
    frequencies = "model.layers.0.self_attn.rotary_emb.inv_freq"
    edit_tensors(llama, lambda tensors: tensors.update({frequencies: np.ones(2, np.float32)}))
    config = import_weights(llama, tmp_path / "model").config
    assert config.rope_theta == 5e5
    assert config.rope_scaling == RopeScaling(8, 1, 4, 8192)
    assert read_description(tmp_path / "model").config == config


def test_windows_without_a_list_of_layers() -> None:
    fields = json.loads((CHECKPOINTS / "qwen2_windows" / "config.json").read_text("utf-8"))
    listed = read_architecture(fields)
    assert listed.window == (None, 4, 4)
    assert read_architecture({**fields, "layer_types": None}) == listed
    unlimited = {**fields, "layer_types": None, "use_sliding_window": False}
    assert read_architecture(unlimited).window is None


def test_endless_layers_are_refused_at_once() -> None:
    fields = json.loads((CHECKPOINTS / "qwen2" / "config.json").read_text("utf-8"))
    with pytest.raises(ValueError, match=r"num_hidden_layers.*from 1 to 1000"):
        read_architecture(fields | {"num_hidden_layers": 10**12})


def test_tied_embeddings_may_be_stored_twice(tmp_path: pathlib.Path) -> None:
    source = checkpoint("qwen2", tmp_path / "source")
    again = lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"]})  # noqa: E731
    edit_tensors(source, again)
    import_weights(source, tmp_path / "model")
    assert "unembed" not in load_model(tmp_path / "model").params


@pytest.fixture
def with_images(tmp_path: pathlib.Path) -> pathlib.Path:
    return checkpoint(WITH_IMAGES, tmp_path / "with_images")


def rename(tensors: dict[str, np.ndarray]) -> None:
    """Names the parts as the library's classes do today."""
    for name in list(tensors):
        below = name.removeprefix("language_model.model.")
        new = f"model.{name}" if below == name else f"model.language_model.{below}"
        tensors[new] = tensors.pop(name)


@pytest.mark.parametrize("edit", [None, rename])
def test_of_a_model_with_images_the_text_part_is_imported(
    edit: Callable[[dict[str, np.ndarray]], None] | None,
    with_images: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = safetensors.numpy.load_file(with_images / WEIGHTS)
    others = [v for name, v in theirs.items() if not name.startswith("language_model.")]
    if edit is not None:
        edit_tensors(with_images, edit)
    folder = str(tmp_path / "model")
    assert cli.main(["import-weights", str(with_images), folder]) == 0
    description = read_description(folder)
    size = sum(values.nbytes for values in others)
    assert description.provenance["left_out"] == {"tensors": len(others), "bytes": size}
    line = capsys.readouterr().out
    assert line.endswith(f"; {len(others)} tensors for images (0.0 MiB) are left out\n")
    assert line.count("\n") == 1
    np.testing.assert_array_equal(
        load_model(folder).params["final_norm"]["scale"],
        theirs["language_model.model.norm.weight"],
    )


def test_a_nested_part_may_leave_out_what_has_a_default() -> None:
    """As `google/gemma-3-4b-it` was published."""
    text = {
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    config = read_architecture({"model_type": "gemma3", "text_config": text, "vision_config": {}})
    assert config.vocab_size == 262_208
    assert (config.num_heads, config.kv_heads, config.head_dim) == (8, 4, 256)
    assert config.window == tuple(None if layer % 6 == 5 else 1024 for layer in range(34))
    assert config.rope_theta == tuple(1e6 if layer % 6 == 5 else 1e4 for layer in range(34))
    assert config.rope_interpolation == tuple(8.0 if layer % 6 == 5 else 1.0 for layer in range(34))
    assert config.tied_embeddings
    assert config.context_length == 131_072


NESTS = {
    "no text": ({"text_config": ...}, "field 'text_config': is missing"),
    "another's": ({"text_config": {"model_type": "llama"}}, "field 'text_config.model_type': only"),
    "wrong": ({"text_config": {"head_dim": "8"}}, "field 'text_config.head_dim': expected a whole"),
    "mistral3": ({"model_type": "mistral3"}, "field 'model_type': 'mistral3' is not among"),
    "llama4": ({"model_type": "llama4"}, "field 'model_type': 'llama4' is not among"),
}


@pytest.mark.parametrize("name", NESTS)
def test_other_nests_are_refused(
    name: str, with_images: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    changes, message = NESTS[name]
    edit_config(with_images, **changes)
    assert message in refusal(with_images, tmp_path / "model")


def test_tensors_beside_the_text_part_are_refused_if_they_belong_to_nothing(
    with_images: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    edit_tensors(with_images, lambda t: t.update({"audio_tower.norm.weight": np.ones(2)}))
    message = "tensor 'audio_tower.norm.weight' has no place in the architecture"
    assert message in refusal(with_images, tmp_path / "model")


WRONG_FIELDS = {
    "model_type": ("bloom", "field 'model_type': 'bloom' is not among the known ones (gemma2"),
    "invisible in model_type": ("llama\u200b", r"field 'model_type': 'llama\u200b' is not among"),
    "hidden_act": ("relu", "field 'hidden_act': 'relu' is not among"),
    "invisible in hidden_act": ("silu\u200b", r"field 'hidden_act': 'silu\u200b' is not among"),
    "rms_norm_eps": (..., "field 'rms_norm_eps': is missing"),
    "hidden_size": ("16", "field 'hidden_size': expected a whole number"),
    "num_hidden_layers": (4, "tensor 'model.layers.3.input_layernorm.weight' (and 8 more) is miss"),
    "head_dim": (2**30, "parameters, the files hold only 1"),
    "max_position_embeddings": (10**4200, "TransformerConfig.context_length = 10000000"),
    "intermediate_size": (25, "[16, 24], config.json makes it [16, 25]"),
    "attention_bias": (True, "field 'attention_bias': got true: Llamas with biases are not known"),
    "quantization_config": ({"bits": 4}, "field 'quantization_config'"),
    "rope_parameters": ({"rope_type": "yarn"}, "field 'rope_parameters.rope_type': 'yarn' is not"),
    "invisible in rope_parameters": (
        {"rope_type": "linear\u200b", "factor": 2.0},
        r"field 'rope_parameters.rope_type': 'linear\u200b' is not",
    ),
    "num_attention_heads": (3, "'num_attention_heads': 3 must divide the model's width (16)"),
    "vocab_size": (0, "TransformerConfig.vocab_size = 0"),
}


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_wrong_fields_are_named(name: str, llama: pathlib.Path, tmp_path: pathlib.Path) -> None:
    value, message = WRONG_FIELDS[name]
    edit_config(llama, **{name.removeprefix("invisible in "): value})
    assert message in refusal(llama, tmp_path / "model")


def test_a_field_with_a_default_may_be_missing(llama: pathlib.Path, tmp_path: pathlib.Path) -> None:
    edit_config(llama, tie_word_embeddings=...)
    assert not import_weights(llama, tmp_path / "model").config.tied_embeddings


def truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


NORM, HEAD = "model.norm.weight", "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"
DAMAGES: dict[str, tuple[Callable[[pathlib.Path], object], str]] = {
    "missing": (
        lambda f: edit_tensors(f, lambda t: t.pop(NORM)),
        "llama2: tensor 'model.norm.weight' is missing",
    ),
    "surplus": (
        lambda f: edit_tensors(f, lambda t: t.update(score=t[NORM])),
        "tensor 'score' has no place in the architecture",
    ),
    "shape": (
        lambda f: edit_tensors(f, lambda t: t.update({HEAD: t[HEAD].T})),
        "'lm_head.weight' has the shape [16, 288], config.json makes it [288, 16]",
    ),
    "dtype": (
        lambda f: edit_tensors(f, lambda t: t.update({NORM: t[NORM].astype(np.int8)})),
        "tensor 'model.norm.weight' is I8; BF16, F16, F32 are read",
    ),
    "truncated": (lambda f: truncate(f / WEIGHTS), "the file is cut short or damaged"),
    "no tensors": (lambda f: (f / WEIGHTS).unlink(), "only checkpoints in safetensors files"),
    "elsewhere": (
        lambda f: (f / INDEX).write_text('{"weight_map": {"a": "../b"}}'),
        '"../b" is not the name of a file',
    ),
    "no index": (lambda f: (f / INDEX).write_text("[]"), "field 'weight_map' must give"),
    "no file": (
        lambda f: (f / INDEX).write_text('{"weight_map": {"a": "b.safetensors"}}'),
        "b.safetensors: the file is missing",
    ),
    "twice": (
        lambda f: (
            shutil.copy(f / WEIGHTS, f / "b"),
            (f / INDEX).write_text(json.dumps({"weight_map": {"x": "b", "y": WEIGHTS}})),
        ),
        "is in b too",
    ),
    "whole and in parts": (
        lambda f: (
            shutil.copy(f / WEIGHTS, f / "b.safetensors"),
            (f / INDEX).write_text('{"weight_map": {"a": "b.safetensors"}}'),
        ),
        f"holds both {WEIGHTS} and {INDEX}",
    ),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json: there is no such file"),
    "no JSON": (lambda f: (f / "config.json").write_text("{"), "config.json: not JSON"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "the folder holds no vocabulary"),
    "no name of a file": (
        lambda f: (f / INDEX).write_text(r'{"weight_map": {"a": "\ud800"}}'),
        r"not JSON: it holds the lone surrogate '\ud800'",
    ),
    "scalars that are tied": (
        lambda f: (
            edit_config(f, tie_word_embeddings=True),
            edit_tensors(f, lambda t: t.update({HEAD: np.float32(1), EMBEDDING: np.float32(1)})),
        ),
        f"{EMBEDDING!r} has the shape [], config.json makes it [288, 16]",
    ),
    "end beyond the rows": (
        lambda f: (f / "generation_config.json").write_text('{"eos_token_id": [0, 1099511627776]}'),
        "eos_token_id names token 1099511627776, but the embedding has only 288 rows",
    ),
    "another's tokenizer": (
        lambda f: (
            (f / "tokenizer.json").unlink(),
            (f / "tokenizer.model").write_bytes(llama_like_model()),
        ),
        "tokens, the embedding only 288 rows",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(name: str, llama: pathlib.Path, tmp_path: pathlib.Path) -> None:
    damage, message = DAMAGES[name]
    damage(llama)
    assert message in refusal(llama, tmp_path / "model")


def test_an_end_that_the_tokenizer_lacks_can_be_drawn(
    llama: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """As `<|im_end|>` of models whose tokenizer.model is that of their base."""
    generation = llama / "generation_config.json"
    generation.write_text('{"eos_token_id": [0, 270]}')
    import_weights(llama, tmp_path / "model")
    vocabulary = load_model(tmp_path / "model").vocabulary
    assert (vocabulary.other_eos_ids, vocabulary.size) == ((270,), 271)
    assert (vocabulary.token_bytes(270), vocabulary.decode([260, 270])) == (None, "")
    generation.write_text('{"eos_token_id": [0, 288]}')
    with pytest.raises(ValueError, match=r"eos_token_id names token 288, but .* only 288 rows"):
        import_weights(llama, tmp_path / "model")


@pytest.mark.parametrize(
    ("value", "dtype"), [(np.nan, None), (-np.inf, "bfloat16"), (3.4e38, "bfloat16")]
)
def test_numbers_that_are_not_finite_are_refused(
    value: float, dtype: Dtype | None, llama: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A row that is seldom used would spoil an answer only much later."""
    norm = "model.layers.2.input_layernorm.weight"
    edit_tensors(llama, lambda t: t.update({norm: t[norm].astype(np.float32)}))
    edit_tensors(llama, lambda t: t[norm].put(3, value))
    with pytest.raises(ValueError, match=rf"{WEIGHTS}: tensor '{norm}' holds .* is not finite"):
        import_weights(llama, tmp_path / "model", dtype=dtype)
    assert not (tmp_path / "model").exists()


def refusal(source: pathlib.Path, folder: pathlib.Path) -> str:
    """The one line that the import, which must leave nothing, fails with."""
    before = sorted(folder.parent.iterdir())
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z") as caught:
        import_weights(source, folder)
    assert sorted(folder.parent.iterdir()) == before
    return str(caught.value)


def test_an_import_that_breaks_off_leaves_the_old_folder(
    llama: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_weights(llama, tmp_path / "model")
    before = (tmp_path / "model" / "model.json").read_bytes()

    def full(*arguments: object) -> None:
        raise OSError("no space left on the disk")

    monkeypatch.setattr("gophercite.weights.importing.describe_model", full)
    with pytest.raises(OSError, match="no space"):
        import_weights(llama, tmp_path / "model", dtype="bfloat16")
    assert (tmp_path / "model" / "model.json").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"llama2", "model"}


def test_the_checkpoint_is_never_replaced(llama: pathlib.Path) -> None:
    files = collections.Counter(path.name for path in llama.iterdir())
    with pytest.raises(ModelFolderError, match="holds other files"):
        import_weights(llama, llama)
    assert collections.Counter(path.name for path in llama.iterdir()) == files


def test_command(
    llama: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "model")
    assert cli.main(["import-weights", str(llama), folder, "--dtype", "bfloat16"]) == 0
    count = read_description(folder).config.parameters
    assert capsys.readouterr().out == f"{folder}: {count:,} parameters in bfloat16\n"
    assert cli.main(["import-weights", str(llama), folder, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["parameters"], result["dtype"]) == (count, "float32")
    (llama / WEIGHTS).unlink()
    assert cli.main(["import-weights", str(llama), folder]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"gophercite import-weights: {llama}: holds neither model.safetensors")
    assert error.count("\n") == 1


UNREADABLE = {
    "config.json": "can't be read: Is a directory",
    "tokenizer.json": "can't be read: Is a directory",
    "tokenizer_config.json": "can't be read: Is a directory",
    "model.safetensors": "can't be read: ",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_is_no_file_is_named(
    name: str, llama: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (llama / name).unlink(missing_ok=True)
    (llama / name).mkdir()
    assert cli.main(["import-weights", str(llama), str(tmp_path / "model")]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"gophercite import-weights: {llama / name}: {UNREADABLE[name]}")
    assert "rrno" not in error
    assert "os error" not in error


def test_an_empty_file_and_a_folder_that_cannot_be_made(
    llama: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside = llama / WEIGHTS / "model"
    assert cli.main(["import-weights", str(llama), str(inside)]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"gophercite import-weights: {inside}: can't be created: ")
    assert "rrno" not in error
    (llama / "config.json").write_text("")
    assert cli.main(["import-weights", str(llama), str(tmp_path / "model")]) == 1
    assert "config.json: the file is empty" in capsys.readouterr().err
