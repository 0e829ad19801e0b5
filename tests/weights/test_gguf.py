"""A GGUF file gives the model that the published folder gives; damaged ones are refused by name."""

import json
import pathlib
import struct
from typing import Any

import gguf.quants
import numpy as np
import pytest
import tokenizers
from gguf.constants import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers
from vocabulary_fixtures import llama_like_model

from gophercite import cli
from gophercite.model_folders.checkpoint_files import name_leaves
from gophercite.model_folders.folder import load_model
from gophercite.vocabularies import SentencePieceVocabulary, VocabularyError
from gophercite.weights.checkpoint import WeightsError
from gophercite.weights.gguf import import_gguf
from gophercite.weights.gguf_file import KINDS, GGUFFile, GGUFTensors
from gophercite.weights.gguf_tokenizer import read_tokenizer
from gophercite.weights.hugging_face import import_weights
from tests.weights import gguf_samples

FAMILIES = tuple(gguf_samples.EXPRESSIBLE)


def sample(family: str, folder: pathlib.Path, **changes: Any) -> pathlib.Path:
    """A GGUF file of a checkpoint; metadata that is set to `...` goes."""
    source = gguf_samples.source(family, folder / "source")
    fields = gguf_samples.fields_of(family, source) | changes
    fields = {key: value for key, value in fields.items() if value is not ...}
    gguf_samples.write(folder / "model.gguf", fields, gguf_samples.tensors_of(family, source))
    return folder / "model.gguf"


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_is_that_of_the_published_folder(family: str, tmp_path: pathlib.Path) -> None:
    import_gguf(sample(family, tmp_path), tmp_path / "model")
    import_weights(tmp_path / "source", tmp_path / "published", dtype="float32")
    ours, theirs = load_model(tmp_path / "model"), load_model(tmp_path / "published")
    assert ours.transformer.config == theirs.transformer.config
    found, expected = name_leaves(ours.params), name_leaves(theirs.params)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        # Gemma's scales had 1 added to them.
        np.testing.assert_allclose(found[name], values, rtol=0, atol=3e-7, err_msg=name)
    text = "née “Orm” ☃"
    assert ours.vocabulary.encode(text) == theirs.vocabulary.encode(text)
    assert ours.vocabulary.eos_id == theirs.vocabulary.eos_id


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_tensor_is_read_as_its_reference_reads_it(
    kind: str, tmp_path: pathlib.Path
) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    number = GGMLQuantizationType[kind]
    block, size = gguf.constants.GGML_QUANT_SIZES[number]
    blocks = rng.integers(0, 256, (6, 2, size), np.uint8)
    if kind in ("F32", "F16", "BF16"):
        stored = gguf.quants.quantize(rng.normal(size=(6, 2)).astype(np.float32), number)
        shape = (6, 2)
    else:  # bits of any kind, but scales that are numbers
        blocks &= 0x3F
        stored, shape = blocks.reshape(6, -1), (6, 2 * block)
    expected = gguf.quants.dequantize(stored, number).reshape(shape)
    header = b"".join(
        [
            b"GGUF" + struct.pack("<IQQ", 3, 1, 0),
            struct.pack("<Q", 1) + b"x",
            struct.pack("<IQQIQ", 2, *shape[::-1], number, 0),
        ]
    )
    path = tmp_path / "one.gguf"
    path.write_bytes(header + bytes(-len(header) % 32) + stored.tobytes())
    file = GGUFFile(path)
    assert (file.shape("x"), file.kind("x")) == (shape, kind)
    order = np.array([5, 0, 0, 3])
    np.testing.assert_array_equal(file.rows("x", order), expected[order])
    tensors = GGUFTensors(file, lambda name, rows: None, lambda name: 0.0)
    np.testing.assert_array_equal(np.concatenate(list(tensors.chunks("x", True))), expected.T)


def test_quantised_models_are_read_by_the_command(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = gguf_samples.source("llama2", tmp_path / "source")
    tensors = gguf_samples.tensors_of("llama2", source)
    values = np.repeat(tensors["token_embd.weight"][0], 2, 1)
    wide = {name: (_twice(x), kind) for name, (x, kind) in tensors.items()}
    wide["token_embd.weight"] = (values, "Q8_0")
    del wide["output.weight"]
    fields = gguf_samples.fields_of("llama2", source)
    fields |= {"llama.embedding_length": 32, "llama.feed_forward_length": 48}
    fields |= {"llama.attention.head_count": 8, "llama.attention.head_count_kv": 8}
    fields |= {"general.name": "Ormsby", "general.license": "apache-2.0"}
    gguf_samples.write(tmp_path / "q.gguf", fields, wide)
    command = ["import-weights", str(tmp_path / "q.gguf"), str(tmp_path / "model"), "--json"]
    assert cli.main(command) == 0, capsys.readouterr().err
    model = load_model(tmp_path / "model")
    assert model.provenance["license"] == "apache-2.0"
    assert model.provenance["tensors"]["Q8_0"] == 1
    np.testing.assert_allclose(model.params["embed"]["embedding"], values, atol=0.05)


def _twice(values: np.ndarray) -> np.ndarray:
    return np.tile(values, (2,) * values.ndim)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"general.architecture": "mamba"}, "'mamba' is not among the known ones"),
        ({"general.architecture": ...}, r"field 'general\.architecture'"),
        ({"general.architecture": "llama\u200b"}, r"'llama\\u200b' is not among the known ones"),
        ({"llama.expert_count": 8}, r"field 'llama\.expert_count': is not known"),
        ({"llama.rope.scaling.type": "yarn"}, "'yarn' is not among the known ones"),
        ({"llama.rope.scaling.type": "none\u200b"}, r"'none\\u200b' is not among the known"),
        ({"llama.block_count": ...}, r"field 'llama\.block_count'"),
        ({"llama.block_count": "3"}, r"field 'llama\.block_count'"),
        ({"llama.attention.head_count": 0}, r"field 'llama\.attention\.head_count': 0 must be"),
        ({"llama.attention.value_length": 8, "llama.attention.key_length": 4}, "one width"),
        ({"llama.rope.dimension_count": 2, "llama.attention.key_length": 4}, "one width"),
        ({"llama.attention.sliding_window": 4}, "is not known of llama"),
        ({"llama.block_count": 2}, r"tensor 'blk\.2\..* has no place in the architecture"),
        ({"llama.block_count": 4}, r"tensor 'blk\.3\..* is missing"),
        ({"tokenizer.ggml.model": "bert"}, "'bert', not among the known ones"),
        ({"tokenizer.ggml.pre": "default"}, "'default', not among the known ones"),
        ({"tokenizer.ggml.tokens": ...}, r"tokenizer\.ggml\.tokens: expected a list"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, "token_type: expected 2 numbers"),
        ({"tokenizer.ggml.eos_token_id": 999}, r"eos_token_id: expected one of 257 ids"),
        ({"tokenizer.ggml.merges": ["a b c"]}, "two tokens and a space"),
        ({"tokenizer.ggml.merges": ["☃ ☃"]}, r"tokenizer\.ggml\.merges"),
    ],
)
def test_what_is_not_known_is_refused_by_name(
    changes: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    path = sample("llama2", tmp_path, **changes)
    with pytest.raises((WeightsError, VocabularyError), match=message) as caught:
        import_gguf(path, tmp_path / "model")
    assert str(caught.value).startswith(str(path))
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_count": 10**6}, "block_count': 1000000 must be from 1 to 1000"),
        ({"block_count": 0}, "block_count': 0 must be from 1 to 1000"),
        ({"block_count": 46, "attention.head_count": 0}, r"head_count': 0 must be at least 1"),
        (
            {"attention.head_count": 0, "attention.key_length": ..., "attention.value_length": ...},
            r"head_count': 0 must be at least 1",
        ),
    ],
)
def test_sizes_are_checked_before_gemmas_layers_are_listed(
    changes: dict[str, Any], message: str, tmp_path: pathlib.Path
) -> None:
    path = sample("gemma2", tmp_path, **{f"gemma2.{key}": value for key, value in changes.items()})
    with pytest.raises(WeightsError, match=rf"field 'gemma2\..*{message}"):
        import_gguf(path, tmp_path / "model")


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        ({}, 4.0),
        ({"llama.rope.scaling.type": "linear"}, 4.0),
        ({"llama.rope.scaling.type": "none"}, 1),
    ],
)
def test_a_scaling_without_a_type_is_linear(
    changes: dict[str, Any], factor: float, tmp_path: pathlib.Path
) -> None:
    """As llama.cpp has it."""
    path = sample("llama2", tmp_path, **{"llama.rope.scaling.factor": 4.0}, **changes)
    assert import_gguf(path, tmp_path / "model").config.rope_interpolation == factor


def test_gemma_3_has_a_layer_in_six_that_sees_all(tmp_path: pathlib.Path) -> None:
    source = gguf_samples.source("gemma3", tmp_path / "source")
    fields = gguf_samples.fields_of("gemma3", source)
    fields |= {"gemma3.block_count": 7, "gemma3.rope.scaling.factor": 8.0}
    fields["gemma3.rope.scaling.type"] = "linear"
    tensors = gguf_samples.tensors_of("gemma3", source)
    tensors |= {
        f"blk.{layer}.{name.split('.', 2)[2]}": tensor
        for name, tensor in list(tensors.items())
        if name.startswith("blk.0.")
        for layer in range(3, 7)
    }
    gguf_samples.write(tmp_path / "x.gguf", fields, tensors)
    config = import_gguf(tmp_path / "x.gguf", tmp_path / "model").config
    assert config.window == (4, 4, 4, 4, 4, None, 4)
    assert config.rope_theta == (1e4,) * 5 + (1e6, 1e4)
    assert config.rope_interpolation == (1.0,) * 5 + (8.0, 1.0)


@pytest.mark.parametrize(
    ("family", "layers", "scalar"), [("gemma2", 3, 6), ("gemma2", 46, 4), ("gemma3", 62, 4)]
)
def test_gemmas_of_27_billion_scale_attention_by_the_width(
    family: str, layers: int, scalar: int, tmp_path: pathlib.Path
) -> None:
    source = gguf_samples.source(family, tmp_path / "source")
    tensors = gguf_samples.tensors_of(family, source)
    for name, tensor in list(tensors.items()):
        if name.startswith("blk.0."):
            tensors |= {f"blk.{n}.{name.split('.', 2)[2]}": tensor for n in range(3, layers)}
    fields = gguf_samples.fields_of(family, source) | {f"{family}.block_count": layers}
    gguf_samples.write(tmp_path / "x.gguf", fields, tensors)
    config = import_gguf(tmp_path / "x.gguf", tmp_path / "model").config
    assert config.query_pre_attn_scalar == scalar  # 16 channels, 4 heads of 6 or 8


def test_rope_factors_of_another_scaling_are_refused(tmp_path: pathlib.Path) -> None:
    source = gguf_samples.source("llama3", tmp_path / "source")
    tensors = gguf_samples.tensors_of("llama3", source)
    factors = tensors["rope_freqs.weight"][0] * np.array([1, 1, 1.01, 1], np.float32)
    tensors["rope_freqs.weight"] = (factors, "F32")
    gguf_samples.write(tmp_path / "x.gguf", gguf_samples.fields_of("llama3", source), tensors)
    with pytest.raises(WeightsError, match="are not Llama 3's factors"):
        import_gguf(tmp_path / "x.gguf", tmp_path / "model")


@pytest.mark.parametrize("shape", [(1,), (2, 4)])
def test_rope_factors_of_another_shape_are_refused(
    shape: tuple[int, ...], tmp_path: pathlib.Path
) -> None:
    source = gguf_samples.source("llama3", tmp_path / "source")
    tensors = gguf_samples.tensors_of("llama3", source)
    factors = np.broadcast_to(tensors["rope_freqs.weight"][0][: shape[-1]], shape)
    tensors["rope_freqs.weight"] = (factors, "F32")
    gguf_samples.write(tmp_path / "x.gguf", gguf_samples.fields_of("llama3", source), tensors)
    with pytest.raises(WeightsError, match=r"'rope_freqs.weight' has the shape .*, must be \[4\]"):
        import_gguf(tmp_path / "x.gguf", tmp_path / "model")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A file as it should be."""
    return sample("qwen2", tmp_path_factory.mktemp("whole"))


@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_damaged_files_are_read_or_refused_and_never_crash(
    data: st.DataObject, whole: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(whole.read_bytes())
    header = content.index(b"token_embd.weight") + 2000
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, header))
        content[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    folder = tmp_path_factory.getbasetemp()
    (folder / "damaged.gguf").write_bytes(content)
    message = str(folder / "damaged.gguf")
    try:
        import_gguf(folder / "damaged.gguf", folder / "damaged")
    except (WeightsError, VocabularyError) as error:
        message = str(error)
    assert message.startswith(str(folder / "damaged.gguf"))


@pytest.mark.parametrize("content", [b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 16, b"PK\x03\x04"])
def test_what_is_no_gguf_file_is_refused(content: bytes, tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    with pytest.raises(WeightsError, match=r"x\.gguf"):
        GGUFFile(tmp_path / "x.gguf")


def test_a_count_beyond_the_file_takes_no_time_and_no_memory(tmp_path: pathlib.Path) -> None:
    key = struct.pack("<Q", 1) + b"a" + struct.pack("<IIQ", 9, 8, 1 << 60)
    (tmp_path / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key + bytes(64))
    with pytest.raises(WeightsError, match="more than the file could hold"):
        GGUFFile(tmp_path / "x.gguf")


@pytest.mark.parametrize(
    ("offsets", "alignment", "message"),
    [
        ((0, 64), 32, None),
        ((64, 0), 64, None),
        ((0, 0), 32, r"tensor '[ab]' begins at byte \d+, before tensor '[ab]' ends"),
        ((0, 32), 32, "tensor 'b' begins at byte .*, before tensor 'a' ends"),
        ((0, 72), 32, "tensor 'b' begins 72 bytes after the header, not at a multiple of 32"),
        ((0, 70), 7, "general.alignment is 7, not a power of two"),
        ((0, 64), 0, "general.alignment is 0, not a power of two"),
    ],
)
def test_tensors_lie_apart_and_aligned(
    offsets: tuple[int, int], alignment: int, message: str | None, tmp_path: pathlib.Path
) -> None:
    """Else a short file could hold any number of tensors."""
    key = b"general.alignment"
    header = b"GGUF" + struct.pack("<IQQQ", 3, 2, 1, len(key)) + key
    header += struct.pack("<II", 4, alignment)
    for name, offset in zip((b"a", b"b"), offsets, strict=True):
        header += struct.pack("<Q", 1) + name + struct.pack("<IQIQ", 1, 16, 0, offset)
    path = tmp_path / "x.gguf"
    path.write_bytes(header + bytes(-len(header) % max(1, alignment)) + bytes(max(offsets) + 64))
    if message is None:
        assert GGUFFile(path).names == {"a", "b"}
        return
    with pytest.raises(WeightsError, match=message):
        GGUFFile(path)


# --- Tokenizers ---

TEXTS = [
    "The lighthouse of Ormsby was built in 1874 by the engineer Ada Fenwick.",
    "it's IT'S 12345 tabs\t\tand   spaces\n\n\nhere  ",
    "Çà et là “quoted” 港の灯台は一八七四年に建てられた。 Маяк 👩‍👧",
    " <|im_end|> is text",
]


def of_tokens(tmp_path: pathlib.Path, **own: Any) -> GGUFFile:
    fields = {f"tokenizer.ggml.{name}": value for name, value in own.items()}
    gguf_samples.write(tmp_path / "tokenizer.gguf", fields, {})
    return GGUFFile(tmp_path / "tokenizer.gguf")


def trained(pre: pre_tokenizers.PreTokenizer) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<|endoftext|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS * 20, trainer)
    return tokenizer


@pytest.mark.parametrize(
    ("name", "pre"),
    [
        ("gpt-2", pre_tokenizers.ByteLevel(add_prefix_space=False)),
        (
            "smollm",
            pre_tokenizers.Sequence(
                [
                    pre_tokenizers.Digits(individual_digits=True),
                    pre_tokenizers.ByteLevel(add_prefix_space=False),
                ]
            ),
        ),
    ],
)
def test_byte_level_tokenizers_give_the_ids_of_the_published_one(
    name: str, pre: pre_tokenizers.PreTokenizer, tmp_path: pathlib.Path
) -> None:
    published = trained(pre)
    ids = published.get_vocab()
    merges = json.loads(published.to_str())["model"]["merges"]
    file = of_tokens(
        tmp_path,
        model="gpt2",
        pre=name,
        tokens=sorted(ids, key=ids.__getitem__),
        token_type=[3, 3, *[1] * (len(ids) - 2)],
        merges=[" ".join(merge) for merge in merges],
        eos_token_id=1,
        eot_token_id=0,
    )
    vocabulary = read_tokenizer(file)
    assert (vocabulary.eos_id, vocabulary.other_eos_ids, vocabulary.bos_id) == (1, (0,), None)
    published.encode_special_tokens = True
    for text in TEXTS:
        assert vocabulary.encode(text) == published.encode(text).ids, text
        assert vocabulary.decode(vocabulary.encode(text)) == text


def test_sentencepiece_gives_the_ids_of_the_published_one(tmp_path: pathlib.Path) -> None:
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto.FromString(llama_like_model())
    file = of_tokens(
        tmp_path,
        model="llama",
        tokens=[piece.piece for piece in proto.pieces],
        scores=[float(piece.score) for piece in proto.pieces],
        token_type=[int(piece.type) for piece in proto.pieces],
        bos_token_id=1,
        eos_token_id=2,
        unknown_token_id=0,
    )
    vocabulary, published = read_tokenizer(file), SentencePieceVocabulary(llama_like_model())
    for field in ("eos_id", "bos_id", "pad_id", "unk_id", "dummy_prefix", "size"):
        assert getattr(vocabulary, field) == getattr(published, field), field
    for text in TEXTS:
        assert vocabulary.encode(text) == published.encode(text)
