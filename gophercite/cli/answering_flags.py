"""The flags of every command with which a model answers questions, and their settings."""

import argparse
from typing import TYPE_CHECKING

from gophercite.cli.arguments import amount, count, positive, seed

if TYPE_CHECKING:
    from gophercite.answering.settings import AnsweringSettings
    from gophercite.decoding.sampling_settings import SamplingSettings


def add_answering(group: argparse._ActionsContainer) -> None:
    """Adds the flags that say how a model answers.

    Args:
      group: a parser, or a group of its flags.
    """
    _add_answers(group)
    _add_sampling(group)


def settings_of(
    flags: argparse.Namespace, sampling: "SamplingSettings", few_shot: int = 0
) -> "AnsweringSettings":
    """Returns the settings that the flags of `add_answering` stand for.

    Args:
      flags: the parsed flags.
      sampling: how tokens are drawn.
      few_shot: as in `AnsweringSettings`.

    Raises:
      ValueError: a setting is out of range, or a reward model is needed that was not given.
    """
    from gophercite.answering.settings import AnsweringSettings
    from gophercite.quoting.quote_settings import QuoteSettings

    if flags.choose == "reward" and not flags.reward_model:
        raise ValueError("--choose reward: also give --reward-model")
    return AnsweringSettings(
        samples=flags.samples,
        max_tokens=flags.max_tokens,
        prompt_tokens=flags.prompt_tokens,
        joint=flags.joint,
        few_shot=few_shot,
        choose=flags.choose,
        max_num_seqs=flags.max_num_seqs,
        claim_in_quote=flags.claim_in_quote,
        sampling=sampling,
        quotes=QuoteSettings(
            maximum_triples=flags.claims,
            maximum_omissions=flags.omissions,
            boundaries=flags.boundaries,
        ),
    )


def _add_answers(group: argparse._ActionsContainer) -> None:
    add_argument = group.add_argument
    add_argument(
        "--samples",
        type=positive,
        default=16,
        help="number of answers to sample and choose from (default: 16)",
    )
    add_argument("--reward-model", metavar="FOLDER", help="reward model that scores the samples")
    add_argument(
        "--choose",
        choices=("reward", "consensus", "mean", "sum"),
        help="choose the sample with the highest reward, the one that agrees most with all and is "
        "likely, too, or the one with the highest mean or sum of its tokens' log-probabilities "
        "(default: reward with a reward model, otherwise consensus)",
    )
    add_argument(
        "--joint",
        action=argparse.BooleanOptionalAction,
        help="put all pages into one prompt, or each into its own (default: one prompt if the "
        "model was also trained with several pages, and half of their text or 500 characters "
        "of each fit)",
    )
    add_argument(
        "--claims",
        type=positive,
        default=1,
        help="highest number of claims in an answer (default: 1)",
    )
    add_argument(
        "--omissions",
        type=count,
        default=0,
        metavar="N",
        help="how often a quote may leave words out, marked by ' [...] ' (default: 0)",
    )
    add_argument(
        "--boundaries",
        choices=("words", "sentences", "characters"),
        default="words",
        help="where a quote may begin and end (default: words)",
    )
    add_argument(
        "--claim-in-quote",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="an answer's quote must contain its claim if that occurs in the pages (default: yes)",
    )


def _add_sampling(group: argparse._ActionsContainer) -> None:
    add_argument = group.add_argument
    add_argument(
        "--max-tokens",
        type=positive,
        help="length of the longest answer, in tokens (default: for each claim an eighth of the "
        "length that the model was trained with, and 128 at least; 256 at most, and if that isn't "
        "known)",
    )
    add_argument(
        "--prompt-tokens",
        type=positive,
        help="length of the longest prompt, in tokens (default: what an answer leaves of the "
        "length that the model was trained with, seven eighths of it at least; 3840 at most, and "
        "if that isn't known)",
    )
    add_argument(
        "--temperature",
        type=amount,
        default=1.0,
        help="sampling temperature; 0 takes the most likely token (default: 1)",
    )
    add_argument("--seed", type=seed, default=0, help="seed of the sampling (default: 0)")
    add_argument(
        "--max-num-seqs",
        type=positive,
        metavar="N",
        help="number of answers to sample at the same time; fewer need less memory and give the "
        "same answers (default: 64, on an accelerator 256, or fewer if they don't fit into "
        "half the model's size or 1 GiB)",
    )
