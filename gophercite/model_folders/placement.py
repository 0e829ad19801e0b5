"""Shardings for a model folder's parameters over several devices, before they are read."""

from etils import epath

from gophercite.model_folders.folder import read_description
from gophercite.models.parameters import HEADS, Params
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner


def folder_shardings(
    folder: epath.PathLike, partitioner: Partitioner, *, with_heads: bool = False
) -> Params:
    """Shardings for `load_model`, or `load_reward_model`, to read a model directly to a mesh.

    Args:
      folder: a model folder or a training run's folder.
      partitioner: the mesh.
      with_heads: whether the model is a reward model.

    Returns:
      A sharding for each parameter, in a tree like the parameters.

    Raises:
      ModelFolderError: the folder holds no model.
      ValueError: the mesh's model axis does not divide the number of attention heads, so that most
        of the parameters would be replicated on each device.
    """
    config = read_description(folder).config
    cuts = partitioner.mesh.shape["model"]
    if config.num_heads % cuts:
        raise ValueError(
            f"{folder}: the model's {config.num_heads} attention heads can't be split evenly over "
            f"{cuts} devices; use a number that divides them"
        )
    transformer = Transformer(config)
    axes, shapes = transformer.logical_axes(), transformer.abstract()
    if with_heads:
        reward = RewardModel(transformer)
        axes, shapes = (
            {**axes, HEADS: reward.heads_axes()},
            {**shapes, HEADS: reward.abstract_heads()},
        )
    shardings: Params = partitioner.shardings(axes, shapes)
    return shardings
