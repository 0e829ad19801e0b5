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
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from peers import Side, Turn, add_worker_flags, announce, median_ratio, serve, take_turns
from same_model import SMALL, hugging_face_model, our_config, training_batch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ROWS, LENGTH = 8, 512


def tokens(seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return draw.integers(2, SMALL.vocabulary, (ROWS, LENGTH + 1)).astype(np.int32)


def ours(
    microbatches: int = 4,
    remat_every: int = 0,
    scan_layers: bool = False,
    block: int = 128,
    elementwise_remat: bool = True,
) -> Turn:
    import jax

    from gophercite.learning.optimizers import adam
    from gophercite.learning.supervised import SupervisedLearner
    from gophercite.models.transformer import Transformer
    from gophercite.planning.compiled import costs
    from gophercite.training.program import compile_lowered

    config = our_config(
        attention_block=block,
        attention_remat=False,
        remat_every=remat_every,
        scan_layers=scan_layers,
        elementwise_remat=elementwise_remat,
    )
    learner = SupervisedLearner(
        Transformer(config),
        adam(weight_decay=1e-4),
        lambda step: 1e-3,
        microbatches=microbatches,
    )
    params = learner.transformer.init(jax.random.key(0))
    state = learner.init_state(params, jax.random.key(1))

    def batch(seed: int) -> dict[str, np.ndarray]:
        return training_batch(tokens(seed))

    lowered = jax.jit(learner.update, donate_argnums=0).lower(state, batch(0))
    step = compile_lowered(lowered)
    counted, needed = costs(step.as_text()).flops, config.training_flops(ROWS, LENGTH)
    note = f"{counted / 1e9:.1f} GFLOP a step compiled, {needed / 1e9:.1f} needed"
    announce(f"{note}: {counted / needed:.3f}")

    def run(seed: int) -> dict[str, float]:
        nonlocal state
        state, metrics = step(state, batch(seed))
        return {"loss": float(metrics["loss/nll"])}

    return run


def hugging_face() -> Turn:
    import torch
    import transformers

    model = hugging_face_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    announce(f"torch {torch.__version__}, transformers {transformers.__version__}")

    def run(seed: int) -> dict[str, float]:
        row = torch.from_numpy(tokens(seed).astype(np.int64))[:, :LENGTH]
        loss = model(input_ids=row, labels=row).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return {"loss": loss.item()}

    return run


SIDES: dict[str, Callable[..., Turn]] = {
    "gophercite": ours,
    "hugging_face": hugging_face,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer_python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--ours", action="append", default=[], metavar="JSON", help="settings of ours, to compare"
    )
    add_worker_flags(parser, SIDES)
    flags = parser.parse_args()
    if flags.work:
        serve(SIDES[flags.work](**flags.settings))
        return
    peer = Side(flags.peer_python, __file__, "hugging_face", {})
    sides = [peer]
    for settings in flags.ours or ["{}"]:
        sides.append(Side(sys.executable, __file__, "gophercite", json.loads(settings)))
    take_turns(sides, flags.rounds)
    print("| side | s a step, median | time / peer | peak GiB | memory / peer | loss | |")
    print("|---|---|---|---|---|---|---|")
    for side in sides:
        seconds, last = statistics.median(turn["seconds"] for turn in side.turns), side.turns[-1]
        print(
            f"| {side.name} | {seconds:.2f} | {median_ratio(side, peer):.2f} "
            f"| {last['peak_gib']:.2f} | {last['peak_gib'] / peer.turns[-1]['peak_gib']:.2f} "
            f"| {last['loss']:.2f} | {side.note} |"
        )


if __name__ == "__main__":
    main()
