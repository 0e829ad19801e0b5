"""Time and memory of importing and exporting a checkpoint, against its size and largest tensor.

A Llama of two layers is written to a temporary folder, imported from there and exported again:

    python benchmarks/import_weights.py --rows 128000 --width 2048

Memory is what the process allocates: pages of the mapped checkpoint are the system's to take back.
"""

import argparse
import contextlib
import functools
import json
import pathlib
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers

from gophercite.models.tensors import Stream, write_streams
from gophercite.weights.export import export_weights
from gophercite.weights.hugging_face import import_weights

MEBIBYTE = 2**20
LAYERS = 2
ROWS_A_CHUNK = 1000


def write_checkpoint(folder: pathlib.Path, rows: int, width: int) -> None:
    """A checkpoint of ones in bfloat16, with a tokenizer of bytes."""
    config = {
        "model_type": "llama",
        "vocab_size": rows,
        "hidden_size": width,
        "intermediate_size": width,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": width // 128,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    tokens = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = tokenizers.Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(tokens[:1])
    tokenizer.save(str(folder / "tokenizer.json"))
    shapes: dict[str, tuple[int, ...]] = {"model.norm.weight": (width,)}
    for name in ("model.embed_tokens", "lm_head"):
        shapes[f"{name}.weight"] = (rows, width)
    for layer in range(LAYERS):
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes[f"model.layers.{layer}.{name}.weight"] = (width,)
        attention = [f"self_attn.{part}_proj" for part in "qkvo"]
        for name in (*attention, "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"):
            shapes[f"model.layers.{layer}.{name}.weight"] = (width, width)
    dtype = np.dtype(ml_dtypes.bfloat16)
    streams = {
        name: Stream(shape, dtype, functools.partial(ones, shape, dtype))
        for name, shape in shapes.items()
    }
    write_streams(folder, "model", streams, file_bytes=2**62)


def ones(shape: tuple[int, ...], dtype: np.dtype) -> Iterator[np.ndarray]:
    for start in range(0, shape[0], ROWS_A_CHUNK):
        yield np.ones((min(ROWS_A_CHUNK, shape[0] - start), *shape[1:]), dtype)


def allocated() -> int:
    """Bytes of memory that no file backs."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024


@contextlib.contextmanager
def peak_allocation() -> Iterator[list[int]]:
    """Collects what is allocated above the beginning's, many times a second."""
    seen, done, before = [0], threading.Event(), allocated()

    def watch() -> None:
        while not done.wait(0.02):
            seen.append(allocated() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


def measure(work: Callable[[], object]) -> str:
    """Runs something; what it allocated at most and how long it took, in words."""
    wall, cpu = time.monotonic(), time.process_time()
    with peak_allocation() as seen:
        work()
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    return f"peak {max(seen) / MEBIBYTE:.0f} MiB, {wall:.1f} s ({cpu:.1f} s of CPU)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=128_000, help="of the embedding")
    parser.add_argument("--width", type=int, default=2048, help="of the model, a multiple of 128")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = pathlib.Path(temporary)
        source, model, exported = root / "source", root / "model", root / "exported"
        source.mkdir()
        write_checkpoint(source, options.rows, options.width)
        size = sum(path.stat().st_size for path in source.iterdir())
        largest = 2 * options.rows * options.width
        print(f"checkpoint {size / MEBIBYTE:.0f} MiB, largest tensor {largest / MEBIBYTE:.0f} MiB")
        print(f"import: {measure(lambda: import_weights(source, model))}", flush=True)
        print(f"export: {measure(lambda: export_weights(model, exported))}")


if __name__ == "__main__":
    main()
