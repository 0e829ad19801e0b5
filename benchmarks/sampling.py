"""Our sampler beside peers', in one run: many samples of one prompt.

    pip install -e ".[train,benchmarks]"
    python benchmarks/sampling.py [--hugging_face PYTHON] [--tunix PYTHON] [--rounds 5]
    python benchmarks/sampling.py --ours '{}' --ours '{"scan_layers": true}'
    python benchmarks/sampling.py --beside ../another_checkout

64 samples of 64 tokens after one prompt of 512, from a model of 6 layers (width 256, 8 heads of 32,
gated MLP of 1024, tied vocabulary of 8192), float32, temperature 1, random weights. Each side is a
process of its own and they take turns. A PYTHON is that of an environment which has torch and
transformers, or google-tunix; a side without one is left out. Then, by the shapes of the cache,
what 64 samples of one long prompt take of memory.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from peers import Side, Turn, add_worker_flags, announce, median_ratio, serve, take_turns
from same_model import SMALL, hugging_face_model, hugging_face_samples, our_config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SAMPLES, PROMPT, TOKENS = 64, 512, 64
EOS = SMALL.vocabulary - 1


def prompt() -> list[int]:
    return np.random.default_rng(0).integers(2, EOS, PROMPT).tolist()


def our_model(scan_layers: bool = False) -> Any:
    from gophercite.models.transformer import Transformer

    return Transformer(our_config(scan_layers=scan_layers))


def gophercite(
    scan_layers: bool = False, rows_per_prompt: int | None = None, tokens: int = TOKENS
) -> Turn:
    import jax

    from gophercite.decoding.sampler import sample
    from gophercite.decoding.sampling_settings import SamplingSettings

    transformer = our_model(scan_layers)
    params = transformer.init(jax.random.key(0))
    settings = SamplingSettings(max_tokens=tokens)
    announce(f"jax {jax.__version__}")

    def turn(number: int) -> dict[str, float]:
        made = sample(
            transformer,
            params,
            [prompt()],
            jax.random.key(number),
            settings,
            eos_id=SMALL.vocabulary,  # never drawn: all samples have all their tokens
            pad_id=0,
            samples_per_prompt=SAMPLES,
            rows_per_prompt=rows_per_prompt,
        )
        return {"tokens": float(made.lengths.sum())}

    return turn


def hugging_face(tokens: int = TOKENS) -> Turn:
    import torch
    import transformers

    model = hugging_face_model().eval()
    announce(f"torch {torch.__version__}, transformers {transformers.__version__}, static cache")

    def turn(number: int) -> dict[str, float]:
        made = hugging_face_samples(model, prompt(), SAMPLES, tokens, number, disable_compile=True)
        return {"tokens": float(made)}

    return turn


def tunix(tokens: int = TOKENS) -> Turn:
    from importlib.metadata import version

    from flax import nnx
    from tunix.generate import sampler
    from tunix.models.llama3 import model as llama

    config = llama.ModelConfig(
        num_layers=SMALL.layers,
        vocab_size=SMALL.vocabulary,
        embed_dim=SMALL.width,
        hidden_dim=SMALL.mlp,
        num_heads=SMALL.heads,
        head_dim=SMALL.head_dim,
        num_kv_heads=SMALL.heads,
        rope_theta=10_000,
        norm_eps=1e-6,
        weight_tying=True,
    )

    class Words:
        """A tokenizer that knows one prompt."""

        def encode(self, text: str, **_: Any) -> list[int]:
            return prompt()[1:]  # the sampler adds a beginning

        def decode(self, ids: Any, **_: Any) -> str:
            return ""

        def bos_id(self) -> int:
            return 1

        def eos_id(self) -> int:
            return EOS

        def pad_id(self) -> int:
            return 0

    model = llama.Llama3(config, rngs=nnx.Rngs(0))
    cache = sampler.CacheConfig(
        cache_size=PROMPT + tokens,
        num_layers=SMALL.layers,
        num_kv_heads=SMALL.heads,
        head_dim=SMALL.head_dim,
    )
    run = sampler.Sampler(model, Words(), cache)
    announce(f"google-tunix {version('google-tunix')}, jax {version('jax')}")

    def turn(number: int) -> dict[str, float]:
        # It has no samples of one prompt: each is a prompt.
        made = run(
            ["x"] * SAMPLES,
            max_generation_steps=tokens,
            max_prompt_length=PROMPT,
            temperature=1.0,
            top_p=1.0,
            seed=number,
            eos_tokens=[SMALL.vocabulary + 5],
        )
        return {"tokens": float(sum(len(each) for each in made.tokens))}

    return turn


def cache_bytes(prompts: int, samples: int, longest: int, room: int) -> int:
    """What the keys and values of so many samples of prompts take, by the shapes of the cache."""
    import jax
    import jax.numpy as jnp

    transformer = our_model()
    shown = jax.ShapeDtypeStruct((prompts, longest), jnp.int32)
    lengths = jax.ShapeDtypeStruct((prompts,), jnp.int32)
    _, cache, _ = jax.eval_shape(
        lambda params, shown, lengths: transformer.prefill(params, shown, lengths, room, samples),
        transformer.abstract(),
        shown,
        lengths,
    )
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(cache.layers))


SIDES: dict[str, Callable[..., Turn]] = {
    "gophercite": gophercite,
    "hugging_face": hugging_face,
    "tunix": tunix,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hugging_face", metavar="PYTHON")
    parser.add_argument("--tunix", metavar="PYTHON")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=TOKENS, help=f"default: {TOKENS}")
    parser.add_argument(
        "--ours", action="append", default=[], metavar="JSON", help="settings of ours, to compare"
    )
    parser.add_argument(
        "--beside", type=Path, metavar="FOLDER", help="another checkout, whose sampler takes turns"
    )
    add_worker_flags(parser, SIDES)
    flags = parser.parse_args()
    if flags.work:
        serve(SIDES[flags.work](**flags.settings))
        return
    tokens = {"tokens": flags.tokens}
    sides = [
        Side(sys.executable, __file__, "gophercite", tokens | json.loads(settings))
        for settings in flags.ours or ["{}"]
    ]
    for name in ("hugging_face", "tunix"):
        if python := getattr(flags, name):
            sides.append(Side(python, __file__, name, tokens))
    if flags.beside:
        other = str(flags.beside / "benchmarks" / "sampling.py")
        sides.append(Side(sys.executable, other, "gophercite", tokens))
        sides[-1].name += f" of {flags.beside.name}"
    take_turns(sides, flags.rounds)
    print("| side | tokens a second, median | time / ours | peak GiB | |")
    print("|---|---|---|---|---|")
    for side in sides:
        rate = statistics.median(turn["tokens"] / turn["seconds"] for turn in side.turns)
        print(
            f"| {side.name} | {rate:.0f} | {median_ratio(side, sides[0]):.2f} "
            f"| {side.turns[-1]['peak_gib']:.2f} | {side.note} |"
        )
    together, copies = (cache_bytes(*shape, 3840, 256) for shape in ((1, SAMPLES), (SAMPLES, 1)))
    print(
        f"\nKeys and values of {SAMPLES} samples of 256 tokens after a prompt of 3840: "
        f"{together / 2**20:.0f} MiB, as {SAMPLES} copies {copies / 2**20:.0f} MiB: "
        f"{together / copies:.3f}"
    )


if __name__ == "__main__":
    main()
