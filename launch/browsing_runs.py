"""What gin builds from the settings of reinforcement learning in the browser."""

import jax

from data_pipelines.browsing_input import BrowsingInput
from data_pipelines.demonstrators.truth import judge
from gophercite.browser.recorded import RecordedWorld
from gophercite.browser.settings import Settings
from gophercite.browser.state import State
from gophercite.browsing.collecting import Asked, BrowsingCollector, Measure, Rollout
from gophercite.browsing.judging import Judge
from gophercite.browsing.playing import Player
from gophercite.browsing.writer import BrowsingSettings
from gophercite.learning.ppo import PPOLearner
from gophercite.learning.reencoding import same_tokens
from gophercite.model_folders.folder import read_description, read_vocabulary
from gophercite.models.reward_model import RewardModel
from gophercite.models.transformer import Transformer
from gophercite.partitioning import Partitioner
from gophercite.records import Question


def answer_judge(folder: str) -> RewardModel:
    """A reward model of long answers, without its parameters.

    Args:
      folder: a model folder, or a training run's.
    """
    return RewardModel(Transformer(read_description(folder).config))


def browsing_collector(
    transformer: Transformer,
    world: str,
    input: BrowsingInput,
    evaluated: BrowsingInput,
    reward_model: str,
    rollout: Rollout,
    rules: Settings,
    browsing: BrowsingSettings,
    evaluated_world: str | None = None,
    prefix_tokens: int = 1024,
    seed: int = 0,
    partitioner: Partitioner | None = None,
) -> BrowsingCollector:
    """Environments in a recorded world, with what judges their answers.

    Args:
      transformer: the policy's model.
      world: folder of the recorded world.
      input: the training questions.
      evaluated: the questions of evaluations.
      reward_model: a reward model's folder, or its training run's.
      rollout: how much is collected for one update.
      rules: rules of the episodes.
      browsing: how the policy is sampled.
      evaluated_world: folder of the world for evaluations; None means `world`.
      prefix_tokens: maximum tokens of question and references that the reward model reads.
      seed: seed for drawing questions and numbers of actions.
      partitioner: the mesh of the parameters; each process acts on its own devices of it.

    Returns:
      The environments of this process.

    Raises:
      ValueError: the vocabularies of policy and reward model differ, or settings don't fit.
    """
    vocabulary = read_vocabulary(reward_model)
    if not same_tokens(input.vocabulary, vocabulary):
        raise ValueError(
            f"the reward model in {reward_model} has another vocabulary than the policy: train "
            "one that starts from the policy's model"
        )
    player = Player(
        transformer,
        input.vocabulary,
        browsing,
        together=max(1, rollout.environments // jax.process_count() // 2),
        answers=1 + rollout.extra_answers,
        chunk=rollout.chunk,
        keep_allowed=browsing.constrained,
    )
    questions = [*input.records, *evaluated.records]
    return BrowsingCollector(
        RecordedWorld(world),
        [asked(each) for each in input.records],
        rules,
        player,
        rollout,
        Judge(answer_judge(reward_model).transformer, vocabulary, prefix_tokens),
        evaluated=[asked(each) for each in evaluated.records],
        evaluated_world=None if evaluated_world is None else RecordedWorld(evaluated_world),
        measure=truth(questions) if all(each.evidence for each in questions) else None,
        seed=seed,
        partitioner=partitioner,
    )


def refuse_unfit(learner: PPOLearner, rollout: Rollout) -> None:
    """Refuses minibatches that are not made of all responses of a rollout.

    Args:
      learner: makes the minibatches.
      rollout: how many rows it gets.

    Raises:
      ValueError: there are too few rows, or they can't be divided into microbatches.
    """
    least, rows = rollout.environments * rollout.steps, rollout.rows
    trained = rows if learner.trained_rows is None else learner.trained_rows
    if not least <= trained <= rows:
        raise ValueError(
            f"PPOLearner.trained_rows = {trained}: must be from {least} (Rollout.environments × "
            f"Rollout.steps) to {rows} (Rollout.environments × (Rollout.steps + 1))"
        )
    pieces = learner.minibatches * learner.microbatches
    if trained % pieces:
        raise ValueError(
            f"PPOLearner.minibatches × PPOLearner.microbatches = {pieces}: must divide the "
            f"{trained} rows of a rollout"
        )


def asked(question: Question) -> Asked:
    """Converts a question record to what environments take."""
    return Asked(question.id, question.question)


def truth(questions: list[Question]) -> Measure:
    """Whether answers are right and proved, if the questions' records say."""
    by_question = {(each.id, each.question): each for each in questions}

    def measure(asked: Asked, end: State) -> dict[str, float]:
        verdict = judge(by_question[asked.id, asked.question], end)
        return {"right": float(verdict.right), "supported": float(verdict.supported)}

    return measure
