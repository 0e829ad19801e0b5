"""Tokenizers of the kinds that models come with, trained once and kept as their files.

Those of one size have the same special ids, so that one compiled program serves them all.
"""

import io
import json
import pathlib
from collections.abc import Callable, Iterable, Sequence

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from gophercite.vocabularies import train_sentencepiece
from tests.quoting.quote_worlds import HOSTILE_PIECES

LARGE, MIDDLE, SMALL = 49_152, 4_096, 512
SPECIAL = ["<pad>", "</s>", "<unk>"]  # 0, 1 and 2, as in the SentencePiece models here

Texts = Sequence[str]


def _unigram(folder: pathlib.Path, texts: Texts) -> None:
    train_sentencepiece(texts, MIDDLE).save(folder)


def _without_marks(size: int) -> Callable[[pathlib.Path, Texts], None]:
    def train(folder: pathlib.Path, texts: Texts) -> None:
        train_sentencepiece(texts, size, "bpe", reserved_marks=False).save(folder)

    return train


def _llama(folder: pathlib.Path, texts: Texts) -> None:
    """Byte fallback, a dummy prefix, a beginning of sequence."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line[:1000] for text in texts for line in text.splitlines()]),
        model_writer=model,
        model_type="bpe",
        vocab_size=MIDDLE,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=3,
        minloglevel=2,
    )
    folder.mkdir(parents=True)
    (folder / "tokenizer.model").write_bytes(model.getvalue())


def _byte_level(size: int) -> Callable[[pathlib.Path, Texts], None]:
    def train(folder: pathlib.Path, texts: Texts) -> None:
        tokenizer = tokenizers.Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        _save(folder, tokenizer.to_str())

    return train


def _metaspace(folder: pathlib.Path, texts: Texts) -> None:
    """As `transformers` writes Llama's: spaces as pieces have them, a prefix, byte fallback."""
    tokenizer = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=MIDDLE - 256, special_tokens=SPECIAL, limit_alphabet=200, show_progress=False
    )
    words = (word for text in texts for word in text.replace(" ", " \0").split("\0"))
    tokenizer.train_from_iterator(words, trainer)
    settings = json.loads(tokenizer.to_str())
    for byte in range(256):
        settings["model"]["vocab"][f"<0x{byte:02X}>"] = len(settings["model"]["vocab"])
    _save(folder, json.dumps(settings))


def _listed(pieces: Iterable[bytes]) -> Callable[[pathlib.Path, Texts], None]:
    """Bytes and some pieces; what is missing to the size are special tokens."""

    def write(folder: pathlib.Path, texts: Texts) -> None:
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        spelled = [*SPECIAL, *alphabet]
        for piece in pieces:
            try:
                text = plain.pre_tokenize_str(piece.decode())[0][0]
            except UnicodeDecodeError:
                continue  # half characters are made of the bytes
            spelled += [text] * (text not in spelled)
        vocabulary = {piece: id for id, piece in enumerate(spelled)}
        tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        missing = SMALL - len(vocabulary)
        tokenizer.add_special_tokens([*SPECIAL, *(f"<unused_{n}>" for n in range(missing))])
        _save(folder, tokenizer.to_str())

    return write


def _save(folder: pathlib.Path, content: str) -> None:
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(content, "utf-8")


KINDS: dict[str, Callable[[pathlib.Path, Texts], None]] = {
    "byte-level BPE, 49,152": _byte_level(LARGE),
    "SentencePiece BPE without marks, 49,152": _without_marks(LARGE),
    "SentencePiece unigram, 4,096": _unigram,
    "SentencePiece BPE without marks, 4,096": _without_marks(MIDDLE),
    "SentencePiece BPE of Llama's kind, 4,096": _llama,
    "byte-level BPE, 4,096": _byte_level(MIDDLE),
    "tokenizer.json with byte fallback, 4,096": _metaspace,
    "bytes and tokens over marks, 512": _listed(HOSTILE_PIECES),
    "bytes, 512": _listed([]),
}


def file_of(kind: str, scratch: pathlib.Path, texts: Texts) -> pathlib.Path:
    """The file of a tokenizer, which is trained on the texts where there is none yet."""
    folder = scratch / "vocabularies" / kind.replace(",", "").replace(" ", "_").replace("'", "")
    if not folder.exists():
        unfinished = folder.with_name(folder.name + ".unfinished")
        if unfinished.exists():
            for path in unfinished.iterdir():
                path.unlink()
            unfinished.rmdir()
        KINDS[kind](unfinished, texts)
        unfinished.rename(folder)
    (found,) = [*folder.glob("*.model"), *folder.glob("tokenizer.json")]
    return found
