"""Time and memory of importing, loading and exporting a checkpoint of any size.

A Llama is written to a temporary folder (noise, in several files), imported from there, loaded
onto a mesh of simulated devices, and exported again; beside it the same bytes are only copied and
hashed:

    python benchmarks/import_weights.py --layers 16
    python benchmarks/import_weights.py --layers 12 --dtype float32 --to bfloat16

Each work has a process of its own, and its memory is what it holds at most above what the process
held when everything was imported and JAX started. *Resident* is all of it; *own* is what no file
backs: pages of a mapped checkpoint are the system's to take back. JAX's CPU devices hold their
memory in the host, so that a loaded model's shards are part of both.
"""

import argparse
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers

MEBIBYTE = 2**20
CHUNK = 64 * MEBIBYTE
ROWS_A_CHUNK = 1000


class Held(NamedTuple):
    """Bytes of a process's memory."""

    resident: int
    own: int


class Measured(NamedTuple):
    """What a work took.

    Attributes:
      seconds: by the clock.
      cpu: seconds of computing.
      peak: the most that it held above the beginning's.
      result: what it gave back.
    """

    seconds: float
    cpu: float
    peak: Held
    result: Any

    def __str__(self) -> str:
        return (
            f"resident {self.peak.resident / MEBIBYTE:.0f} MiB, own "
            f"{self.peak.own / MEBIBYTE:.0f} MiB, {self.seconds:.1f} s ({self.cpu:.1f} s of CPU)"
        )


def write_checkpoint(folder: pathlib.Path, options: argparse.Namespace) -> int:
    """Writes a checkpoint with a tokenizer of bytes; gives the largest tensor's bytes."""
    from gophercite.model_folders.tensors import Stream, write_streams

    width, mlp = options.width, 4 * options.width
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": options.rows,
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_hidden_layers": options.layers,
        "num_attention_heads": width // 128,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    (folder / "tokenizer.json").write_text(byte_tokenizer(), "utf-8")
    shapes: dict[str, tuple[int, ...]] = {"model.norm.weight": (width,)}
    for name in ("model.embed_tokens", "lm_head"):
        shapes[f"{name}.weight"] = (options.rows, width)
    for layer in range(options.layers):
        own = {f"self_attn.{part}_proj": (width, width) for part in "qkvo"}
        own |= {"mlp.gate_proj": (mlp, width), "mlp.up_proj": (mlp, width)}
        own |= {"mlp.down_proj": (width, mlp)}
        norms = dict.fromkeys(("input_layernorm", "post_attention_layernorm"), (width,))
        shapes |= {f"model.layers.{layer}.{k}.weight": v for k, v in (own | norms).items()}
    dtype = np.dtype(ml_dtypes.bfloat16 if options.dtype == "bfloat16" else np.float32)
    streams = {
        name: Stream(shape, dtype, functools.partial(noise, shape, dtype))
        for name, shape in shapes.items()
    }
    stored = write_streams(folder, "model", streams, options.file_bytes)
    if len({tensor.file for tensor in stored.values()}) > 1:
        index = {"weight_map": {name: tensor.file for name, tensor in stored.items()}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    return max(stream.nbytes for stream in streams.values())


def byte_tokenizer() -> str:
    """A `tokenizer.json` with a token for each byte and one that ends a sequence."""
    tokens = ["<|endoftext|>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = tokenizers.Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(tokens[:1])
    return tokenizer.to_str()


def noise(shape: tuple[int, ...], dtype: np.dtype) -> Iterator[np.ndarray]:
    """The same thousand rows of small random numbers again and again."""
    rows = np.random.default_rng(0).standard_normal((min(ROWS_A_CHUNK, shape[0]), *shape[1:]))
    rows = (0.02 * rows).astype(dtype)
    for start in range(0, shape[0], ROWS_A_CHUNK):
        yield rows[: shape[0] - start]


def held() -> Held:
    """What this process holds now."""
    status = pathlib.Path("/proc/self/status").read_text()
    sizes = {name: int(size) * 1024 for name, size in re.findall(r"(\w+):\s+(\d+) kB", status)}
    return Held(sizes["VmRSS"], sizes["RssAnon"])


def watched(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Measured:
    """Does something, in a process that has started JAX, and looks many times a second."""
    import jax

    import gophercite.model_folders.folder
    import gophercite.weights.export
    import gophercite.weights.hugging_face  # noqa: F401

    jax.block_until_ready(jax.numpy.zeros(8) + 1)
    before, peaks, done = held(), [Held(0, 0)], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            now = held()
            peaks.append(Held(now.resident - before.resident, now.own - before.own))

    watcher = threading.Thread(target=watch)
    watcher.start()
    wall, cpu = time.monotonic(), time.process_time()
    try:
        result = work(*arguments)
    finally:
        done.set()
        watcher.join()
    wall, cpu = time.monotonic() - wall, time.process_time() - cpu
    return Measured(wall, cpu, Held(*map(max, zip(*peaks, strict=True))), result)


def measure(work: Callable[..., Any], *arguments: Any) -> Measured:
    """Does something in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(watched, work, arguments).result()


def copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """Copies the files of tensors and hashes them: what an import does at the least."""
    target.mkdir()
    for path in sorted(source.glob("*.safetensors")):
        digest = hashlib.sha256()
        with path.open("rb") as read, (target / path.name).open("wb") as out:
            while chunk := read.read(CHUNK):
                digest.update(chunk)
                out.write(chunk)


def bring_in(source: pathlib.Path, folder: pathlib.Path, dtype: Any) -> None:
    from gophercite.weights.hugging_face import import_weights

    import_weights(source, folder, dtype=dtype)


def load(folder: pathlib.Path) -> int:
    """Loads a model over all devices; gives the bytes of their shards."""
    import jax

    from gophercite.model_folders.folder import load_model, read_description
    from gophercite.models.transformer import Transformer
    from gophercite.partitioning import Partitioner, make_mesh

    transformer = Transformer(read_description(folder).config)
    partitioner = Partitioner(make_mesh())
    shardings = partitioner.shardings(transformer.logical_axes(), transformer.abstract())
    model = load_model(folder, shardings=shardings)
    leaves = jax.block_until_ready(jax.tree.leaves(model.params))
    return sum(shard.data.nbytes for leaf in leaves for shard in leaf.addressable_shards)


def send_out(model: pathlib.Path, folder: pathlib.Path) -> None:
    from gophercite.weights.export import export_weights

    export_weights(model, folder)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=128_000, help="of the embedding")
    parser.add_argument("--width", type=int, default=2048, help="of the model, a multiple of 128")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--to", choices=("bfloat16", "float32"), help="import to another dtype")
    parser.add_argument("--file_bytes", type=int, default=10**9, help="of a file of tensors")
    parser.add_argument("--devices", type=int, default=8, help="to load onto, simulated")
    parser.add_argument("--rounds", type=int, default=2, help="copies and imports in turns")
    parser.add_argument("--folder", type=pathlib.Path, help="where there is room for three models")
    options = parser.parse_args()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={options.devices}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        root = pathlib.Path(temporary)
        source, model = root / "source", root / "model"
        largest = write_checkpoint(source, options)
        files = list(source.glob("*.safetensors"))
        size = sum(path.stat().st_size for path in files)
        print(
            f"checkpoint {size / 1e9:.2f} GB of {options.dtype} in {len(files)} files, largest "
            f"tensor {largest / MEBIBYTE:.0f} MiB"
        )
        for _ in range(options.rounds):
            done = measure(copy, source, root / "copy")
            print(f"copy and hash: {done}, {size / 1e9 / done.seconds:.2f} GB/s", flush=True)
            shutil.rmtree(root / "copy")
            done = measure(bring_in, source, model, options.to)
            times = done.peak.resident / largest, done.peak.own / largest
            print(
                f"import: {done}, {size / 1e9 / done.seconds:.2f} GB/s; resident {times[0]:.2f} "
                f"and own {times[1]:.2f} of the largest tensor",
                flush=True,
            )
        done = measure(load, model)
        shards = done.result
        print(
            f"load onto {options.devices} devices: {done}; shards {shards / MEBIBYTE:.0f} MiB, "
            f"resident {done.peak.resident / shards:.3f} and own {done.peak.own / shards:.3f} of "
            "them",
            flush=True,
        )
        shutil.rmtree(source)
        print(f"export: {measure(send_out, model, root / 'exported')}")


if __name__ == "__main__":
    main()
