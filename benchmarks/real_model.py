"""A published model on this machine, beside torch and llama.cpp: prompts, answers, training.

    launch/smollm2.sh
    python benchmarks/real_model.py --hugging_face PYTHON [--llama_cpp PYTHON --gguf FILE]
    python benchmarks/real_model.py --hugging_face PYTHON --only train --rows 4 --length 1024

The model is a folder of `gophercite import-weights` (--model, SmolLM2-135M by default); its export
is what `transformers` loads, and --gguf is the file that llama.cpp loads, as published and
converted to float32. PYTHON is that of an environment with torch and transformers, or with
llama-cpp-python; a side without one is left out. Each side is a process of its own, and all take
turns; figures are medians, and ratios the medians of the turns' ratios to torch in float32.

* `prompt`: one prompt of 1,024 tokens is read, up to the logits of the next token.
* `answers`: 1 and 16 answers of 64 tokens to a prompt of 512, at temperature 1, reading included.
* `train`: a step of AdamW on all weights, 4 rows of 1,024 tokens.

In bfloat16 torch's weights are bfloat16 (autocast for training), and ours stay float32 while the
factors of products are rounded (JAX_DEFAULT_MATMUL_PRECISION=bfloat16), or are bfloat16, too.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peers import Side, Turn, add_worker_flags, announce, median_ratio, serve, take_turns
from same_model import hugging_face_samples, training_batch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

READ, PROMPT, TOKENS = 1024, 512, 64
# Of SmolLM2's vocabulary; random ids cost as much as any.
FIRST_ID, LAST_ID = 100, 49_000


def ids(rows: int, length: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(FIRST_ID, LAST_ID, (rows, length)).astype(np.int32)


# --- Ours ---


def our_model(folder: str, dtype: str, precision: str) -> tuple[Any, Any]:
    os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = precision
    import jax

    from gophercite.model_folders.folder import load_model
    from gophercite.models.transformer import Transformer

    model = load_model(Path(folder))
    config = dataclasses.replace(model.transformer.config, dtype=dtype)
    announce(f"jax {jax.__version__}")
    return Transformer(config), model.params


def prompt_of_ours(folder: str, dtype: str = "float32", precision: str = "float32") -> Turn:
    transformer, params = our_model(folder, dtype, precision)
    import jax
    import jax.numpy as jnp

    @jax.jit
    def read(params: Any, tokens: Any) -> Any:
        lengths = jnp.full((1,), READ, jnp.int32)
        reading = transformer.prefill(params, tokens, lengths, TOKENS)
        return transformer.logits(params, reading.hidden[:, -1:]), reading.cache

    def turn(number: int) -> dict[str, float]:
        logits, cache = jax.block_until_ready(read(params, ids(1, READ, number)))
        del cache
        return {"tokens": READ, "check": float(logits.max())}

    return turn


def answers_of_ours(
    folder: str, samples: int, dtype: str = "float32", precision: str = "float32"
) -> Turn:
    transformer, params = our_model(folder, dtype, precision)
    import jax

    from gophercite.decoding.sampler import sample
    from gophercite.decoding.sampling_settings import SamplingSettings

    def turn(number: int) -> dict[str, float]:
        drawn = sample(
            transformer,
            params,
            ids(1, PROMPT, number).tolist(),
            jax.random.key(number),
            SamplingSettings(max_tokens=TOKENS),
            eos_id=-1,  # never drawn: all answers have all their tokens
            pad_id=0,
            samples_per_prompt=samples,
        )
        return {"tokens": float(drawn.lengths.sum())}

    return turn


def train_ours(
    folder: str,
    rows: int,
    length: int,
    microbatches: int = 4,
    loss_chunk: int = 512,
    dtype: str = "float32",
    precision: str = "float32",
    **settings: Any,
) -> Turn:
    transformer, params = our_model(folder, dtype, precision)
    import jax

    from gophercite.learning.optimizers import adam
    from gophercite.learning.supervised import SupervisedLearner
    from gophercite.models.transformer import Transformer
    from gophercite.training.program import compile_lowered

    chosen = {"attention_block": 128, "attention_remat": False, **settings}
    transformer = Transformer(dataclasses.replace(transformer.config, **chosen))
    learner = SupervisedLearner(
        transformer,
        adam(weight_decay=1e-4),
        lambda step: 1e-5,
        loss_chunk=loss_chunk,
        microbatches=microbatches,
    )
    state = learner.init_state(params, jax.random.key(1))
    del params

    def batch(seed: int) -> dict[str, np.ndarray]:
        return training_batch(ids(rows, length + 1, seed))

    step = compile_lowered(jax.jit(learner.update, donate_argnums=0).lower(state, batch(0)))

    def turn(seed: int) -> dict[str, float]:
        nonlocal state
        state, metrics = step(state, batch(seed))
        return {"tokens": rows * length, "check": float(metrics["loss/nll"])}

    return turn


# --- torch's ---


def torch_model(checkpoint: str, dtype: str) -> Any:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=getattr(torch, dtype)
    )
    announce(f"torch {torch.__version__}, transformers {transformers.__version__}")
    return model


def prompt_of_torch(checkpoint: str, dtype: str) -> Turn:
    import torch

    model = torch_model(checkpoint, dtype).eval()

    def turn(number: int) -> dict[str, float]:
        shown = torch.from_numpy(ids(1, READ, number).astype(np.int64))
        with torch.inference_mode():
            found = model(input_ids=shown, use_cache=True, logits_to_keep=1)
        return {"tokens": READ, "check": float(found.logits.max())}

    return turn


def answers_of_torch(checkpoint: str, dtype: str, samples: int, cache: str) -> Turn:
    model = torch_model(checkpoint, dtype).eval()
    options: dict[str, Any] = {"top_p": 1.0, "temperature": 1.0, "cache_implementation": None}
    if cache == "static":
        options |= {"cache_implementation": "static", "disable_compile": True}

    def turn(number: int) -> dict[str, float]:
        shown = ids(1, PROMPT, number)[0].tolist()
        return {
            "tokens": float(hugging_face_samples(model, shown, samples, TOKENS, number, **options))
        }

    return turn


def train_torch(checkpoint: str, dtype: str, rows: int, length: int) -> Turn:
    import torch

    model = torch_model(checkpoint, "float32").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=1e-4, fused=True)

    def turn(seed: int) -> dict[str, float]:
        row = torch.from_numpy(ids(rows, length + 1, seed).astype(np.int64))[:, :length]
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = model(input_ids=row, labels=row, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return {"tokens": rows * length, "check": loss.item()}

    return turn


# --- llama.cpp's ---


def llama(gguf: str, as_float32: bool) -> Any:
    import llama_cpp

    path = gguf
    if as_float32:
        path = str(Path(tempfile.mkdtemp()) / "float32.gguf")
        settings = llama_cpp.llama_model_quantize_default_params()
        settings.ftype = llama_cpp.LLAMA_FTYPE_ALL_F32
        settings.allow_requantize = True
        if llama_cpp.llama_model_quantize(gguf.encode(), path.encode(), settings):
            raise SystemExit(f"{gguf}: llama.cpp could not convert it to float32")
    threads = len(os.sched_getaffinity(0))
    model = llama_cpp.Llama(
        path, n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False
    )
    announce(f"llama-cpp-python {llama_cpp.__version__}")
    return model


def prompt_of_llama(gguf: str, as_float32: bool = False) -> Turn:
    model = llama(gguf, as_float32)

    def turn(number: int) -> dict[str, float]:
        model.reset()
        model.eval(ids(1, READ, number)[0].tolist())
        return {"tokens": READ, "check": 0.0}

    return turn


def answers_of_llama(gguf: str, as_float32: bool = False) -> Turn:
    model = llama(gguf, as_float32)

    def turn(number: int) -> dict[str, float]:
        model.reset()
        shown = ids(1, PROMPT, number)[0].tolist()
        drawn = model.generate(shown, temp=1.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0)
        count = sum(1 for _, _ in zip(range(TOKENS), drawn, strict=False))
        return {"tokens": float(count)}

    return turn


SIDES: dict[str, Callable[..., Turn]] = {
    "prompt_of_ours": prompt_of_ours,
    "prompt_of_torch": prompt_of_torch,
    "prompt_of_llama": prompt_of_llama,
    "answers_of_ours": answers_of_ours,
    "answers_of_torch": answers_of_torch,
    "answers_of_llama": answers_of_llama,
    "train_ours": train_ours,
    "train_torch": train_torch,
}


def sides_of(work: str, flags: argparse.Namespace, checkpoint: str) -> list[tuple[str, Any, dict]]:
    """The sides of one comparison: whose they are, which Python runs them, and their settings."""
    ours = {"folder": str(flags.model)}
    variants = [json.loads(text) for text in flags.ours] or [
        {},
        {"precision": "bfloat16"},
        {"dtype": "bfloat16"},
    ]
    name, _, samples = work.partition(" ")
    of_work: dict[str, Any] = {}
    if name == "train":
        of_work = {"rows": flags.rows, "length": flags.length}
    elif name == "answers":
        of_work = {"samples": int(samples)}
    sides: list[tuple[str, Any, dict]] = []
    if flags.hugging_face:
        whose = "train_torch" if name == "train" else f"{name}_of_torch"
        caches = [{"cache": "dynamic"}, {"cache": "static"}] if name == "answers" else [{}]
        for dtype in flags.torch_dtype or ("float32", "bfloat16"):
            for cache in caches:
                settings = {"checkpoint": checkpoint, "dtype": dtype, **of_work, **cache}
                sides.append((whose, flags.hugging_face, settings))
    whose = "train_ours" if name == "train" else f"{name}_of_ours"
    sides += [(whose, sys.executable, {**ours, **of_work, **variant}) for variant in variants]
    if flags.llama_cpp and (name == "prompt" or work == "answers 1"):
        for as_float32 in (True, False):
            settings = {"gguf": str(flags.gguf), "as_float32": as_float32}
            sides.append((f"{name}_of_llama", flags.llama_cpp, settings))
    return sides


def compare(work: str, flags: argparse.Namespace, checkpoint: str) -> None:
    """Measures one kind of work and prints its table."""
    sides = []
    for whose, python, settings in sides_of(work, flags, checkpoint):
        sides.append(Side(python, __file__, whose, settings))
        hidden = ("folder", "checkpoint", "gguf", "rows", "length", "samples")
        shown = [f"{k}={v}" for k, v in settings.items() if k not in hidden]
        sides[-1].name = " ".join([whose, *shown])
    take_turns(sides, flags.rounds)
    print(f"\n{work}\n\n| side | seconds | tokens a second | time / first's | peak GiB | check | |")
    print("|---|---|---|---|---|---|---|")
    for side in sides:
        seconds, last = statistics.median(turn["seconds"] for turn in side.turns), side.turns[-1]
        print(
            f"| {side.name} | {seconds:.2f} | {last['tokens'] / seconds:.0f} "
            f"| {median_ratio(side, sides[0]):.2f} | {last['peak_gib']:.2f} "
            f"| {last.get('check', 0):.3f} | {side.note} |",
            flush=True,
        )
        side.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "smollm2")
    parser.add_argument("--hugging_face", metavar="PYTHON")
    both = {"choices": ("float32", "bfloat16"), "action": "append"}
    parser.add_argument("--torch_dtype", **both, help="default: both")
    parser.add_argument("--llama_cpp", metavar="PYTHON")
    parser.add_argument("--gguf", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=5)
    works = ("prompt", "answers 1", "answers 16", "train")
    parser.add_argument("--only", choices=works, action="append", help="default: all")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument(
        "--ours", action="append", default=[], metavar="JSON", help="settings of ours, to compare"
    )
    add_worker_flags(parser, SIDES)
    flags = parser.parse_args()
    if flags.work:
        serve(SIDES[flags.work](**flags.settings))
        return
    if flags.llama_cpp and not flags.gguf:
        parser.error("--llama_cpp needs --gguf FILE")
    with tempfile.TemporaryDirectory() as folder:
        if flags.hugging_face:
            from gophercite.weights.export import export_weights

            export_weights(flags.model, Path(folder) / "checkpoint")
        for work in flags.only or works:
            compare(work, flags, str(Path(folder) / "checkpoint"))


if __name__ == "__main__":
    main()
