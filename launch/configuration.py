"""The one module that knows gin: registers library objects by name and builds a run from them.

Names that T5X's users know keep their meaning: the macros `MODEL_DIR`, `TRAIN_STEPS` and
`MIXTURE_OR_TASK_NAME`, and `train` for how long and how often. The rest are the library's own:
`Transformer`, `adafactor`, `Input` … A run's gin file includes `supervised.gin`, which joins them.
"""

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import changed_settings
import gin
import gin_files
import jax
import numpy as np
from browsing_runs import answer_judge, browsing_collector, refuse_unfit
from etils import epath

from data_pipelines import tasks
from data_pipelines.browsing_input import BrowsingInput
from data_pipelines.cached_examples import add_cached
from data_pipelines.comparison_input import ComparisonInput
from data_pipelines.inputs import Input
from data_pipelines.own_records import add_own_records
from data_pipelines.packing import PackingReport
from data_pipelines.rollout_input import RolloutInput
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER
from data_pipelines.task_input import TaskInput
from gophercite.browser.settings import Settings
from gophercite.browsing.collecting import BrowsingCollector, Rollout
from gophercite.browsing.writer import BrowsingSettings
from gophercite.decoding.decode_state import Plan
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.learning import optimizers, schedules
from gophercite.learning.a2c import A2CLearner
from gophercite.learning.gradient_learner import GradientLearner
from gophercite.learning.ppo import PPOLearner
from gophercite.learning.reencoding import Reencoding, same_tokens
from gophercite.learning.reward import RewardLearner
from gophercite.learning.rollouts import Rewards
from gophercite.learning.state import Learner
from gophercite.learning.supervised import SupervisedLearner
from gophercite.model_folders.folder import describe_run, read_description, read_vocabulary
from gophercite.models import families
from gophercite.models.config import TransformerConfig
from gophercite.models.lora import LoRA
from gophercite.models.reward_model import RewardModel
from gophercite.models.training_text import FIELD as TRAINING_TEXT
from gophercite.models.training_text import training_text
from gophercite.models.transformer import Transformer
from gophercite.monitoring.answer_table import AnswerTable
from gophercite.partitioning import DEFAULT_RULES, Partitioner, make_mesh
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.retrieval.contexts import ContextSettings
from gophercite.storage import write_file
from gophercite.training.early_stopping import EarlyStopping
from gophercite.training.feed import process_share, refuse_uneven
from gophercite.training.initialisation import (
    ActorCriticInitialisation,
    PretrainedInitialisation,
    RandomInitialisation,
    RewardInitialisation,
    count_frozen,
)
from gophercite.training.loop import Outcome, train
from gophercite.training.program import Initialisation
from gophercite.training.settings import TrainSettings, refuse_unknown_sets
from gophercite.vocabularies import Vocabulary


@dataclasses.dataclass(frozen=True)
class Answers:
    """Which sample answers to show at every evaluation.

    Attributes:
      input: the input whose questions are answered.
      settings: how answers are sampled.
      questions: number of questions to answer.
      shown: number of answers in the table.
      batch_size: number of questions that are answered at once.
      quotes: the constraint on answers; None samples freely.
    """

    input: TaskInput
    settings: SamplingSettings
    questions: int = 32
    shown: int = 10
    batch_size: int = 16
    quotes: QuoteSettings | None = None


@dataclasses.dataclass(frozen=True)
class Run:
    """Everything that makes up a training run.

    Attributes:
      settings: how long, how often, where.
      transformer: the model.
      learner: the objective and its optimisation.
      initialisation: where the initial parameters come from.
      partitioner: mesh and axis rules.
      input: the training data.
      evaluations: held-out sets by name.
      answers: sample answers; None for none (a language model has no questions).
      collector: acts in environments between the inputs and the learner; None if there are none.
    """

    settings: TrainSettings
    transformer: Transformer
    learner: Learner
    initialisation: Initialisation
    partitioner: Partitioner
    input: TaskInput | BrowsingInput
    evaluations: Mapping[str, TaskInput | BrowsingInput]
    answers: Answers | None = None
    collector: BrowsingCollector | None = None

    def __post_init__(self) -> None:
        """Refuses parts that don't fit together, and gives each input this process's share.

        Raises:
          ValueError: the vocabulary has more tokens than the model, the initial checkpoint has
            another architecture, a metric names an unknown set, the mesh or the microbatches can't
            divide a batch, the minibatches don't suit a rollout, a frozen part is unknown, or the
            settings have another batch size than the input.
        """
        shapes = self.initialisation.shapes()
        if isinstance(self.learner, GradientLearner):
            self.learner.trained(shapes)
        refuse_unknown_sets(self.settings, self.evaluations)
        rows = self.input.batch_size
        if self.settings.batch_size != rows:
            raise ValueError(
                f"TrainSettings.batch_size = {self.settings.batch_size}: the input's batches have "
                f"{rows} rows; set both by BATCH_SIZE"
            )
        if self.collector is None:
            refuse_uneven(self.partitioner, rows)
            if isinstance(self.learner, GradientLearner):
                self.learner.check_batch(rows)
        elif isinstance(self.learner, PPOLearner):
            refuse_unfit(self.learner, self.collector.rollout)
            refuse_uneven(self.partitioner, self.collector.rollout.rows)
        tokens, known = self.input.vocabulary.size, self.transformer.config.vocab_size
        if tokens > known:
            raise ValueError(
                f"{self.input.mixture_or_task_name} has a vocabulary of {tokens} tokens, but the "
                f"model has {known}: set TransformerConfig.vocab_size to at least {tokens}"
            )
        index, count = process_share(self.partitioner)

        object.__setattr__(self, "input", self.input.share(index, count))
        shared = {name: whole.share(index, count) for name, whole in self.evaluations.items()}
        object.__setattr__(self, "evaluations", shared)

    def answer_table(self) -> AnswerTable | None:
        """Sample answers in the form that the loop takes."""
        if self.answers is None:
            return None
        vocabulary, quotes = self.input.vocabulary, self.answers.quotes
        constraint = QuoteConstraint(vocabulary, quotes) if quotes is not None else None
        return AnswerTable(
            self.transformer,
            vocabulary,
            self.answers.input.questions(self.answers.questions),
            self.answers.settings,
            self.answers.batch_size,
            self.answers.shown,
            constraint=constraint,
        )

    def describe(self, folder: epath.Path) -> None:
        """Writes the configuration, the vocabulary and the architecture into a run's folder."""
        settings = gin.operative_config_str()
        changed_settings.announce(folder / "config.gin", settings)
        write_file(folder / "config.gin", settings)
        initial = getattr(self.initialisation, "folder", None)
        provenance: dict[str, Any] = {
            "mixture_or_task_name": self.input.mixture_or_task_name,
            "initial_checkpoint": str(initial or "random"),
        }
        started_with = None if initial is None else read_description(initial).provenance
        if text := training_text(self.input.vocabulary, self._some_rows(), started_with):
            provenance[TRAINING_TEXT] = text
        base = None if self.transformer.lora is None else initial
        vocabulary = copy.copy(self.input.vocabulary)
        lengths = self.input.trained_length, vocabulary.trained_length
        vocabulary.trained_length = max((each for each in lengths if each), default=None)
        describe_run(folder, self.transformer, vocabulary, provenance, base)

    def _some_rows(self) -> np.ndarray | None:
        """A batch of training text, [rows, length]; None if the input is not text."""
        if not isinstance(self.input, Input) or isinstance(self.input, ComparisonInput):
            return None
        # Not shuffled, so that no buffer has to fill first. Its counts are not the run's.
        unshuffled = dataclasses.replace(self.input, shuffle=False, report=PackingReport())
        return next(unshuffled.batches())["tokens"]

    def train(self) -> Outcome:
        """Runs it; see `gophercite.training.loop.train`."""
        source = self.input
        if isinstance(source, TaskInput):
            source = source.keeping_plans(str(epath.Path(self.settings.model_dir) / "row_plans"))
        return train(
            self.settings,
            self.learner,
            self.initialisation,
            self.partitioner,
            source.batches,
            {name: of_set.one_pass for name, of_set in self.evaluations.items()},
            collector=self.collector,
            # Sampling reads its results on one host, so pods leave it to launch/eval.py.
            samples=self.answer_table() if jax.process_count() == 1 else None,
            describe=self.describe,
        )


def initialisation(
    transformer: Transformer, folder: str | None = None, frozen_fraction: float = 0.0
) -> RandomInitialisation | PretrainedInitialisation:
    """Where the initial parameters come from.

    Args:
      transformer: the model.
      folder: a model folder or a run's folder; None initialises at random.
      frozen_fraction: fraction of the layers, starting from the first, that are not trained.

    Returns:
      The initialisation.
    """
    frozen = count_frozen(transformer.config, frozen_fraction)
    if folder is None:
        return RandomInitialisation(transformer, frozen)
    return PretrainedInitialisation(transformer, folder, frozen)


def reward_initialisation(
    transformer: Transformer, folder: str | None = None, frozen_fraction: float = 0.0
) -> RewardInitialisation:
    """The same for a reward model, whose heads are always random; arguments as above."""
    return RewardInitialisation(initialisation(transformer, folder, frozen_fraction))


def rollout_plan(
    transformer: Transformer, input: RolloutInput, samples_per_prompt: int = 1
) -> Plan:
    """How reinforcement learning samples: from the policy's own distribution.

    Args:
      transformer: the policy's model.
      input: the prompts, which determine how long samples may be.
      samples_per_prompt: number of rollouts per prompt.

    Returns:
      The plan.
    """
    vocabulary = input.vocabulary
    return Plan(
        transformer,
        SamplingSettings(max_tokens=input.max_tokens),
        vocabulary.eos_id,
        vocabulary.pad_id,
        vocabulary.size,
        samples=samples_per_prompt,
        rows=samples_per_prompt,
    )


def rewards(folder: str, input: RolloutInput, syntax_penalty: float = 2.0) -> Rewards:
    """What samples are rewarded for.

    Args:
      folder: a reward model's folder, or its training run's.
      input: the prompts, in the policy's vocabulary.
      syntax_penalty: subtracted if a sample has a fault of the syntax.

    Returns:
      The rewards. A reward model with a different vocabulary reads samples by way of their text.

    Raises:
      ValueError: the vocabularies differ and there are several processes: text is on one host.
    """
    model = RewardModel(Transformer(read_description(folder).config))
    judge = judge_vocabulary(folder)
    same = same_tokens(input.vocabulary, judge)
    if not same and jax.process_count() > 1:
        raise ValueError(
            f"the reward model in {folder} has another vocabulary than "
            f"{input.mixture_or_task_name}: samples then pass through the host as text, which "
            "works in a single process only; to train on several hosts, train a reward model "
            "with the policy's vocabulary"
        )
    reencode = None if same else Reencoding(input.vocabulary, judge, input.max_tokens)
    return Rewards(model, syntax_penalty, reencode)


def judge_vocabulary(folder: str) -> Vocabulary:
    """A reward model's vocabulary.

    Args:
      folder: its folder, or its training run's.

    Returns:
      The vocabulary.
    """
    return model_vocabulary(folder)


def model_vocabulary(
    folder: str, question_first: bool | None = None, several_pages: bool | None = None
) -> Vocabulary:
    """The vocabulary of a model, for runs that start from it.

    Args:
      folder: a model folder, or a training run's.
      question_first: whether prompts begin with the question; None is as the model was trained.
      several_pages: whether the run also shows prompts with several pages, which the model's folder
        then says; None is as the model was trained.

    Returns:
      The vocabulary.

    Raises:
      ModelFolderError: the folder holds no model.
    """
    vocabulary = read_vocabulary(folder)
    if question_first is not None:
        vocabulary.question_first = question_first
    if several_pages is not None:
        vocabulary.several_pages = several_pages
    return vocabulary


def vocabulary_size(vocabulary: Vocabulary) -> int:
    """The number of a vocabulary's tokens; a model may have more rows."""
    return vocabulary.size


def model_config(folder: str, **changes: Any) -> TransformerConfig:
    """The architecture of a model, for runs that start from it.

    Args:
      folder: a model folder, or a training run's.
      changes: fields to override, such as `dtype`, `scan_layers` or `attention_block`.

    Returns:
      The architecture.

    Raises:
      ModelFolderError: the folder holds no model.
      ValueError: the fields contradict each other.
    """
    return dataclasses.replace(read_description(folder).config, **changes)


def actor_critic_initialisation(
    learner: A2CLearner | PPOLearner,
    reward_model: str,
    folder: str | None = None,
    frozen_fraction: float = 0.6,
) -> ActorCriticInitialisation:
    """The same for actor-critic, where the teacher is the initial policy.

    Args:
      learner: what is optimised.
      reward_model: a reward model's folder, or its training run's.
      folder: the policy's, a model folder or a run's; None initialises at random.
      frozen_fraction: fraction of the policy's layers that are frozen.

    Returns:
      The initialisation.
    """
    policy = initialisation(learner.transformer, folder, frozen_fraction)
    return ActorCriticInitialisation(learner, policy, reward_model)


def partitioner(data: int = 1, fsdp: int = -1, model: int = 1) -> Partitioner:
    """A mesh over all devices with the default rules.

    Args:
      data: number of copies of the parameters.
      fsdp: number of shards of the parameters, gathered for use; -1 is what the others leave.
      model: number of tensor-parallel shards.

    Returns:
      The partitioner.
    """
    return Partitioner(make_mesh(data, fsdp, model), DEFAULT_RULES)


def split_files(
    folder: str | Sequence[str],
    kind: str = "rated_answers",
    splits: Sequence[str] = ("train", "validation", "test"),
) -> dict[str, list[str]]:
    """The files of each split, with the names that `python -m data_pipelines.convert` gives them.

    Args:
      folder: where the files are; several folders are read as one.
      kind: "rated_answers", "questions", "documents", "comparisons" or "completions".
      splits: the splits to use.

    Returns:
      For each split, its file in each folder.
    """
    folders = [folder] if isinstance(folder, str) else folder
    return {split: [f"{where}/{kind}_{split}.jsonl" for where in folders] for split in splits}


def build() -> Run:
    """The run that the loaded configuration describes."""
    return gin.get_configurable(Run)()


def inputs() -> list[TaskInput | BrowsingInput]:
    """The training data of the loaded configuration, then its held-out sets.

    Raises:
      ConfigurationError: the configuration has none.
    """
    for name in ("Run.input", "Run.evaluations"):
        try:
            gin.query_parameter(name)
        except ValueError:
            raise gin_files.ConfigurationError(
                f"the gin files describe no run: nothing sets {name}"
            ) from None
    _, held_out = gin_files.follow("", gin.query_parameter("Run.evaluations"))
    references = [gin.query_parameter("Run.input"), *held_out.values()]
    return [each.scoped_configurable_fn() for each in references]


def _register() -> None:
    """Registers the library's objects with gin; only once, because gin refuses a known name."""
    for configurable in (
        A2CLearner,
        Answers,
        BrowsingInput,
        BrowsingSettings,
        ComparisonInput,
        ContextSettings,
        EarlyStopping,
        Input,
        LoRA,
        PPOLearner,
        QuoteSettings,
        RewardLearner,
        Rollout,
        RolloutInput,
        Run,
        SamplingSettings,
        SupervisedLearner,
        Transformer,
        TransformerConfig,
        actor_critic_initialisation,
        add_cached,
        add_own_records,
        answer_judge,
        browsing_collector,
        families.gemma,
        families.gopher,
        families.llama,
        initialisation,
        judge_vocabulary,
        model_config,
        model_vocabulary,
        optimizers.adafactor,
        optimizers.adam,
        partitioner,
        reward_initialisation,
        rewards,
        rollout_plan,
        schedules.inverse_sqrt,
        schedules.linear_warmup_cosine,
        schedules.linear_warmup_linear,
        split_files,
        tasks.add_clozes,
        tasks.add_comparisons,
        tasks.add_completions,
        tasks.add_documents,
        tasks.add_mixture,
        tasks.add_questions,
        tasks.add_rated_answers,
        tasks.add_repeats,
        tasks.add_tfds,
        vocabulary_size,
    ):
        gin.external_configurable(configurable, module="gophercite")
    # Gin has a "constant" of its own.
    gin.external_configurable(schedules.constant, name="constant_schedule", module="gophercite")
    gin.external_configurable(TrainSettings, name="train", module="gophercite")
    gin.external_configurable(Settings, name="browser", module="gophercite")
    gin.constant("sample_world.MODEL", str(VOCABULARY_FOLDER.parent))


_register()
