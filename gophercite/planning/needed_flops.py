"""Operations that a step must do, by analysis: only matrix products, nothing recomputed.

What a compiled program does is compared with these numbers (`plan.Plan.needed_flops`).
"""

import dataclasses

from gophercite.learning.a2c import A2CLearner
from gophercite.learning.gradient_learner import GradientLearner
from gophercite.learning.ppo import PPOLearner
from gophercite.models.config import TransformerConfig
from gophercite.models.lora import adaptable
from gophercite.models.parameters import TRAINED
from gophercite.models.transformer import Transformer


def forward_flops(
    config: TransformerConfig, rows: int, length: int, *, start: int = 0, read: int
) -> float:
    """Operations of a forward pass.

    Args:
      config: the model.
      rows: number of sequences.
      length: number of tokens per sequence that pass through the layers.
      start: number of tokens before them, whose keys and values are known.
      read: for how many of the tokens logits are needed.

    Returns:
      Operations; two for each multiply-add.
    """
    # A training step takes three times as many as its forward pass, for each of its products.
    passed = config.training_flops(rows, start + length) - config.training_flops(rows, start)
    return passed / 3 - 2 * rows * (length - read) * config.vocab_size * config.d_model


def sampling_flops(
    config: TransformerConfig, prompts: int, length: int, samples: int, max_tokens: int
) -> float:
    """Operations of sampling if each prompt is read once and no sample ends early.

    Args:
      config: the model.
      prompts: number of prompts.
      length: number of tokens per prompt.
      samples: number of samples per prompt.
      max_tokens: number of tokens per sample.

    Returns:
      Operations.
    """
    prefill = forward_flops(config, prompts, length, read=1)
    drawn = forward_flops(config, prompts * samples, max_tokens, start=length, read=max_tokens)
    return prefill + drawn


def trained_flops(
    learner: GradientLearner, config: TransformerConfig, rows: int, length: int, *, read: int
) -> float:
    """Operations of a forward pass through trained layers, and of its gradients.

    Every product has two gradients, of its two factors. A matrix that is not trained needs none:
    embeddings among the learner's frozen parts and, where adapters are trained, all of the model's.

    Args:
      learner: has the frozen parts, and adapters if it trains any.
      config: the model with the trained layers only.
      rows, length, read: as for `forward_flops`.

    Returns:
      Operations.
    """
    lora = learner.transformer.lora
    needed = 3 * forward_flops(config, rows, length, read=read)
    if lora is not None or ("embed" if config.tied_embeddings else "unembed") in (
        learner.frozen_parts
    ):
        needed -= 2 * rows * read * config.vocab_size * config.d_model
    if lora is None:
        return needed
    stack = Transformer(config).abstract()[TRAINED]
    for name in adaptable(config):
        layers, inputs, outputs = stack[name].shape
        tokens = layers * length * (1 if name == "relative" else rows)
        needed -= 2 * tokens * inputs * outputs
        if name in lora.targets:
            needed += 3 * 2 * tokens * lora.rank * (inputs + outputs)
    return needed


def gradient_flops(
    learner: GradientLearner, frozen_layers: int, rows: int, length: int, *, read: int
) -> float:
    """Operations of a step of supervised learning, or of a reward model.

    All layers read the rows, and the trained ones are trained (`trained_flops`). Heads are left
    out.

    Args:
      learner: the learner.
      frozen_layers: number of layers that are not trained.
      rows, length, read: as for `forward_flops`; a reward model needs no logits.

    Returns:
      Operations.
    """
    config = learner.transformer.config
    above = _above(config, frozen_layers)
    whole, part = (forward_flops(each, rows, length, read=0) for each in (config, above))
    return whole - part + trained_flops(learner, above, rows, length, read=read)


def a2c_flops(
    learner: A2CLearner, frozen_layers: int, prompts: int, length: int, question_length: int
) -> float:
    """Operations of a step of advantage actor-critic (GopherCite, section 2.8).

    The policy samples. The reward model reads questions and samples. Teacher and policy read
    prompts and samples again, but only in the trained layers: below these they are the same, and
    sampling has computed it. (If the embedding is trained, the teacher has its own and reads from
    there.) Then the policy is trained (`trained_flops`). The heads are left out.

    Args:
      learner: the learner.
      frozen_layers: number of layers that are not trained.
      prompts: number of prompts.
      length: number of tokens per prompt.
      question_length: number of tokens per question, as the reward model reads it.

    Returns:
      Operations, if no sample ends early.
    """
    config, judge = learner.transformer.config, learner.rewards.model.transformer.config
    tokens, samples = learner.plan.settings.max_tokens, learner.plan.samples
    rows = prompts * samples
    trained = _above(config, frozen_layers)
    shared = learner.transformer.lora is not None or "embed" in learner.frozen_parts
    return (
        sampling_flops(config, prompts, length, samples, tokens)
        + forward_flops(judge, rows, question_length + tokens, read=0)
        + forward_flops(trained if shared else config, rows, length + tokens, read=tokens)
        + trained_flops(learner, trained, rows, length + tokens, read=tokens)
    )


def ppo_flops(
    learner: PPOLearner, frozen_layers: int, rows: int, trained: int, length: int, places: int
) -> float:
    """Operations of an update of proximal policy optimisation (WebGPT, appendix E).

    The behaviour-cloned policy and the value network read all rows. In each epoch, the policy and
    the value network train on those that may have a response. The value network needs no logits.
    Layers that are not trained are the same for all of them, so they are needed once for each time
    that rows are read (if the embedding below them is not trained, either).

    Args:
      learner: the learner.
      frozen_layers: number of layers that are not trained.
      rows: number of completions.
      trained: number of them that the minibatches are made of.
      length: number of tokens per row, prompt and response.
      places: maximum number of tokens per response.

    Returns:
      Operations, as if every row were full.
    """
    config = learner.transformer.config
    above = _above(config, frozen_layers)

    def shared(rows: int) -> float:
        whole, part = (forward_flops(c, rows, length, read=0) for c in (config, above))
        return whole - part

    def judged(read: int) -> float:
        return forward_flops(above, rows, length, read=read)

    def taught(read: int) -> float:
        return trained_flops(learner, above, trained, length, read=read)

    read_once = shared(rows) + judged(places) + judged(0)
    return read_once + learner.epochs * (shared(trained) + taught(places) + taught(0))


def _above(config: TransformerConfig, frozen_layers: int) -> TransformerConfig:
    """The model without its first layers, whose windows may differ from the others'."""
    window = config.window
    return dataclasses.replace(
        config,
        num_layers=config.num_layers - frozen_layers,
        window=window[frozen_layers:] if isinstance(window, tuple) else window,
        rope_theta=1.0,  # rotations may differ by layer, too, and are no products
        rope_interpolation=1.0,
    )
