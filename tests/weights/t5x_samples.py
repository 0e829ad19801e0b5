"""The small T5X checkpoints beside this file, with a vocabulary, ready to import."""

import functools
import pathlib
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sentencepiece import sentencepiece_model_pb2

from gophercite.model_folders.folder import Model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.vocabularies import SentencePieceVocabulary

CHECKPOINTS = pathlib.Path(__file__).parent / "t5x_checkpoints"
KINDS = ("gated", "plain")
STEP = 1000
_Type = sentencepiece_model_pb2.ModelProto.SentencePiece.Type


@functools.cache
def t5_like_model() -> bytes:
    """A SentencePiece model with T5's special tokens, and a piece for each byte."""
    proto = sentencepiece_model_pb2.ModelProto()
    pieces = [("<pad>", _Type.CONTROL), ("</s>", _Type.CONTROL), ("<unk>", _Type.UNKNOWN)]
    pieces += [(f"<0x{byte:02X}>", _Type.BYTE) for byte in range(256)]
    pieces += [(letter, _Type.NORMAL) for letter in "▁etaoinshrdlu"]
    for number, (piece, kind) in enumerate(pieces):
        proto.pieces.add(piece=piece, score=-float(number), type=kind)
    spec = proto.trainer_spec
    spec.model_type, spec.byte_fallback = spec.UNIGRAM, True
    spec.pad_id, spec.eos_id, spec.unk_id, spec.bos_id = 0, 1, 2, -1
    spec.vocab_size = len(proto.pieces)
    proto.normalizer_spec.name = "identity"
    return proto.SerializeToString()


def random_model(config: TransformerConfig, provenance: dict[str, Any]) -> Model:
    """A model of any architecture, without waiting for its initialisation to compile."""
    draws = np.random.default_rng(0)
    transformer = Transformer(config)
    params = jax.tree.map(
        lambda leaf: jnp.asarray(draws.normal(size=leaf.shape), leaf.dtype), transformer.abstract()
    )
    return Model(transformer, params, SentencePieceVocabulary(t5_like_model()), provenance)


def t5x_run(kind: str, folder: pathlib.Path) -> pathlib.Path:
    """A run's folder as T5X leaves it, and the vocabulary that it was given; its checkpoint."""
    shutil.unpack_archive(CHECKPOINTS / f"{kind}.zip", folder)
    (folder / "sentencepiece.model").write_bytes(t5_like_model())
    return folder / f"checkpoint_{STEP}"
