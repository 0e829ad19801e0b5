"""One of two processes that read models together: `read_together.py PROCESS PORT OUTPUT FOLDER …`.

Writes into OUTPUT the tensors of each model that this process has checked, and at last how much it
has read, or why it can't be read.
Nothing is printed: gloo's own lines may land in the middle of another line.
"""

# ruff: noqa: E402  garbage is not looked for while libraries are imported

import gc
import os
import pathlib
import sys
from typing import TextIO

gc.disable()  # what is imported stays
os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from gophercite.model_folders.folder import load_model, read_description
from gophercite.model_folders.placement import folder_shardings
from gophercite.model_folders.tensors import TensorFileError, TensorReader
from gophercite.partitioning import Partitioner, make_mesh


def main(process: int, port: str, output: TextIO, folders: list[str]) -> None:
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, process)
    check = TensorReader.check

    def said(self: TensorReader, name: str, shape: tuple[int, ...]) -> None:
        output.write(f"checks {name}\n")  # in one call: threads check several tensors
        check(self, name, shape)

    TensorReader.check = said  # type: ignore[method-assign]
    for folder in folders:
        read(folder, output)


def read(folder: str, output: TextIO) -> None:
    places = folder_shardings(folder, Partitioner(make_mesh(fsdp=4)))
    try:
        model = load_model(folder, shardings=places)
    except TensorFileError as error:
        print("refused", error, file=output)
        return
    assert len(read_description(folder).parameters or ()) > 3
    print("read", sum(leaf.nbytes for leaf in jax.tree.leaves(model.params)), file=output)


if __name__ == "__main__":
    with pathlib.Path(sys.argv[3]).open("w") as output:
        main(int(sys.argv[1]), sys.argv[2], output, sys.argv[4:])
