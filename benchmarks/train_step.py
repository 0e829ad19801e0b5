"""Our training step beside Hugging Face's, in one run: time, memory, operations.

    pip install -e ".[train,benchmarks]"
    python benchmarks/train_step.py [--peer_python PYTHON] [--rounds 9]

One model (6 layers, width 256, 8 heads of 32, gated MLP of 1024, tied vocabulary of 8192), one
batch (8 × 512 tokens), float32, AdamW. Each side is a process of its own; they take turns, a step
each, so that both see the same machine, and the ratio is the median of the turns' ratios.
`--peer_python` runs the peer in another environment that has torch and transformers.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

LAYERS, WIDTH, HEADS, HEAD_DIM, MLP, VOCAB, ROWS, LENGTH = 6, 256, 8, 32, 1024, 8192, 8, 512


def tokens(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(2, VOCAB, (ROWS, LENGTH + 1)).astype(np.int32)


def ours(
    microbatches: int = 4, remat_every: int = 0, scan_layers: bool = False, block: int = 128
) -> Callable[[int], float]:
    import jax
    from hlo_flops import dot_flops

    from gophercite.learning.optimizers import adam
    from gophercite.learning.supervised import SupervisedLearner
    from gophercite.models.config import TransformerConfig
    from gophercite.models.transformer import Transformer
    from gophercite.training.program import compile_lowered

    config = TransformerConfig(
        VOCAB,
        WIDTH,
        LAYERS,
        HEADS,
        HEAD_DIM,
        d_ff=MLP,
        activation="silu",
        gated_mlp=True,
        position="rope",
        dtype="float32",
        attention_block=block,
        attention_remat=False,
        remat_every=remat_every,
        scan_layers=scan_layers,
    )
    learner = SupervisedLearner(
        Transformer(config),
        adam(weight_decay=1e-4),
        lambda step: 1e-3,
        microbatches=microbatches,
    )
    params = learner.transformer.init(jax.random.key(0))
    state = learner.init_state(params, jax.random.key(1))
    places = np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1))

    def batch(seed: int) -> dict[str, np.ndarray]:
        row = tokens(seed)
        return {
            "tokens": row[:, :-1],
            "targets": row[:, 1:],
            "weights": np.ones((ROWS, LENGTH), np.float32),
            "positions": places,
            "segments": np.ones((ROWS, LENGTH), np.int32),
        }

    lowered = jax.jit(learner.update, donate_argnums=0).lower(state, batch(0))
    step = compile_lowered(lowered)
    counted, needed = dot_flops(step.as_text()), config.training_flops(ROWS, LENGTH)
    note = f"{counted / 1e9:.1f} GFLOP a step compiled, {needed / 1e9:.1f} needed"
    print(json.dumps({"note": f"{note}: {counted / needed:.3f}"}), flush=True)

    def run(seed: int) -> float:
        nonlocal state
        state, metrics = step(state, batch(seed))
        return float(metrics["loss/nll"])

    return run


def hugging_face() -> Callable[[int], float]:
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=MLP,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    model = transformers.LlamaForCausalLM(config).float().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    note = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(json.dumps({"note": note}), flush=True)

    def run(seed: int) -> float:
        row = torch.from_numpy(tokens(seed).astype(np.int64))[:, :LENGTH]
        loss = model(input_ids=row, labels=row).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return run


SIDES: dict[str, Callable[..., Callable[[int], float]]] = {
    "gophercite": ours,
    "hugging_face": hugging_face,
}


def work(side: str, settings: dict[str, int]) -> None:
    """A worker: one step for each line of input, answered with its seconds and the peak memory."""
    run = SIDES[side](**settings)
    for line in sys.stdin:
        begun = time.perf_counter()
        loss = run(int(line))
        seconds = time.perf_counter() - begun
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({"seconds": seconds, "loss": loss, "peak_gib": peak}), flush=True)


class Worker:
    """A side in a process of its own."""

    def __init__(self, python: str, side: str, settings: dict[str, int]):
        command = [python, __file__, "--work", side, "--settings", json.dumps(settings)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.name = " ".join([side, *(f"{k}={v}" for k, v in settings.items())])
        self.note = self._answer()["note"]

    def step(self, seed: int) -> dict[str, float]:
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit("a side ended early; its message is above")
        return json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer_python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--ours", action="append", default=[], metavar="JSON", help="settings of ours, to compare"
    )
    parser.add_argument("--work", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, default={}, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.work:
        work(flags.work, flags.settings)
        return
    workers = [Worker(flags.peer_python, "hugging_face", {})]
    for settings in flags.ours or ["{}"]:
        workers.append(Worker(sys.executable, "gophercite", json.loads(settings)))
    for warm_up in range(2):
        for worker in workers:
            worker.step(warm_up)
    turns = [[worker.step(2 + i) for worker in workers] for i in range(flags.rounds)]
    print("| side | s a step, median | time / peer | peak GiB | memory / peer | loss | |")
    print("|---|---|---|---|---|---|---|")
    peer_peak = turns[-1][0]["peak_gib"]
    for i, worker in enumerate(workers):
        seconds = statistics.median(turn[i]["seconds"] for turn in turns)
        ratio = statistics.median(turn[i]["seconds"] / turn[0]["seconds"] for turn in turns)
        last = turns[-1][i]
        print(
            f"| {worker.name} | {seconds:.2f} | {ratio:.2f} | {last['peak_gib']:.2f} "
            f"| {last['peak_gib'] / peer_peak:.2f} | {last['loss']:.2f} | {worker.note} |"
        )


if __name__ == "__main__":
    main()
