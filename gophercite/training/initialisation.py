"""Sources of a run's initial parameters: random numbers, or a trained model."""

import dataclasses
import zlib

import jax
from etils import epath
from jaxtyping import Array, Key

from gophercite.learning.a2c import A2CLearner
from gophercite.learning.ppo import PPOLearner
from gophercite.model_folders.adapted import MODEL
from gophercite.model_folders.checkpoint_files import Base
from gophercite.model_folders.folder import (
    load_model,
    load_reward_model,
    model_digest,
    read_description,
)
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import ADAPTERS, HEADS, REWARD_MODEL, VALUE_HEAD, Params
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer

# Fields on how to compute a model may change between runs; the architecture may not.
_FREE_FIELDS = frozenset(
    {"dtype", "param_dtype", "remat_every", "scan_layers"}
    | {"attention_kernel", "attention_block", "attention_remat", "elementwise_remat"}
)


def other_architecture(stored: TransformerConfig, here: TransformerConfig) -> str | None:
    """The first field by which a run's model is another one than what is stored.

    Args:
      stored: the stored model's architecture.
      here: the run's.

    Returns:
      "FIELD = VALUE, but this run's model has VALUE"; None if they differ at most in how they are
      computed.
    """
    for field in dataclasses.fields(TransformerConfig):
        there, now = getattr(stored, field.name), getattr(here, field.name)
        if there != now and field.name not in _FREE_FIELDS:
            return f"{field.name} = {there!r}, but this run's model has {now!r}"
    return None


def count_frozen(config: TransformerConfig, fraction: float) -> int:
    """The number of first layers to freeze.

    Args:
      config: the architecture.
      fraction: fraction of its layers, in [0, 1); 0.6 for GopherCite's reinforcement learning.

    Returns:
      The nearest whole number.

    Raises:
      ValueError: the fraction is out of range.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"frozen fraction = {fraction}: must be at least 0 and below 1")
    return min(round(fraction * config.num_layers), config.num_layers - 1)


@dataclasses.dataclass(frozen=True)
class RandomInitialisation:
    """Random parameters.

    Attributes:
      transformer: the architecture.
      frozen_layers: number of layers in the frozen stack; the parameters don't depend on it.
    """

    transformer: Transformer
    frozen_layers: int = 0

    def __post_init__(self) -> None:
        """Refuses adapters, because checkpoints would not hold their base model.

        Raises:
          ValueError: the transformer has adapters.
        """
        if self.transformer.lora is not None:
            raise ValueError(
                "Transformer.lora adapts a model that is already trained: set INITIAL_CHECKPOINT "
                "to its folder"
            )

    def shapes(self) -> Params:
        """Shapes and dtypes of the parameters."""
        return self.transformer.abstract(self.frozen_layers)

    def parameters(self, key: Key[Array, ""], shardings: Params) -> Params:
        """Draws the parameters; each device draws its shards."""
        draw = jax.jit(self.transformer.init, static_argnums=1, out_shardings=shardings)
        return draw(key, self.frozen_layers)

    def base(self) -> None:
        """None: there are no adapters."""


@dataclasses.dataclass(frozen=True)
class PretrainedInitialisation:
    """The parameters of a model folder, or of a run's best checkpoint; adapters are random.

    Attributes:
      transformer: the architecture, which must equal the folder's.
      folder: a model folder or a training run's folder.
      frozen_layers: number of layers in the frozen stack.
    """

    transformer: Transformer
    folder: epath.PathLike
    frozen_layers: int = 0

    def shapes(self) -> Params:
        """Shapes and dtypes of the parameters.

        Raises:
          ModelFolderError: the folder holds no model.
          ValueError: it holds another architecture; the message names the field.
        """
        stored = read_description(self.folder).config
        if difference := other_architecture(stored, self.transformer.config):
            raise ValueError(f"{self.folder} holds a model with {difference}")
        return self.transformer.abstract(self.frozen_layers)

    def parameters(self, key: Key[Array, ""], shardings: Params) -> Params:
        """Reads the parameters, each device its shards; only adapters are random."""
        params = load_model(
            self.folder,
            param_dtype=self.transformer.config.param_dtype,
            frozen_layers=self.frozen_layers,
            shardings={name: part for name, part in shardings.items() if name != ADAPTERS},
        ).params
        if self.transformer.lora is None:
            return params
        draw = jax.jit(
            self.transformer.init_adapters, static_argnums=1, out_shardings=shardings[ADAPTERS]
        )
        key = jax.random.fold_in(key, zlib.crc32(ADAPTERS.encode()))
        return {**params, ADAPTERS: draw(key, self.frozen_layers)}

    def base(self) -> Base | None:
        """Identifies the model if adapters are trained; None if the model itself is trained.

        Raises:
          ModelFolderError, CheckpointError: the folder holds no model, or a damaged one.
        """
        lora = self.transformer.lora
        if lora is None:
            return None
        return Base(lora.to_json(), {MODEL: model_digest(self.folder)})


@dataclasses.dataclass(frozen=True)
class RewardInitialisation:
    """A language model's parameters with random heads, for a reward model.

    Attributes:
      trunk: source of the language model's parameters.
    """

    trunk: RandomInitialisation | PretrainedInitialisation

    @property
    def folder(self) -> epath.PathLike | None:
        """The folder of the trunk's parameters; None if they are random."""
        return self.trunk.folder if isinstance(self.trunk, PretrainedInitialisation) else None

    def shapes(self) -> Params:
        """Shapes and dtypes of the parameters.

        Raises:
          ModelFolderError, ValueError: as for the trunk.
        """
        return {**self.trunk.shapes(), HEADS: self._model.abstract_heads()}

    def parameters(self, key: Key[Array, ""], shardings: Params) -> Params:
        """Reads or draws the trunk and draws the heads, each device its shards."""
        trunk_key, heads_key = jax.random.split(key)
        trunk_shardings = {name: part for name, part in shardings.items() if name != HEADS}
        trunk = self.trunk.parameters(trunk_key, trunk_shardings)
        draw = jax.jit(self._model.init_heads, out_shardings=shardings[HEADS])
        heads = draw(heads_key)
        return {**trunk, HEADS: heads}

    def base(self) -> Base | None:
        """Identifies the trunk if adapters are trained; None if the trunk itself is trained."""
        return self.trunk.base()

    @property
    def _model(self) -> RewardModel:
        return RewardModel(self.trunk.transformer)


@dataclasses.dataclass(frozen=True)
class ActorCriticInitialisation:
    """A policy, its initial parameters as teacher, a reward model, and a random value head.

    Attributes:
      learner: determines the policy's trained parts and the additional parts.
      policy: source of the policy's parameters.
      reward_model: folder of a reward model or of its training run.
    """

    learner: A2CLearner | PPOLearner
    policy: RandomInitialisation | PretrainedInitialisation
    reward_model: epath.PathLike

    @property
    def folder(self) -> epath.PathLike | None:
        """The folder of the policy's parameters; None if they are random."""
        return self.policy.folder if isinstance(self.policy, PretrainedInitialisation) else None

    def shapes(self) -> Params:
        """Shapes and dtypes of all parts.

        Raises:
          ModelFolderError, ValueError: as for the policy.
        """
        judge = self.learner.reward_model
        reward_model = {**judge.transformer.abstract(), HEADS: judge.abstract_heads()}
        value_head = self.learner.value_head.abstract()
        return jax.eval_shape(
            self.learner.with_extra_parts, self.policy.shapes(), reward_model, value_head
        )

    def parameters(self, key: Key[Array, ""], shardings: Params) -> Params:
        """Reads or draws the policy, reads the reward model, draws the value head."""
        policy_key, value_key = jax.random.split(key)
        policy_shardings = self.learner.policy_parts(shardings)
        policy = self.policy.parameters(policy_key, policy_shardings)
        draw = jax.jit(self.learner.value_head.init, out_shardings=shardings[VALUE_HEAD])
        reward_model = load_reward_model(
            self.reward_model,
            param_dtype=self.learner.reward_model.transformer.config.param_dtype,
            shardings=shardings[REWARD_MODEL],
        )
        return self.learner.with_extra_parts(policy, reward_model.params, draw(value_key))

    def base(self) -> Base | None:
        """Identifies the policy and the reward model if adapters are trained; otherwise None."""
        base = self.policy.base()
        if base is None:
            return None
        digests = {**base.digests, REWARD_MODEL: model_digest(self.reward_model)}
        return dataclasses.replace(base, digests=digests)
