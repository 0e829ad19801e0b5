"""Builds the steps that planning compiles from gin files, without data or models if possible."""

import dataclasses
import inspect
from typing import Any

import configuration
import gin
import gin_files
import jax
import jax.numpy as jnp
import numpy as np
from planned_settings import (
    build,
    kind_of,
    names_folder,
    parameter_of,
    part_of,
    reference,
    setting,
    value_of_macro,
)
from planned_tables import everywhere, fault_tables, quote_tables

from gophercite.decoding.decode_loop import decode
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.learning.a2c import A2CLearner
from gophercite.learning.experience import nothing, to_batch
from gophercite.learning.ppo import PPOLearner
from gophercite.learning.reward import RewardLearner
from gophercite.learning.rollouts import Rewards
from gophercite.learning.supervised import SupervisedLearner
from gophercite.model_folders.folder import read_description
from gophercite.models.config import TransformerConfig
from gophercite.models.parameters import HEADS, Params, frozen_layers
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner, make_mesh
from gophercite.planning.chips import Topology
from gophercite.planning.needed_flops import (
    a2c_flops,
    gradient_flops,
    ppo_flops,
    sampling_flops,
)
from gophercite.planning.plan import Step, device_bytes, update_step
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.training.feed import batch_sharding, refuse_uneven
from gophercite.training.initialisation import count_frozen
from gophercite.training.program import Program

_AXES = ("data", "fsdp", "model")


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """A run's step on a slice.

    Attributes:
      step: what is compiled.
      parameters: number of the model's parameters.
    """

    step: Step
    parameters: int


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Batch inference to plan.

    Attributes:
      prompts: number of prompts at a time.
      samples: number of samples per prompt.
      length: number of tokens per prompt.
      max_tokens: number of tokens per sample.
      constrained: whether samples are under the quote constraint.
      track_faults: whether faults are tracked while sampling.
      slots: number of prompts that are sampled at a time while the others wait; None for all.
    """

    prompts: int
    samples: int
    length: int
    max_tokens: int
    constrained: bool = True
    track_faults: bool = False
    slots: int | None = None


def planned_run(
    topology: Topology,
    reward_model: TransformerConfig | None = None,
    sampling: Sampling | None = None,
) -> PlannedRun:
    """Builds what gin files describe for a slice.

    Training is built from shapes alone, without data; reinforcement learning, too, unless its
    models are folders on this machine: then it is built as it would be trained, with its models and
    its first batch.

    Args:
      topology: the slice.
      reward_model: the reward model's architecture, if `REWARD_MODEL` is not a folder; by default
        the policy's.
      sampling: plans sampling with the gin files' model instead of training.

    Raises:
      ValueError: the slice can't be divided in this way, or something is missing.
    """
    partitioner = Partitioner(_mesh(topology))
    for axis, size in (("data", 1), ("fsdp", -1), ("model", 1)):
        gin.bind_parameter(f"partitioner.{axis}", size)  # for what is built on this machine
    architecture = reference("Transformer.config")
    if kind_of(architecture) == "model_config" and parameter_of(architecture, "folder") is None:
        raise ValueError("model_config.folder = None: the architecture is read from this folder")
    if sampling is not None:
        return _sampled(partitioner, sampling)
    learner = kind_of(reference("Run.learner"))
    if learner in ("SupervisedLearner", "RewardLearner"):
        return _of_shapes(partitioner)
    if learner == "PPOLearner":
        return _ppo(partitioner, reward_model)
    if names_folder("INITIAL_CHECKPOINT") and names_folder("REWARD_MODEL"):
        return _built(partitioner)
    return _actor_critic(partitioner, reward_model)


def set_remat(every: int) -> None:
    """Sets how many layers share one rematerialisation group, in whatever makes the architecture.

    Args:
      every: `TransformerConfig.remat_every`.
    """
    gin.bind_parameter(f"{reference('Transformer.config').scoped_selector}.remat_every", every)


def model_of(gin_file: str) -> TransformerConfig:
    """The architecture that a gin file describes, such as gin_configs/rm_gopher_7b.gin.

    Afterwards the configuration is empty.

    Raises:
      ConfigurationError: the file is missing or wrong.
      ValueError: it describes no model.
    """
    gin_files.load([gin_file], {}, [], unset=[])
    config = _architecture()
    gin.clear_config()
    return config


def _mesh(topology: Topology) -> jax.sharding.Mesh:
    cuts = {axis: setting(f"partitioner.{axis}") for axis in _AXES}
    sizes = {axis: size for axis, size in cuts.items() if size is not None}
    return make_mesh(**sizes, devices=topology.devices)


def _architecture() -> TransformerConfig:
    """The configuration's model; one that is read from a missing folder can't be known."""
    config: TransformerConfig = gin.get_configurable(Transformer)().config
    return config


# --- Supervised fine-tuning and reward models ---


def _of_shapes(partitioner: Partitioner) -> PlannedRun:
    if not names_folder("INITIAL_CHECKPOINT"):  # its values don't matter; its architecture may
        made_by = reference("Run.initialisation")
        gin.bind_parameter(f"{made_by.scoped_selector}.folder", None)
    learner = build("Run.learner")
    initialisation = build("Run.initialisation")
    config = learner.transformer.config
    if isinstance(learner, RewardLearner):
        rows, length = (_count(name) for name in ("batch_size", "length"))
        shapes = {
            "tokens": ((rows, 2, length), jnp.int32),
            "lengths": ((rows, 2), jnp.int32),
            "preferred": ((rows,), jnp.float32),
            "preferred_weights": ((rows,), jnp.float32),
            "supported_and_plausible": ((rows, 2), jnp.float32),
            "label_weights": ((rows, 2), jnp.float32),
        }
        read, logits = 2 * rows, 0
    else:
        assert isinstance(learner, SupervisedLearner)
        rows, length = (_count(name) for name in ("batch_size", "length"))
        names = ("tokens", "targets", "positions", "segments")
        shapes = dict.fromkeys(names, ((rows, length), jnp.int32))
        shapes["weights"] = ((rows, length), jnp.float32)
        read, logits = rows, length
    refuse_uneven(partitioner, rows)
    batch = {
        name: _rows(partitioner, jax.ShapeDtypeStruct(shape, dtype))
        for name, (shape, dtype) in shapes.items()
    }
    frozen = frozen_layers(initialisation.shapes())
    needed = gradient_flops(learner, frozen, read, length, read=logits)
    step = update_step(Program(learner, initialisation, partitioner), batch, needed)
    return PlannedRun(step, config.parameters)


# --- Reinforcement learning ---


@dataclasses.dataclass(frozen=True)
class _Shapes:
    """The initial parameters of reinforcement learning, as shapes.

    Attributes:
      learner: an A2C or PPO learner.
      frozen: number of the policy's layers that are not trained.
      judge: the reward model.
    """

    learner: A2CLearner | PPOLearner
    frozen: int
    judge: RewardModel

    def shapes(self) -> Params:
        """Shapes and dtypes of all parts."""
        shapes: Params = jax.eval_shape(
            self.learner.with_extra_parts,
            self.learner.transformer.abstract(self.frozen),
            {**self.judge.transformer.abstract(), HEADS: self.judge.abstract_heads()},
            self.learner.value_head.abstract(),
        )
        return shapes

    def parameters(self, key: Any, shardings: Params) -> Params:
        """Never called: nothing runs."""
        raise NotImplementedError("a plan has no parameters")

    def base(self) -> None:
        """None: there are no adapters."""


def _actor_critic(partitioner: Partitioner, reward_model: TransformerConfig | None) -> PlannedRun:
    config = _architecture()
    judge = _judge(reward_model)
    names = ("batch_size", "prompt_length", "question_length", "max_tokens")
    prompts, length, question, tokens = (_count(name) for name in names)
    refuse_uneven(partitioner, prompts)
    made_by = reference("Run.learner")
    samples = parameter_of(part_of(made_by, "plan"), "samples_per_prompt") or 1
    drawn = SamplingSettings(tokens)
    plan = Plan(Transformer(config), drawn, 1, 0, config.vocab_size, samples, samples)
    penalty = parameter_of(part_of(made_by, "rewards"), "syntax_penalty")
    rewards = Rewards(judge) if penalty is None else Rewards(judge, penalty)
    gin.bind_parameter(f"{made_by.scoped_selector}.plan", plan)
    gin.bind_parameter(f"{made_by.scoped_selector}.rewards", rewards)
    learner = made_by.scoped_configurable_fn()
    frozen = _frozen(config)
    quotes = parameter_of(reference("Run.input"), "quotes")
    if quotes is None:
        raise ValueError("QUOTES = None: without models, only constrained samples can be planned")
    settings = quotes if isinstance(quotes, QuoteSettings) else quotes.scoped_configurable_fn()
    batch = _prompts(partitioner, settings, prompts, length, question, tokens, config.vocab_size)
    program = Program(learner, _Shapes(learner, frozen, judge), partitioner)
    needed = a2c_flops(learner, frozen, prompts, length, question)
    step = update_step(program, batch, needed)
    return PlannedRun(step, config.parameters)


def _prompts(
    partitioner: Partitioner,
    quotes: QuoteSettings,
    prompts: int,
    length: int,
    question_length: int,
    max_tokens: int,
    vocabulary_size: int,
) -> dict[str, Any]:
    """The shapes of a batch of `RolloutInput`."""
    shapes = {
        "prompts": ((prompts, length), jnp.int32),
        "prompt_lengths": ((prompts,), jnp.int32),
        "questions": ((prompts, question_length), jnp.int32),
        "question_lengths": ((prompts,), jnp.int32),
        "weights": ((prompts,), jnp.float32),
    }
    batch: dict[str, Any] = {
        name: _rows(partitioner, jax.ShapeDtypeStruct(shape, dtype))
        for name, (shape, dtype) in shapes.items()
    }
    tables = quote_tables(partitioner, quotes, prompts, length, max_tokens, vocabulary_size)
    return batch | {"quotes": tables}


def _ppo(partitioner: Partitioner, reward_model: TransformerConfig | None) -> PlannedRun:
    """The update alone: experience is collected on the host and by separate programs."""
    config = _architecture()
    judge = _judge(reward_model)
    made_by, collector = reference("Run.learner"), reference("Run.collector")
    changes = {"reward_model": judge, "widths": 1}  # for a rollout whose rows are all full
    if parameter_of(made_by, "vocabulary_size") is None:
        changes["vocabulary_size"] = config.vocab_size
    for name, value in changes.items():
        gin.bind_parameter(f"{made_by.scoped_selector}.{name}", value)
    learner = made_by.scoped_configurable_fn()
    rollout = part_of(collector, "rollout").scoped_configurable_fn()
    browsing = part_of(collector, "browsing").scoped_configurable_fn()
    length = browsing.prompt_tokens + browsing.sampling.max_tokens
    rows = rollout.rows
    allowed = learner.vocabulary_size if browsing.constrained else None
    trained = learner.trained_rows or rows
    refuse_uneven(partitioner, trained // learner.minibatches // learner.microbatches)
    experience = jax.eval_shape(lambda: to_batch(nothing(1, length, rollout.chunk, 0, allowed)))
    batch = {
        name: _rows(partitioner, jax.ShapeDtypeStruct((rows, *part.shape[1:]), part.dtype))
        for name, part in experience.items()
    }
    frozen = _frozen(config)
    program = Program(learner, _Shapes(learner, frozen, judge), partitioner)
    needed = ppo_flops(learner, frozen, rows, trained, length, rollout.chunk)
    return PlannedRun(update_step(program, batch, needed), config.parameters)


def _built(partitioner: Partitioner) -> PlannedRun:
    run = configuration.build()
    first = next(run.input.batches())
    refuse_uneven(partitioner, run.input.batch_size)
    batch = {
        name: _rows(partitioner, part)
        if isinstance(part, np.ndarray)
        else jax.tree.map(lambda leaf: everywhere(partitioner, leaf), part)
        for name, part in first.items()
    }
    program = Program(run.learner, run.initialisation, partitioner)
    return PlannedRun(update_step(program, batch), run.transformer.config.parameters)


# --- Sampling ---


def _sampled(partitioner: Partitioner, sampling: Sampling) -> PlannedRun:
    transformer = Transformer(_architecture())
    config = transformer.config
    prompts, tokens = sampling.prompts, sampling.max_tokens
    settings = gin.get_configurable(SamplingSettings)(max_tokens=tokens)
    plan = Plan(
        transformer, settings, 1, 0, config.vocab_size, sampling.samples, sampling.samples,
        slots=sampling.slots,
    )  # fmt: skip
    shapes = transformer.abstract()
    params = jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
        shapes,
        partitioner.shardings(transformer.logical_axes(), shapes),
    )
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), prompts))
    inputs = (
        jax.ShapeDtypeStruct((prompts, sampling.length), jnp.int32),
        jax.ShapeDtypeStruct((prompts,), jnp.int32),
        keys,
    )
    inputs = jax.tree.map(lambda leaf: everywhere(partitioner, leaf), inputs)
    quotes = faults = None
    limits = gin.get_configurable(QuoteSettings)()
    sizes = prompts, sampling.length, config.vocab_size
    if sampling.constrained:
        quotes = quote_tables(partitioner, limits, *sizes[:2], tokens, config.vocab_size)
    if sampling.track_faults:
        faults = fault_tables(partitioner, limits, *sizes)

    def compile() -> jax.stages.Compiled:
        with partitioner.activate():
            return decode.lower(plan, params, *inputs, quotes, faults).compile()

    needed = sampling_flops(config, prompts, sampling.length, sampling.samples, tokens)
    step = Step(
        partitioner.mesh.shape,
        compile,
        device_bytes(params),
        batch=device_bytes((inputs, quotes, faults)),
        needed_flops=needed,
    )
    return PlannedRun(step, config.parameters)


# --- Parts ---


def _rows(partitioner: Partitioner, array: Any) -> jax.ShapeDtypeStruct:
    place = batch_sharding(partitioner, len(array.shape))
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=place)


def _count(name: str) -> int:
    """A number of the run's input, which its class would check if there were data.

    Raises:
      ValueError: it is not a number of at least 1.
    """
    source = reference("Run.input")
    value = parameter_of(source, name)
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"{kind_of(source)}.{name} = {value!r}: must be at least 1")
    return value


def _frozen(config: TransformerConfig) -> int:
    """The number of a policy's layers that are not trained."""
    fraction = parameter_of(reference("Run.initialisation"), "frozen_fraction")
    if fraction is None:
        function = configuration.actor_critic_initialisation
        fraction = inspect.signature(function).parameters["frozen_fraction"].default
    return count_frozen(config, fraction)


def _judge(reward_model: TransformerConfig | None) -> RewardModel:
    """The reward model that is named, that REWARD_MODEL contains, or one like the policy."""
    if reward_model is None and names_folder("REWARD_MODEL"):
        folder = gin_files.follow("REWARD_MODEL", value_of_macro("REWARD_MODEL"))[1]
        reward_model = read_description(folder).config
    return RewardModel(Transformer(reward_model or _architecture()))
