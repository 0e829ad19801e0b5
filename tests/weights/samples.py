"""The small checkpoints beside this file, with a tokenizer, ready to import."""

import json
import pathlib
import shutil

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

CHECKPOINTS = pathlib.Path(__file__).parent / "checkpoints"
FAMILIES = (
    *("llama2", "llama3", "mistral", "qwen2", "qwen2_windows", "qwen3"),
    *("gemma2", "gemma3", "gpt_neox", "gpt2"),
)
WITH_IMAGES = "gemma3_images"  # of which the text part is imported
LOGITS = "logits.npz"


def byte_tokenizer() -> str:
    """A `tokenizer.json` with a token for each byte and one that ends a sequence."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {token: id for id, token in enumerate(["<|endoftext|>", *alphabet])}
    tokenizer = tokenizers.Tokenizer(models.BPE(ids, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer.to_str()


def checkpoint(family: str, folder: pathlib.Path) -> pathlib.Path:
    """A copy of a checkpoint as it would be downloaded."""
    shutil.copytree(CHECKPOINTS / family, folder, ignore=shutil.ignore_patterns(LOGITS))
    (folder / "tokenizer.json").write_text(byte_tokenizer(), "utf-8")
    return folder


def edit_config(folder: pathlib.Path, **changes: object) -> None:
    """Sets fields of a checkpoint's `config.json`; those set to `...` go."""
    path = folder / "config.json"
    fields = json.loads(path.read_text("utf-8")) | changes
    kept = {name: value for name, value in fields.items() if value is not ...}
    path.write_text(json.dumps(kept), "utf-8")
