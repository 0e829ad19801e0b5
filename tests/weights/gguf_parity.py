"""Imported GGUF files beside `transformers`' own loader of them: logits, and ids of texts.

Needs torch and transformers (the extra `benchmarks`):

    python -m tests.weights.gguf_parity FILE.gguf …   # prints the table of docs/weights.md

The random files of each family, quantised and not, come before those that are named.
"""

import pathlib
import sys
import tempfile

import jax
import numpy as np
import torch
import transformers

from gophercite.model_folders.folder import load_model
from gophercite.models.transformer import Transformer
from gophercite.prompts import encode_text
from gophercite.vocabularies import Vocabulary
from gophercite.weights.gguf import import_gguf
from tests.tokenizers.make_tokenizers import TEXTS
from tests.weights import gguf_samples

QUANTISED = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")


def random_file(family: str, kind: str, folder: pathlib.Path) -> pathlib.Path:
    """A file of random weights, wide enough for quantised blocks, matrices of one kind."""
    source = gguf_samples.source(family, folder / "source")
    fields = gguf_samples.fields_of(family, source)
    arch = fields["general.architecture"]
    # What `transformers` does not read of these files is as it takes it to be.
    dim = 128 if arch == "qwen3" else 256 if arch.startswith("gemma") else 64
    if arch == "gemma2":
        fields |= {f"{arch}.attn_logit_softcapping": 50.0, f"{arch}.final_logit_softcapping": 30.0}
    fields = {key: value for key, value in fields.items() if ".rope.scaling." not in key}
    heads = fields[f"{arch}.attention.head_count"]
    kv_heads = fields[f"{arch}.attention.head_count_kv"]
    fields |= {
        f"{arch}.embedding_length": 256,
        f"{arch}.feed_forward_length": 512,
        f"{arch}.attention.key_length": dim,
        f"{arch}.attention.value_length": dim,
    }
    rows = {"attn_q": dim * heads, "attn_k": dim * kv_heads, "attn_v": dim * kv_heads}
    rows |= {"ffn_gate": 512, "ffn_up": 512, "token_embd": 257, "output": 257}
    columns = {"attn_output": dim * heads, "ffn_down": 512}
    rng = np.random.default_rng(len(family) + len(kind))
    tensors: dict[str, gguf_samples.Tensor] = {}
    for name, (values, _) in gguf_samples.tensors_of(family, source).items():
        part = name.split(".")[-2]
        if name == "rope_freqs.weight":
            continue
        if values.ndim == 1:
            size = dim if part in ("attn_q_norm", "attn_k_norm") else rows.get(part, 256)
            tensors[name] = ((1 + 0.3 * rng.normal(size=size)).astype(np.float32), "F32")
        else:
            shape = rows.get(part, 256), columns.get(part, 256)
            spread = 1.5 * shape[1] ** -0.5
            tensors[name] = (rng.normal(0, spread, shape).astype(np.float32), kind)
    path = folder / f"{family}.gguf"
    gguf_samples.write(path, fields, tensors)
    return path


def compare(path: pathlib.Path, tokens: np.ndarray) -> tuple[float, int, int]:
    """The largest difference of logits, and where the likeliest tokens agree."""
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )
    with torch.no_grad():
        expected = theirs(torch.from_numpy(tokens[None])).logits[0].numpy()
    with tempfile.TemporaryDirectory() as folder:
        import_gguf(path, pathlib.Path(folder) / "model")
        model = load_model(pathlib.Path(folder) / "model")
        found = logits(model.transformer, model.params, tokens)
    same = int((found.argmax(-1) == expected.argmax(-1)).sum())
    return float(np.abs(found - expected).max()), same, len(tokens)


def logits(transformer: Transformer, params: dict, tokens: np.ndarray) -> np.ndarray:
    """Ours, of all tokens."""
    row = tokens[None].astype(np.int32)
    positions = np.arange(row.shape[1])[None]

    @jax.jit
    def run(params: dict) -> jax.Array:
        hidden, _ = transformer.apply(params, row, positions, np.ones_like(row))
        return transformer.logits(params, hidden)

    return np.asarray(run(params))[0]


def agreed_ids(path: pathlib.Path, vocabulary: Vocabulary) -> tuple[int, int]:
    """Texts of many scripts whose ids are the same, of those that both give back unchanged."""
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    same = total = 0
    for text in filter(None, TEXTS):
        ids = theirs(text, add_special_tokens=False)["input_ids"]
        if vocabulary.spells(text) and theirs.decode(ids) == text:
            total += 1
            same += encode_text(vocabulary, text)[-len(ids) :] == ids
    return same, total


def main() -> None:
    """Prints a row for each file."""
    print("| File | kinds | largest difference | likeliest tokens agreed | texts' ids agreed |")
    print("|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for number, family in enumerate(gguf_samples.EXPRESSIBLE):
        for kind in ("F32", "F16", "BF16", QUANTISED[number % len(QUANTISED)]):
            with tempfile.TemporaryDirectory() as folder:
                path = random_file(family, kind, pathlib.Path(folder))
                difference, same, total = compare(path, rng.integers(0, 257, 48))
            print(
                f"| random {family} | {kind} | {difference:.1e} | {same} of {total} | |", flush=True
            )
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        with tempfile.TemporaryDirectory() as folder:
            kinds = import_gguf(path, pathlib.Path(folder) / "m").provenance["tensors"]
            vocabulary = load_model(pathlib.Path(folder) / "m").vocabulary
        tokens = np.array(encode_text(vocabulary, " ".join(TEXTS[:8])))
        difference, same, total = compare(path, tokens)
        ids, texts = agreed_ids(path, vocabulary)
        print(
            f"| {path.name} | {', '.join(kinds)} | {difference:.1e} | {same} of {total} | "
            f"{ids} of {texts} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
