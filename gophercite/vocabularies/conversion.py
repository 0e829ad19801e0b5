"""Converts SentencePiece models to Hugging Face `tokenizer.json`, for programs that need that."""

import re

import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import decoders, models, normalizers, processors

from gophercite.vocabularies.beginnings import PREFIX_PATTERN

_SPACE = "\u2581"  # how pieces write a space
_UNIGRAM = 1  # TrainerSpec's number
_PieceType = sentencepiece_model_pb2.ModelProto.SentencePiece.Type


def to_tokenizer_json(proto: sentencepiece_model_pb2.ModelProto, bos: str | None) -> str:
    """Returns the tokenizer that produces the same tokens as a SentencePiece model.

    As in `SentencePieceVocabulary`, its normalisation is left out except for the dummy prefix.
    There are these differences, as `tokenizers` works. The name of a special piece in a text, such
    as `</s>`, is that piece. A text that is nothing but a user-defined piece gets no dummy prefix.
    A unigram model reads the name of a byte piece, such as `<0x41>`, as that byte; where ways to
    split a text are equally probable, or user-defined pieces overlap, it may choose another one.

    Args:
      proto: the model, unigram or BPE with byte fallback.
      bos: name of the token that begins a text, or None.

    Returns:
      The content of `tokenizer.json`.
    """
    dummy_prefix = proto.normalizer_spec.add_dummy_prefix
    tokenizer = tokenizers.Tokenizer(_model(proto))
    symbols = [each.piece for each in proto.pieces if each.type == _PieceType.USER_DEFINED]
    tokenizer.normalizer = normalizers.Sequence(_normalizers(dummy_prefix, symbols))
    tokenizer.decoder = decoders.Sequence(_decoders(dummy_prefix))
    for piece in proto.pieces:
        if piece.type in (_PieceType.CONTROL, _PieceType.UNKNOWN):
            tokenizer.add_special_tokens([tokenizers.AddedToken(piece.piece, normalized=False)])
        elif piece.type == _PieceType.USER_DEFINED:
            # Matched against the normalised text, in which spaces are written as in pieces.
            tokenizer.add_tokens([tokenizers.AddedToken(piece.piece, normalized=True)])
    if bos is not None:
        special = [(bos, tokenizer.token_to_id(bos))]
        tokenizer.post_processor = processors.TemplateProcessing(
            f"{bos} $A", f"{bos} $A {bos} $B", special
        )
    return tokenizer.to_str()


def _model(proto: sentencepiece_model_pb2.ModelProto) -> models.Model:
    pieces = proto.pieces
    unknown = next(id for id, piece in enumerate(pieces) if piece.type == _PieceType.UNKNOWN)
    if proto.trainer_spec.model_type == _UNIGRAM:
        scores = [(piece.piece, piece.score) for piece in pieces]
        return models.Unigram(scores, unk_id=unknown, byte_fallback=True)
    ids = {piece.piece: id for id, piece in enumerate(pieces)}
    return models.BPE(
        ids,
        _merges(proto),
        unk_token=pieces[unknown].piece,
        fuse_unk=True,
        byte_fallback=True,
    )


def _merges(proto: sentencepiece_model_pb2.ModelProto) -> list[tuple[str, str]]:
    """Pairs of pieces that merge into another, in the order in which SentencePiece merges them.

    SentencePiece merges the two neighbours whose union has the best score, however it is split;
    `tokenizers` needs every split, in order.
    """
    normal = [piece for piece in proto.pieces if piece.type == _PieceType.NORMAL]
    known = {piece.piece for piece in normal}
    ranked = sorted(normal, key=lambda piece: -piece.score)  # stable: ties by id
    return [
        (text[:cut], text[cut:])
        for text in (piece.piece for piece in ranked)
        for cut in range(1, len(text))
        if text[:cut] in known and text[cut:] in known
    ]


def _normalizers(dummy_prefix: bool, symbols: list[str]) -> list[normalizers.Normalizer]:
    spaces = normalizers.Replace(" ", _SPACE)
    if not dummy_prefix:
        return [spaces]
    if not symbols:
        return [normalizers.Prepend(_SPACE), spaces]
    # The names of added tokens are normalised, too; with a prefix they would match nothing else.
    names = "|".join(map(re.escape, symbols))
    start = tokenizers.Regex(rf"{PREFIX_PATTERN}(?!(?:{names})\z)")
    return [normalizers.Replace(start, _SPACE), spaces]


def _decoders(dummy_prefix: bool) -> list[decoders.Decoder]:
    strip = [decoders.Strip(" ", 1, 0)] if dummy_prefix else []
    return [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
