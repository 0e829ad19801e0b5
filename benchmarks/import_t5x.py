"""Time and memory of importing a T5X checkpoint of any size.

A decoder-only network's parameters (noise, in float32) are written to a temporary folder as T5X
writes them, in chunks of at most 64 MiB or, as a run on one device does, each array in one chunk:

    python benchmarks/import_t5x.py
    python benchmarks/import_t5x.py --one_chunk

The import has a process of its own; its memory is what `import_weights.py` says.
"""

import argparse
import functools
import pathlib
import tempfile
from unittest import mock

import numpy as np
from import_weights import MEBIBYTE, measure, noise


def write(folder: pathlib.Path, options: argparse.Namespace) -> tuple[int, int]:
    """Writes a run's folder; gives the bytes of all parameters and of the largest."""
    from gophercite.model_folders.checkpoint_files import name_leaves
    from gophercite.model_folders.tensors import Stream
    from gophercite.models.transformer import Transformer
    from gophercite.vocabularies import train_sentencepiece
    from gophercite.weights import t5x_export
    from gophercite.weights.names import LAYERS
    from gophercite.weights.t5x_architecture import Network, decoder_only, t5x_names

    network = Network(("gelu", "linear"))
    config = decoder_only(
        network,
        tied_embeddings=True,
        vocab_size=options.rows,
        d_model=options.width,
        num_layers=options.layers,
        num_heads=options.width // 64,
        head_dim=64,
        d_ff=4 * options.width,
    )
    places = t5x_names(network.activations).places
    dtype, streams = np.dtype(np.float32), {}
    for name, leaf in name_leaves(Transformer(config).abstract()).items():
        stacked = name.startswith(LAYERS)
        shape = leaf.shape[1:] if stacked else leaf.shape
        for layer in range(options.layers) if stacked else range(1):
            chunks = functools.partial(noise, shape, dtype)
            streams[places[name].tensor.format(layer)] = Stream(shape, dtype, chunks)
    (folder / "checkpoint_1").mkdir()
    rows = (lambda shape: 1 << 40) if options.one_chunk else t5x_export.rows_at_once
    with mock.patch.object(t5x_export, "rows_at_once", rows):
        t5x_export.write_checkpoint(folder / "checkpoint_1", streams, 1)
    settings = "network.TransformerConfig.mlp_activations = ('gelu', 'linear')\n"
    (folder / "config.gin").write_text(settings)
    train_sentencepiece(["a text"] * 9, 300).save(folder)
    sizes = [stream.nbytes for stream in streams.values()]
    return sum(sizes), max(sizes)


def bring_in(folder: pathlib.Path) -> None:
    from gophercite.weights.t5x import import_t5x

    vocabulary = folder / "vocabulary.model"
    import_t5x(folder / "checkpoint_1", folder / "model", vocabulary)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=32_128, help="of the embedding")
    parser.add_argument("--width", type=int, default=1024, help="of the model, a multiple of 64")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--one_chunk", action="store_true", help="each array in one zarr chunk")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        size, largest = write(folder, options)
        print(f"{size / MEBIBYTE:.0f} MiB, the largest array {largest / MEBIBYTE:.0f} MiB")
        print(f"import: {measure(bring_in, folder)}")


if __name__ == "__main__":
    main()
