"""T5X's decoder-only checkpoints: what is imported computes what T5X does, and goes back exactly.

make_t5x_checkpoints.py made the checkpoints and the reference logits with T5X itself.
"""

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import orbax.checkpoint as orbax
import pytest
from vocabulary_fixtures import llama_like_model, trained

from gophercite import cli
from gophercite.model_folders.folder import load_model, read_description, save_model
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.vocabularies import HuggingFaceVocabulary
from gophercite.weights.t5x import import_t5x, read_vocabulary
from gophercite.weights.t5x_checkpoint import T5XCheckpoint
from gophercite.weights.t5x_export import export_t5x
from tests.weights import parity
from tests.weights.samples import byte_tokenizer
from tests.weights.t5x_samples import (
    CHECKPOINTS,
    KINDS,
    STEP,
    random_model,
    t5_like_model,
    t5x_run,
)
from tests.weights.test_export import TINY

TOLERANCE = 1e-4
MODEL = "sentencepiece.model"
NORM, QUERY = "decoder/decoder_norm/scale", "decoder/layers_1/self_attention/query/kernel"


@dataclasses.dataclass(frozen=True)
class Imported:
    """A kind of checkpoint, where it lies, and the model folder that was made of it."""

    kind: str
    source: pathlib.Path
    folder: pathlib.Path

    def float32(self) -> tuple[Transformer, Params]:
        return parity.in_float32(self.folder)


@pytest.fixture(scope="module", params=KINDS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    folder = tmp_path_factory.mktemp(request.param)
    source = t5x_run(request.param, folder / "run")
    import_t5x(source, folder / "model", source.parent / MODEL)
    return Imported(request.param, source, folder / "model")


@pytest.fixture
def source(tmp_path: pathlib.Path) -> pathlib.Path:
    return t5x_run("plain", tmp_path / "run")


def test_logits_are_those_of_t5x(imported: Imported) -> None:
    transformer, params = imported.float32()
    sequences, expected = parity.stored_logits(CHECKPOINTS / f"{imported.kind}.npz")
    padded, packed = parity.in_one_pass(transformer, params, sequences)
    cached = parity.with_cache(transformer, params, sequences)
    for found in (padded, packed, cached):
        assert parity.largest_difference(found, expected) < TOLERANCE


# The other checkpoint's short sequences and logits of its own would show neither.
@pytest.mark.parametrize("imported", ["gated"], indirect=True)
@pytest.mark.parametrize("change", [{"max_distance": 64}, {"scale_logits": False}])
def test_the_reference_tells_settings_apart(imported: Imported, change: dict[str, Any]) -> None:
    transformer, params = imported.float32()
    other = Transformer(dataclasses.replace(transformer.config, **change))
    sequences, expected = parity.stored_logits(CHECKPOINTS / f"{imported.kind}.npz")
    padded, _ = parity.in_one_pass(other, params, sequences)
    assert parity.largest_difference(padded, expected) > 100 * TOLERANCE


def test_parameters_are_the_checkpoints_own(imported: Imported) -> None:
    model = load_model(imported.folder)
    stored = T5XCheckpoint(imported.source)

    def theirs(name: str) -> np.ndarray:
        return np.concatenate(list(stored.chunks(name, False)))

    np.testing.assert_array_equal(model.params["trained_layers"]["query"][1], theirs(QUERY))
    np.testing.assert_array_equal(model.params["final_norm"]["scale"], theirs(NORM))
    biases = model.params["embed"]["distance_biases"]
    np.testing.assert_array_equal(biases, theirs("decoder/relpos_bias/rel_embedding"))
    dtype = {"gated": "float32", "plain": "bfloat16"}[imported.kind]
    assert biases.dtype == dtype
    assert model.provenance == {"imported_from": "checkpoint_1000", "step": 1000, "dtype": dtype}
    config = model.transformer.config
    assert (config.activation, config.gated_mlp, config.tied_embeddings) == (
        ("gelu", True, True) if imported.kind == "gated" else ("relu", False, False)
    )


def test_texts_begin_with_the_padding(tmp_path: pathlib.Path) -> None:
    """As T5X's do; what the text itself becomes is the vocabulary's own."""
    (tmp_path / MODEL).write_bytes(t5_like_model())
    vocabulary = read_vocabulary(tmp_path / MODEL)
    assert (vocabulary.bos_id, vocabulary.pad_id, vocabulary.eos_id) == (0, 0, 1)
    assert vocabulary.decode(vocabulary.encode("née “Orm” ☃")) == "née “Orm” ☃"
    (tmp_path / "own.model").write_bytes(llama_like_model())
    assert read_vocabulary(tmp_path / "own.model").bos_id == 1  # which it names itself


@pytest.mark.parametrize("transposed", [False, True])
def test_chunks_are_the_parameter_row_by_row(
    imported: Imported,
    transposed: bool,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("export", "t5x_checkpoint"):
        monkeypatch.setattr(f"gophercite.weights.{module}.CHUNK_BYTES", 400)
    export_t5x(imported.folder, tmp_path / "exported")
    checkpoint = T5XCheckpoint(tmp_path / "exported" / f"checkpoint_{STEP}")
    whole = np.concatenate(list(T5XCheckpoint(imported.source).chunks(QUERY, False)))
    chunks = list(checkpoint.chunks(QUERY, transposed))
    np.testing.assert_array_equal(np.concatenate(chunks), whole.T if transposed else whole)
    if not transposed:  # a column crosses all chunks
        assert len(chunks) > 1
        assert max(chunk.nbytes for chunk in chunks) <= 400


def test_round_trip_is_exact(imported: Imported, tmp_path: pathlib.Path) -> None:
    done = export_t5x(imported.folder, tmp_path / "exported")
    assert done.files == (f"checkpoint_{STEP}",)
    run = tmp_path / "exported"
    again = import_t5x(run / done.files[0], tmp_path / "again", run / MODEL)
    first = read_description(imported.folder)
    assert again.config == first.config
    assert again.parameters == first.parameters  # digests of all tensors among them
    theirs, ours = T5XCheckpoint(imported.source), T5XCheckpoint(run / done.files[0])
    assert {n: (ours.shape(n), ours.dtype(n)) for n in ours.names} == {
        n: (theirs.shape(n), theirs.dtype(n)) for n in theirs.names
    }


def index_of(source: pathlib.Path) -> Any:
    return msgpack.unpackb((source / "checkpoint").read_bytes(), strict_map_key=False)


def edit_index(source: pathlib.Path, change: Callable[[Any], object]) -> None:
    """Changes T5X's tree of parameters."""
    index = index_of(source)
    change(index["optimizer"]["target"]["decoder"])
    (source / "checkpoint").write_bytes(msgpack.packb(index))


def array_of(source: pathlib.Path, name: str) -> pathlib.Path:
    return source / f"target.{name.replace('/', '.')}"


def truncate(path: pathlib.Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def edit_metadata(path: pathlib.Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def extension(values: np.ndarray) -> msgpack.ExtType:
    """An array as Flax puts it into the index."""
    return msgpack.ExtType(1, msgpack.packb((values.shape, values.dtype.name, values.tobytes())))


def mlp(decoder: Any) -> Any:
    return decoder["layers_1"]["mlp"]


DAMAGES: dict[str, tuple[Callable[[pathlib.Path], object], str]] = {
    "missing": (
        lambda f: edit_index(f, lambda d: d.pop("decoder_norm")),
        "tensor 'decoder/decoder_norm/scale' is missing",
    ),
    "missing layer": (
        lambda f: edit_index(f, lambda d: d["layers_0"].update(layers_0=d.pop("layers_1"))),
        "(and 7 more) has no place in the architecture",
    ),
    "surplus": (
        lambda f: edit_index(f, lambda d: d.update(extra=d["decoder_norm"])),
        "tensor 'decoder/extra/scale' has no place in the architecture",
    ),
    "shape": (
        lambda f: edit_index(f, lambda d: mlp(d).update(wo=mlp(d)["wi"])),
        "parameter 'decoder/layers_1/mlp/wo/kernel' has the shape [16, 24], the rest of it makes "
        "it [24, 16]",
    ),
    "dtype": (
        lambda f: edit_metadata(array_of(f, NORM) / ".zarray", dtype="<u2"),
        "parameter 'decoder/decoder_norm/scale' is uint16; bfloat16, float16, float32 are read",
    ),
    "no array": (
        lambda f: shutil.rmtree(array_of(f, NORM)),
        "parameter 'decoder/decoder_norm/scale': files of it are missing",
    ),
    "no chunk": (
        lambda f: (array_of(f, QUERY) / "0.0").unlink(),
        f"parameter {QUERY!r}: files of it are missing",
    ),
    "truncated chunk": (
        lambda f: truncate(array_of(f, QUERY) / "0.0"),
        f"parameter {QUERY!r}: files of it are cut short or damaged",
    ),
    "huge chunks": (
        lambda f: edit_metadata(array_of(f, QUERY) / ".zarray", chunks=[10**5, 10**4]),
        "its chunks, [100000, 10000], are larger than it, [16, 24]",
    ),
    "another's metadata": (
        lambda f: edit_metadata(array_of(f, NORM) / ".zarray", shape=[8], chunks=[8]),
        "has the shape [8], checkpoint says",
    ),
    "truncated index": (lambda f: truncate(f / "checkpoint"), "cut short, damaged, or no msgpack"),
    "no index": (lambda f: (f / "checkpoint").unlink(), "holds no file 'checkpoint'"),
    "no parameters": (
        lambda f: (f / "checkpoint").write_bytes(msgpack.packb({"version": 3})),
        "has no parameters under optimizer/target",
    ),
    "elsewhere": (
        lambda f: edit_index(
            f, lambda d: d["decoder_norm"]["scale"]["kvstore"].update(path="../run/x/")
        ),
        '"../run/x/" is not the name of a folder',
    ),
    "another driver": (
        lambda f: edit_index(f, lambda d: d["decoder_norm"]["scale"].update(driver="n5")),
        """its driver is the string "n5": only 'zarr' is read""",
    ),
    "no leaf": (
        lambda f: edit_index(f, lambda d: d["decoder_norm"].update(scale="1.0")),
        "is no array, but",
    ),
    "damaged values": (
        lambda f: edit_index(
            f, lambda d: d["decoder_norm"].update(scale=msgpack.ExtType(1, b"\x93"))
        ),
        "its values in checkpoint are damaged",
    ),
    "not Orbax's": (lambda f: (f / "_METADATA").write_text("{}"), "field 'tree_metadata' must be"),
    "no layers": (
        lambda f: edit_index(f, lambda d: [d.pop(name) for name in ("layers_0", "layers_1")]),
        "no 'decoder/layers_0/…'",
    ),
    "heads": (
        lambda f: edit_index(
            f,
            lambda d: d["relpos_bias"].update(
                rel_embedding=extension(np.zeros((7, 32), np.float32))
            ),
        ),
        "has 24 columns, which 7 heads can't share",
    ),
    "another MLP": (
        lambda f: (f.parent / "config.gin").write_text(
            "network.TransformerConfig.mlp_activations = ('gelu', 'linear')"
        ),
        "'decoder/layers_0/mlp/wi_0/kernel' is missing: the MLP's activations are not gelu, linear",
    ),
    "unknown activation": (
        lambda f: (f.parent / "config.gin").write_text(
            "network.TransformerConfig.mlp_activations = ('softplus',)"
        ),
        "mlp_activations ('softplus',) are not computed here: one of relu, gelu, silu, swish",
    ),
    "no value": (
        lambda f: (f.parent / "config.gin").write_text(
            "network.TransformerConfig.mlp_activations = %ACTIVATIONS"
        ),
        "config.gin:1: mlp_activations = %ACTIVATIONS: must be a tuple of names",
    ),
    "prefix model": (
        lambda f: (f.parent / "config.gin").write_text(
            "models.DecoderOnlyModel.inputs_bidirectional_attention = True\n"
        ),
        "only causal attention is computed",
    ),
    "no config": (lambda f: (f.parent / "config.gin").unlink(), "--activations relu"),
    "no vocabulary": (lambda f: (f.parent / MODEL).unlink(), "there is no such file"),
    "another's vocabulary": (
        lambda f: (f.parent / MODEL).write_bytes(trained("unigram")._model),
        "tokens, the embedding only 288 rows",
    ),
    "no SentencePiece": (
        lambda f: (f.parent / MODEL).write_bytes(b"x"),
        "not a SentencePiece model",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_named(name: str, source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    damage, message = DAMAGES[name]
    damage(source)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"\A[^\n]+\Z") as caught:
        import_t5x(source, tmp_path / "model", source.parent / MODEL)
    assert message in str(caught.value)
    assert sorted(tmp_path.iterdir()) == before


def write_with_orbax(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """The same parameters as T5X's trainer keeps them today; and what an optimizer has."""
    stored, target = T5XCheckpoint(source), {}
    for name in stored.names:
        *path, last = name.split("/")
        node = target
        for part in path:
            node = node.setdefault(part, {})
        node[last] = np.concatenate(list(stored.chunks(name, False)))
    tree = {"target": target, "state": {"step": np.int32(STEP), "m": np.zeros(3, np.float32)}}
    with orbax.Checkpointer(orbax.PyTreeCheckpointHandler(use_ocdbt=True)) as writer:
        writer.save(folder / f"checkpoint_{STEP}" / "state", args=orbax.args.PyTreeSave(tree))
    for beside in ("config.gin", MODEL):
        shutil.copy(source.parent / beside, folder)
    return folder / f"checkpoint_{STEP}"


def test_what_orbax_writes_is_read_too(imported: Imported, tmp_path: pathlib.Path) -> None:
    source = write_with_orbax(imported.source, tmp_path)
    again = import_t5x(source, tmp_path / "again", tmp_path / MODEL)
    assert again.parameters == read_description(imported.folder).parameters
    metadata = source / "state" / "_METADATA"
    tree = json.loads(metadata.read_text())
    for field, value, message in (
        ("use_ocdbt", False, "use_ocdbt = false: only true is read"),
        ("tree_metadata", {}, "has no parameters under 'target'"),
        ("tree_metadata", {"x": {"key_metadata": [{}]}}, "are not the keys of a leaf"),
    ):
        metadata.write_text(json.dumps(tree | {field: value}))
        with pytest.raises(ValueError, match=message):
            import_t5x(source, tmp_path / "refused", tmp_path / MODEL)
    metadata.write_text(json.dumps(tree))
    for data in (source / "state").rglob("d/*"):
        data.write_bytes(b"")
    with pytest.raises(ValueError, match=r"parameter '.*': files of it are "):
        import_t5x(source, tmp_path / "refused", tmp_path / MODEL)
    assert not (tmp_path / "refused").exists()


def test_values_in_the_index_are_read(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """T5X keeps there what it did not partition."""
    values = np.linspace(0, 1, 16, dtype=np.float32)
    edit_index(source, lambda d: d["decoder_norm"].update(scale=extension(values)))
    import_t5x(source, tmp_path / "model", source.parent / MODEL)
    scale = load_model(tmp_path / "model").params["final_norm"]["scale"]
    np.testing.assert_array_equal(scale, values)


def test_settings_can_be_given(source: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (source.parent / "config.gin").unlink()
    config = import_t5x(
        source,
        tmp_path / "model",
        source.parent / MODEL,
        activations=("swish",),
        max_distance=64,
        dtype="float32",
    ).config
    assert (config.activation, config.max_distance, config.dtype) == ("silu", 64, "float32")


def test_what_the_gate_is_depends_on_the_order(tmp_path: pathlib.Path) -> None:
    source = t5x_run("gated", tmp_path / "run")
    import_t5x(source, tmp_path / "as_it_was", source.parent / MODEL)
    given = ("linear", "gelu")
    import_t5x(source, tmp_path / "turned", source.parent / MODEL, activations=given)
    first, turned = (
        load_model(tmp_path / name).params["trained_layers"] for name in ("as_it_was", "turned")
    )
    np.testing.assert_array_equal(first["gate"], turned["up"])


def test_what_t5x_has_not_is_not_exported(tmp_path: pathlib.Path) -> None:
    model = tmp_path / "llama"
    save_model(model, random_model(TINY, {}))
    with pytest.raises(ValueError, match=r"no position = 'rope', .*query_pre_attn_scalar"):
        export_t5x(model, tmp_path / "exported")
    assert not (tmp_path / "exported").exists()


def test_only_sentencepiece_models_are_exported(
    source: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    import_t5x(source, tmp_path / "model", source.parent / MODEL)
    model = load_model(tmp_path / "model")
    other = dataclasses.replace(model, vocabulary=HuggingFaceVocabulary(byte_tokenizer()))
    save_model(tmp_path / "other", other)
    with pytest.raises(ValueError, match="T5X reads SentencePiece models"):
        export_t5x(tmp_path / "other", tmp_path / "exported")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ValueError, match="exists; export into a new or empty folder"):
        export_t5x(tmp_path / "model", tmp_path / "full")


def test_commands(
    source: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, exported = str(tmp_path / "model"), str(tmp_path / "exported")
    command = ["import-weights", str(source), model]
    assert cli.main(command) == 1
    assert "give the SentencePiece model with --vocabulary FILE" in capsys.readouterr().err
    vocabulary = ["--vocabulary", str(source.parent / MODEL)]
    assert cli.main([*command, *vocabulary, "--activations", "relu", "--max-distance", "128"]) == 0
    count = read_description(model).config.parameters
    assert capsys.readouterr().out == f"{model}: {count:,} parameters in bfloat16\n"
    assert cli.main(["export-weights", model, exported, "--t5x", "network"]) == 0
    assert capsys.readouterr().out.endswith("model_type t5x decoder_only\n")
    assert cli.main(["import-weights", exported, model, *vocabulary]) == 1
    assert "take one of its checkpoints: checkpoint_1000" in capsys.readouterr().err
    assert cli.main(["import-weights", model, exported, *vocabulary]) == 1
    assert (
        "--vocabulary is only for T5X checkpoints, but there is no file" in capsys.readouterr().err
    )
