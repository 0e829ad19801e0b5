"""A model's parameters in host memory, part by part: for code that can't hold the entire model."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from etils import epath

from gophercite.model_folders.adapted import Adapted, find_adapters
from gophercite.model_folders.checkpoint_files import name_leaves, read_parameters
from gophercite.model_folders.description import Description, model_digest, read_base
from gophercite.model_folders.folder_contents import compare_names, find_checkpoint
from gophercite.model_folders.tensors import TensorReader
from gophercite.models.parameters import ADAPTERS, TRAINED, Params
from gophercite.models.transformer import Transformer

Index = tuple[int | slice, ...]


class HostParameters:
    """The parameters of a model folder, or of the best checkpoint of a training run's folder.

    Every tensor is checked against its digest: a model folder's at once, a run's when it is read.

    Args:
      folder: the folder, on a disk or in a bucket.
      description: the contents of its `model.json`.
      together: number of parameters that are read alternately; of a run, this many are held in
        memory at once.

    Attributes:
      shapes: shapes of the parameters by name, with one stack of layers.

    Raises:
      ModelFolderError: the parameters belong to another architecture, or there are none.
      TensorFileError: a file of parameters is missing, truncated or altered.
      CheckpointError: a run's checkpoint is damaged.
    """

    def __init__(self, folder: epath.PathLike, description: Description, together: int = 1) -> None:
        root = epath.Path(folder)
        abstract = Transformer(description.config).abstract()
        self.shapes = {name: leaf.shape for name, leaf in name_leaves(abstract).items()}
        self._read: Callable[[str, Index], np.ndarray]
        if description.parameters is not None:
            self._read = _Files(root, description, self.shapes)
        elif description.base is not None:
            self._read = _Merged(root, description, abstract, together)
        else:
            self._read = _Checkpoint(root, abstract, together)

    def part(self, name: str, index: Index) -> np.ndarray:
        """A part of a parameter, in the stored dtype.

        A run's parameters are read entirely, and kept until others are requested.

        Args:
          name: one of `shapes`.
          index: index of the part.

        Returns:
          The values.

        Raises:
          TensorFileError, CheckpointError: see the class.
        """
        return self._read(name, index)


class _Files:
    """The tensors of a model folder."""

    def __init__(
        self, root: epath.Path, description: Description, shapes: dict[str, tuple[int, ...]]
    ) -> None:
        stored = description.parameters or {}
        compare_names(root, shapes.keys(), stored.keys())
        self._shapes = shapes
        self._reader = TensorReader(root, stored)
        self._reader.check_all(shapes)

    def __call__(self, name: str, index: Index) -> np.ndarray:
        return self._reader.part(name, self._shapes[name], index)


class _Checkpoint:
    """The arrays of a run's best checkpoint."""

    def __init__(self, root: epath.Path, abstract: Params, together: int) -> None:
        self._root = root
        self._step = find_checkpoint(root, abstract)
        self._together = together
        self._held: dict[str, np.ndarray] = {}  # the oldest first

    def __call__(self, name: str, index: Index) -> np.ndarray:
        if name not in self._held:
            if len(self._held) == self._together:
                del self._held[next(iter(self._held))]
            self._held[name] = np.asarray(self._read(name))
        return self._held[name][index]

    def _read(self, name: str) -> jax.Array:
        wanted: Any = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        for key in reversed(name.split("/")):
            wanted = {key: wanted}
        (array,) = jax.tree.leaves(read_parameters(self._root, self._step, wanted))
        return array


class _Merged:
    """The parameters of a base model merged with the adapters of a run's best checkpoint.

    The base model's parameters have the dtype that the run used. The sums are computed in float32
    and rounded to that dtype.
    """

    def __init__(
        self, root: epath.Path, description: Description, abstract: Params, together: int
    ) -> None:
        base = description.base
        assert base is not None
        of_base = read_base(root, description)
        adapted = find_adapters(root, abstract, base, model_digest(base))
        self._base = HostParameters(base, of_base, together)
        self._dtype = np.dtype(description.config.param_dtype)
        self._scale = np.float32(adapted.lora.scale)
        self._adapters = _read_adapters(root, adapted)
        self._layers = description.config.num_layers

    def __call__(self, name: str, index: Index) -> np.ndarray:
        part = self._base.part(name, index).astype(self._dtype, copy=False)
        adapter = self._adapters.get(name)
        if adapter is None:
            return part
        layer, *rest = index
        if isinstance(layer, slice):
            layers = range(*layer.indices(self._layers))
            return np.stack([self(name, (each, *rest)) for each in layers])
        a, b = adapter["a"], adapter["b"]
        layer -= self._layers - len(a)
        if layer < 0:  # below the adapted ones
            return part
        rows, columns = (*rest, slice(None), slice(None))[:2]
        product = a[layer, rows] @ b[layer][:, columns]
        total = part.astype(np.float32) + self._scale * product
        return total.astype(self._dtype)


def _read_adapters(root: epath.Path, adapted: Adapted) -> dict[str, dict[str, np.ndarray]]:
    """A run's adapters, by the names of the parameters that they adapt."""
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    places = jax.tree.map(lambda _: here, {ADAPTERS: adapted.shapes[ADAPTERS]})
    adapters = read_parameters(root, adapted.step, places)[ADAPTERS]
    return {
        f"{TRAINED}/{name}": {key: np.asarray(array) for key, array in adapter.items()}
        for name, adapter in adapters.items()
    }
