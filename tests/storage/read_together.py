"""One of two processes that read a model together: `read_together.py FOLDER PROCESS PORT`.

Prints the tensors that this process has checked, and why the model can't be read.
"""

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from gophercite.models.folder import load_model, read_description
from gophercite.models.placement import folder_shardings
from gophercite.models.tensors import TensorFileError, TensorReader
from gophercite.partitioning import Partitioner, make_mesh


def main() -> None:
    folder, process, port = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    jax.config.update("jax_num_cpu_devices", 2)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", 2, process)
    check = TensorReader.check

    def said(self: TensorReader, name: str, shape: tuple[int, ...]) -> None:
        print("checks", name)
        check(self, name, shape)

    TensorReader.check = said  # type: ignore[method-assign]
    places = folder_shardings(folder, Partitioner(make_mesh(fsdp=4)))
    try:
        model = load_model(folder, shardings=places)
    except TensorFileError as error:
        print("refused", error)
        return
    assert len(read_description(folder).parameters or ()) > 3
    print("read", sum(leaf.nbytes for leaf in jax.tree.leaves(model.params)))


if __name__ == "__main__":
    main()
