"""Has a language model learned to copy? Stretches of pages, shown twice.

    python benchmarks/copying.py --model runs/real_questions/pretrain \\
      --documents runs/real_questions/data/wikipedia/documents_test.jsonl

Prints what a token costs at the first and at the second showing, in nats: a model that copies pays
for the first one only.
"""

import argparse
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite.model_folders.folder import Model, load_model
from gophercite.records import Document, read

_SKIPPED = 20  # tokens at a page's start, which often repeat its title


def costs(model: Model, rows: np.ndarray) -> tuple[float, float]:
    """Mean nats a token of the rows when they are first shown, and when shown again."""
    twice = jnp.asarray(np.concatenate([rows, rows], axis=1))
    places = jnp.broadcast_to(jnp.arange(twice.shape[1]), twice.shape)
    hidden, _ = model.transformer.apply(model.params, twice, places, jnp.ones_like(twice))
    log_probs = jax.nn.log_softmax(model.transformer.logits(model.params, hidden[:, :-1]))
    nats = -jnp.take_along_axis(log_probs, twice[:, 1:, None], axis=2)[..., 0]
    length = rows.shape[1]
    return float(nats[:, : length - 1].mean()), float(nats[:, length:].mean())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="model folder, or folder of a run")
    parser.add_argument("--documents", required=True, help="documents that it never saw")
    parser.add_argument("--pages", type=int, default=64, help="how many are taken (default: 64)")
    flags = parser.parse_args()
    model = load_model(flags.model)
    pages = [model.vocabulary.encode(page.text) for page in read(flags.documents, Document)]
    print("| tokens shown twice | pages | first showing, nats a token | second |")
    print("|---|---|---|---|")
    for length in (24, 60, 150):
        rows = [page[_SKIPPED:][:length] for page in pages if len(page) >= _SKIPPED + length]
        rows = rows[: flags.pages]
        first, second = costs(model, np.array(rows, np.int32))
        print(f"| {length} | {len(rows)} | {first:.2f} | {second:.2f} |")


if __name__ == "__main__":
    main()
