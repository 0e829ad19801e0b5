"""What an accelerator does with our training, sampling and actor-critic, beside torch: one command.

    python benchmarks/accelerator.py --out accelerator.json [--peer PYTHON] [--vllm PYTHON]
    python benchmarks/accelerator.py --out toy.json --size toy --rows 2 --rounds 1    # anywhere

It needs JAX, Flax, Optax and numba, and neither TensorFlow nor a network. PYTHON is that of an
environment with torch and transformers, or with vLLM; a side without one is left out. For each
--size (`same_model.SIZES`), in bfloat16 with random weights:

* Training: a step of AdamW on packed rows of 2,048 tokens, both sides with as many microbatches;
  torch is compiled, with its fused optimiser and FlashAttention. The operations are those that the
  model needs, causal attention counted by half; --peak is what they are divided by for the MFU.
* Sampling: answers to one prompt of 512 tokens, for each number of --rows: ours free, ours in a
  long quote by the constraint, `generate` with a static cache, vLLM. All have as many tokens.
* Actor-critic: a step against the sum of its necessary parts (`a2c_step.py`).

Sides are processes that take turns; figures are medians. The file gets a line of JSON for each.
"""

import argparse
import datetime
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.peers import (
    Side,
    Turn,
    add_worker_flags,
    announce,
    median_ratio,
    serve,
    take_turns,
)
from benchmarks.same_model import (
    SIZES,
    hugging_face_model,
    hugging_face_samples,
    our_config,
    training_batch,
)

LENGTH, PROMPT, TOKENS = 2048, 512, 128
# What an H100 reaches in the largest products, of the 989 TFLOP/s that are published.
PEAK = 790e12
Figure = dict[str, Any]


def tokens_of(size: str, rows: int, length: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return draw.integers(2, SIZES[size].vocabulary, (rows, length)).astype(np.int32)


def prompt(size: str) -> list[int]:
    return tokens_of(size, 1, PROMPT, 0)[0].tolist()


def _jax_peak_gib() -> dict[str, float]:
    """The device's peak; nothing where JAX doesn't know it, as on CPUs."""
    import jax

    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    return {} if peak is None else {"peak_gib": peak / 2**30}


def _torch_peak_gib() -> dict[str, float]:
    import torch

    if not torch.cuda.is_available():
        return {}
    return {"peak_gib": torch.cuda.max_memory_allocated() / 2**30}


# --- Training ---


def train(size: str, rows: int, length: int, microbatches: int) -> Turn:
    """Our step."""
    import jax

    from gophercite.learning.optimizers import adam
    from gophercite.learning.supervised import SupervisedLearner
    from gophercite.models.transformer import Transformer
    from gophercite.training.program import compile_lowered

    config = our_config(SIZES[size], "bfloat16")
    transformer, optimizer = Transformer(config), adam(weight_decay=1e-4)
    learner = SupervisedLearner(transformer, optimizer, lambda _: 1e-4, microbatches=microbatches)
    state = learner.init_state(transformer.init(jax.random.key(0)), jax.random.key(1))

    def batch(seed: int) -> dict[str, np.ndarray]:
        return training_batch(tokens_of(size, rows, length + 1, seed))

    step = compile_lowered(jax.jit(learner.update, donate_argnums=0).lower(state, batch(0)))
    device = jax.local_devices()[0].device_kind
    announce(f"{device}, jax {jax.__version__}, {config.parameters / 1e6:.0f} M parameters")

    def turn(seed: int) -> dict[str, float]:
        nonlocal state
        state, metrics = step(state, batch(seed))
        loss = float(metrics["loss/nll"])
        return {"loss": loss, **_jax_peak_gib()}

    return turn


def train_torch(size: str, rows: int, length: int, microbatches: int) -> Turn:
    """Hugging Face's model with torch's own optimiser."""
    import torch
    import transformers

    on_gpu = torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    attention = "flash_attention_2" if transformers.utils.is_flash_attn_2_available() else "sdpa"
    model = hugging_face_model(SIZES[size], attention, length).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-4, fused=on_gpu)
    run = torch.compile(model) if on_gpu else model
    kind = torch.cuda.get_device_name() if on_gpu else "CPU"
    announce(
        f"{kind}, torch {torch.__version__}, transformers {transformers.__version__}, {attention}"
    )

    def turn(seed: int) -> dict[str, float]:
        drawn = torch.from_numpy(tokens_of(size, rows, length + 1, seed).astype(np.int64))
        total = 0.0
        for part in drawn[:, :length].to(device).chunk(microbatches):
            with torch.autocast(device, torch.bfloat16):
                loss = run(input_ids=part, labels=part).loss / microbatches
            loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if on_gpu:
            torch.cuda.synchronize()
        return {"loss": total, **_torch_peak_gib()}

    return turn


# --- Sampling ---


def sample(size: str, rows: int, tokens: int) -> Turn:
    """Our sampler, free and inside a long quote of a page, with as many steps."""
    import jax

    from data_pipelines.sample_world.vocabulary import bundled_vocabulary
    from data_pipelines.sample_world.world import World
    from gophercite.decoding.sampler import sample
    from gophercite.decoding.sampling_settings import SamplingSettings
    from gophercite.documents import Document
    from gophercite.models.transformer import Transformer
    from gophercite.quoting.constraint import QuoteConstraint
    from gophercite.quoting.quote_settings import QuoteSettings

    transformer = Transformer(our_config(SIZES[size], "bfloat16"))
    params = transformer.init(jax.random.key(0))
    vocabulary, world = bundled_vocabulary(), World()
    text = " ".join(world.page(number).document.text for number in range(40))
    # A quote that fills what the claim leaves, so that nearly all steps are in it.
    long_quotes = QuoteSettings(minimum_quote=tokens, maximum_claim=12)
    constraint = QuoteConstraint(vocabulary, long_quotes)
    tables = constraint.tables([constraint.graph([Document("page", "A page", text)])], tokens)
    announce(f"jax {jax.__version__}")

    def drawn(number: int, steps: int, quotes: Any) -> tuple[float, int, int]:
        """Seconds, tokens, and steps."""
        begun = time.perf_counter()
        made = sample(
            transformer,
            params,
            [prompt(size)],
            jax.random.key(number),
            SamplingSettings(max_tokens=steps, free_log_probs=False),
            eos_id=-1 if quotes is None else vocabulary.eos_id,
            pad_id=0,
            samples_per_prompt=rows,
            quotes=quotes,
            vocabulary_size=None if quotes is None else vocabulary.size,
        )
        lengths = np.asarray(made.lengths)
        return time.perf_counter() - begun, int(lengths.sum()), int(lengths.max())

    # Free samples never end; they get as many steps as the longest quote took, compiled once.
    steps = drawn(0, tokens, tables)[2]

    def turn(number: int) -> dict[str, float]:
        free, count, _ = drawn(number, steps, None)
        quoting, _, taken = drawn(number, tokens, tables)
        return {
            "seconds": free,
            "tokens": count,
            "of_constraint": (quoting / taken) / (free / steps),
            **_jax_peak_gib(),
        }

    return turn


def sample_torch(size: str, rows: int, tokens: int) -> Turn:
    """`generate` of Hugging Face."""
    import torch
    import transformers

    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = hugging_face_model(SIZES[size]).to(device, torch.bfloat16).eval()
    announce(f"torch {torch.__version__}, transformers {transformers.__version__}, static cache")

    def turn(number: int) -> dict[str, float]:
        made = hugging_face_samples(model, prompt(size), rows, tokens, number)
        return {"tokens": float(made), **_torch_peak_gib()}

    return turn


def sample_vllm(size: str, rows: int, tokens: int) -> Turn:
    """VLLM's engine, from a folder with the same random weights."""
    import torch
    import vllm

    with tempfile.TemporaryDirectory() as folder:
        hugging_face_model(SIZES[size]).to(torch.bfloat16).save_pretrained(folder)
        engine = vllm.LLM(
            folder,
            skip_tokenizer_init=True,
            dtype="bfloat16",
            max_model_len=PROMPT + tokens,
            gpu_memory_utilization=0.5,
        )
    settings = vllm.SamplingParams(
        n=rows, temperature=1.0, max_tokens=tokens, ignore_eos=True, detokenize=False
    )
    announce(f"vllm {vllm.__version__}")

    def turn(number: int) -> dict[str, float]:
        settings.seed = number
        shown = {"prompt_token_ids": prompt(size)}
        (made,) = engine.generate([shown], settings, use_tqdm=False)
        return {"tokens": float(sum(len(one.token_ids) for one in made.outputs))}

    return turn


# --- Actor-critic ---


def actor_critic(size: str, rounds: int) -> Turn:
    """The whole measurement of a step and its parts, in one turn."""
    import jax

    from benchmarks.a2c_step import measure

    announce(f"jax {jax.__version__}")

    def turn(number: int) -> dict[str, Any]:
        found, sampled = measure(size, rounds)
        return {"sampled": sampled, "parts": [part._asdict() for part in found]}

    return turn


SIDES: dict[str, Callable[..., Turn]] = {
    "train": train,
    "train_torch": train_torch,
    "sample": sample,
    "sample_torch": sample_torch,
    "sample_vllm": sample_vllm,
    "actor_critic": actor_critic,
}


def training_figures(sides: list[Side], flops: int, tokens: int, peak: float) -> Iterator[Figure]:
    """A figure for each side of the training; the first is ours."""
    for side in sides:
        seconds = statistics.median(turn["seconds"] for turn in side.turns)
        yield {
            "what": "training",
            "side": side.name,
            "note": side.note,
            "seconds_a_step": seconds,
            "tokens_a_second": tokens / seconds,
            "tflops": flops / seconds / 1e12,
            "mfu": flops / seconds / peak,
            "time_of_ours": median_ratio(side, sides[0]),
            "peak_gib": side.turns[-1]["peak_gib"],
            "loss": side.turns[-1]["loss"],
        }


def sampling_figures(sides: list[Side], rows: int) -> Iterator[Figure]:
    """A figure for each side of the sampling; the first is ours, free, with the constraint's."""
    rates = [[turn["tokens"] / turn["seconds"] for turn in side.turns] for side in sides]
    for side, of_side in zip(sides, rates, strict=True):
        pairs = zip(of_side, rates[0], strict=True)
        constraint = [t["of_constraint"] for t in side.turns if "of_constraint" in t]
        yield {
            "what": f"sampling, {rows} rows",
            "side": side.name,
            "note": side.note,
            "tokens_a_second": statistics.median(of_side),
            "rate_of_ours": statistics.median(rate / ours for rate, ours in pairs),
            "peak_gib": side.turns[-1]["peak_gib"],
            **({"with_constraint": statistics.median(constraint)} if constraint else {}),
        }


def figures(flags: argparse.Namespace) -> Iterator[Figure]:
    """All figures, as they are measured."""

    def measured(sides: list[Side], rounds: int) -> list[Side]:
        take_turns(sides, rounds)
        for side in sides:
            side.close()
        return sides

    ours = sys.executable, __file__
    for size in flags.size:
        if "training" in flags.only:
            what: dict[str, Any] = {"size": size, "rows": flags.batch_rows, "length": flags.length}
            what["microbatches"] = flags.microbatches
            sides = [Side(*ours, "train", what)]
            if flags.peer:
                sides.append(Side(flags.peer, __file__, "train_torch", what))
            flops = our_config(SIZES[size]).training_flops(flags.batch_rows, flags.length)
            tokens = flags.batch_rows * flags.length
            yield from training_figures(measured(sides, flags.rounds), flops, tokens, flags.peak)
        for rows in flags.rows if "sampling" in flags.only else ():
            what = {"size": size, "rows": rows, "tokens": TOKENS}
            sides = [Side(*ours, "sample", what)]
            for name, python in (("sample_torch", flags.peer), ("sample_vllm", flags.vllm)):
                if python:
                    sides.append(Side(python, __file__, name, what))
            yield from sampling_figures(measured(sides, flags.rounds), rows)
        if "actor-critic" not in flags.only:
            continue
        side = Side(*ours, "actor_critic", {"size": size, "rounds": flags.rounds})
        found = side.turn(0)
        side.close()
        yield {"what": "actor-critic", "side": side.name, "note": side.note, **found}


def lines_of(figure: Figure) -> Iterator[str]:
    """A figure as lines of a Markdown table: what, side, figures, versions."""
    if "parts" in figure:
        for part in figure["parts"]:
            numbers = f"{part['seconds']:.3f} s, {part['of_parts']:.2f} of the parts' sum"
            yield f"| {figure['what']} | {part['name']} | {numbers} | {figure['note']} |"
        return
    names = {
        "seconds_a_step": "{:.3f} s",
        "tokens_a_second": "{:.0f} tokens a second",
        "tflops": "{:.1f} TFLOP/s",
        "mfu": "MFU {:.1%}",
        "time_of_ours": "time / ours {:.2f}",
        "rate_of_ours": "rate / ours {:.2f}",
        "with_constraint": "time of a step with the constraint / free {:.2f}",
        "peak_gib": "{:.2f} GiB",
    }
    numbers = ", ".join(form.format(figure[n]) for n, form in names.items() if n in figure)
    yield f"| {figure['what']} | {figure['side']} | {numbers} | {figure['note']} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--out", type=Path, help="file of JSON lines to write; it must not exist")
    add("--peer", metavar="PYTHON", help="with torch and transformers")
    add("--vllm", metavar="PYTHON", help="with vLLM, torch and transformers")
    add("--size", nargs="+", choices=SIZES, default=["440m", "1.3b"])
    parts = ["training", "sampling", "actor-critic"]
    add("--only", nargs="+", choices=parts, default=parts, help="which parts (default: all)")
    add("--rows", nargs="+", type=int, default=[16, 64, 256], help="samples of a prompt")
    add("--batch-rows", type=int, default=16, help="rows of a training batch (default: 16)")
    add("--length", type=int, default=LENGTH, help=f"tokens of such a row (default: {LENGTH})")
    add("--microbatches", type=int, default=4, help="of a training batch (default: 4)")
    add("--rounds", type=int, default=7, help="turns that count, after two (default: 7)")
    add("--peak", type=float, default=PEAK, help=f"operations a second (default: {PEAK:.3g})")
    add_worker_flags(parser, SIDES)
    flags = parser.parse_args()
    if flags.work:
        serve(SIDES[flags.work](**flags.settings))
        return
    if flags.out is None:
        parser.error("--out is needed: the file for the figures")
    print("| what | side | figures | versions |\n|---|---|---|---|")
    with flags.out.open("x") as file:
        for figure in figures(flags):
            dated = {"date": datetime.date.today().isoformat(), **figure}
            file.write(json.dumps(dated) + "\n")
            file.flush()
            print(*lines_of(figure), sep="\n", flush=True)


if __name__ == "__main__":
    main()
