"""Tokenizers that were made to harm, or that break the libraries that read them, are refused."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from sentencepiece import sentencepiece_model_pb2
from vocabulary_fixtures import byte_level_json, llama_like_model, metaspace_json

from gophercite.vocabularies import (
    HuggingFaceVocabulary,
    SentencePieceVocabulary,
    VocabularyError,
    load_vocabulary,
)


def of_missing_unknown(content: dict[str, Any]) -> None:
    """BPE that has neither a token for most characters nor the one for unknown characters."""
    ids = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"<|endoftext|>": 256}
    content |= {"pre_tokenizer": None, "decoder": None}
    content["model"] |= {"vocab": ids, "merges": [], "unk_token": "<missing>"}
    content["added_tokens"][0]["id"] = 256


def of_replaced_nothing(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "Replace", "pattern": {"String": ""}, "content": "xx"}


def of_damaged_table(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}


def beginning_with(ids: dict[str, list[int]]) -> Callable[[dict[str, Any]], None]:
    """A `post_processor` that begins texts with the special token `<s>`."""
    text = [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"]
    special = {name: {"id": name, "ids": each, "tokens": [name]} for name, each in ids.items()}

    def change(content: dict[str, Any]) -> None:
        content["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, text[0]],
            "pair": text,
            "special_tokens": special,
        }

    return change


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer.model"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_missing_unknown, "tokenizer.json: the tokenizer can't encode .*<missing>"),
        (of_replaced_nothing, "tokenizer.json: "),
        (of_damaged_table, "tokenizer.json: this is not a tokenizer.json"),
        (beginning_with({}), "tokenizer.json: "),
        (beginning_with({"<s>": [999]}), "tokenizer.json: .*begins texts with token 999, which it"),
    ],
)
def test_tokenizers_on_which_the_library_breaks_are_refused(
    change: Callable[[dict[str, Any]], None], message: str, file: str, tmp_path: pathlib.Path
) -> None:
    """Its panics are no `Exception`s. Beside a SentencePiece model it says how texts begin."""
    content = json.loads(byte_level_json())
    change(content)
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    if file != "tokenizer.json":
        (tmp_path / file).write_bytes(llama_like_model())
    with pytest.raises(VocabularyError, match=message):
        load_vocabulary(tmp_path)


def test_a_tokenizer_that_breaks_on_rare_characters_is_refused_at_once() -> None:
    content = json.loads(byte_level_json())
    of_missing_unknown(content)
    content["model"]["vocab"] |= {"a": 257, " ": 258}
    with pytest.raises(VocabularyError, match=r"the tokenizer can't encode a text .*<missing>"):
        HuggingFaceVocabulary(json.dumps(content))


def test_a_piece_that_is_no_text_is_refused() -> None:
    model = llama_like_model()
    pieces = sentencepiece_model_pb2.ModelProto.FromString(model).pieces
    id = next(id for id, piece in enumerate(pieces) if piece.piece == "\u2581the")
    broken = model.replace("\u2581the".encode(), b"\xff\xff\xff\xff\xff\xff")
    with pytest.raises(VocabularyError, match=f"piece {id} is not text in UTF-8"):
        SentencePieceVocabulary(broken)


def test_hostile_tokenizers_neither_fill_the_memory_nor_break() -> None:
    content = json.loads(byte_level_json())
    content["model"]["vocab"]["zz"] = 2**32 - 1
    with pytest.raises(VocabularyError, match="ids up to 4294967295"):
        HuggingFaceVocabulary(json.dumps(content))
    content = json.loads(metaspace_json("none"))
    content["model"]["vocab"]["<0xZZ>"] = len(content["model"]["vocab"])
    assert HuggingFaceVocabulary(json.dumps(content)).encode("<0xZZ>")  # is text like any other
