"""Lets a model browse for a file of questions, and writes its episodes with their scores.

examples:
  # one episode per question
  python launch/browse_questions.py --model runs/bc --world runs/web/world_test \\
    --questions runs/web/questions_test.jsonl --output runs/answers/bc

  # for best of n: 16 episodes per question, and for each 4 answers from its references, judged by
  # a reward model and by another one that was trained on other comparisons
  python launch/browse_questions.py --model runs/bc --world runs/web/world_test \\
    --questions runs/web/questions_test.jsonl --episodes 16 --answers 4 \\
    --reward-model runs/rm --validation-reward-model runs/rm_validation --output runs/answers/bc_n

--output is a folder: `episodes.jsonl.gz`, `scores.jsonl` (one line per episode), `summary.json`.
The same command goes on where one was interrupted: episodes are kept whenever --at-once are over.
Its `operations` are the floating point operations of an episode: twice the parameters for each
token that the policy and the reward model read or write.
If questions have evidence, answers are judged by it: right, and supported by what they cite; and
the episode is followed: whether a page with the proof was offered by a search, and opened, whether
a quote overlaps the proof, and how many finds there were, and of texts that the page lacks. If
questions have answers, these are compared as SQuAD does: `exact`, `f1`, and whether a cited quote
contains one.
Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gophercite import interruption

if __name__ == "__main__":  # before the imports that take seconds
    interruption.end_at_once()

from gophercite.cli.arguments import seed
from gophercite.cli.sources import keep_compiled_programs
from gophercite.storage.json_fields import in_one_line

if TYPE_CHECKING:
    from kept_episodes import KeptEpisodes

    from gophercite.browser.episodes import Episode
    from gophercite.browser.worlds import World
    from gophercite.browsing.playing import Player, Turn
    from gophercite.model_folders.folder import Model
    from gophercite.records import Question


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        _run(flags)
    except (OSError, ValueError) as error:
        print(f"browse_questions: {in_one_line(error)}", file=sys.stderr)
        return 1
    return 0


def _run(flags: argparse.Namespace) -> None:
    keep_compiled_programs()
    from browsed_scores import write_results
    from kept_episodes import KeptEpisodes

    from gophercite import records
    from gophercite.browser.recorded import RecordedWorld
    from gophercite.model_folders.folder import load_model, load_reward_model

    report = records.Report()
    questions = list(records.read(flags.questions, records.Question, report=report))
    for problem in report.errors:
        print(problem, file=sys.stderr)
    if not questions:
        raise ValueError(f"{flags.questions}: the file contains no questions")
    questions = questions[: flags.limit]
    # What can be refused is refused before the first episode. The reward models are read again
    # when they judge: while the policy browses, it has the memory for itself.
    flags.output.mkdir(parents=True, exist_ok=True)
    for folder in dict.fromkeys([flags.reward_model, flags.validation_reward_model]):
        if folder is not None:
            load_reward_model(folder)
    model = load_model(flags.model)
    by = str(model.provenance.get("id", Path(flags.model).name))
    with RecordedWorld(flags.world) as world:
        run = _describe(flags, model, by, world, questions)
        with KeptEpisodes(flags.output, run, world) as kept:
            _browse(flags, model, by, world, questions, kept)
            names = [name for name, _ in _asked(flags, questions)]
            write_results(flags, model, by, questions, kept.take(names))
            kept.remove()


def _asked(
    flags: argparse.Namespace, questions: "Sequence[Question]"
) -> "list[tuple[str, Question]]":
    """Each environment's name and question."""
    return [
        (f"{question.id}/{number}", question)
        for question in questions
        for number in range(flags.episodes)
    ]


def _describe(
    flags: argparse.Namespace,
    model: "Model",
    by: str,
    world: "World",
    questions: "Sequence[Question]",
) -> dict[str, Any]:
    """All that decides how the episodes go, as JSON."""
    from data_pipelines.demonstrators.options import settings_of
    from gophercite import records

    asked = json.dumps([records.to_json(question) for question in questions])
    names = "episodes", "answers", "temperature", "free", "find_present", "prompt_tokens"
    return {
        "model": by,
        "provenance": model.provenance,
        "world": world.name,
        "questions": hashlib.sha256(asked.encode()).hexdigest(),
        "rules": dataclasses.asdict(settings_of(flags)),
        **{name: getattr(flags, name) for name in names},
        **{name: getattr(flags, name) for name in ("max_tokens", "together", "at_once", "seed")},
    }


def _browse(
    flags: argparse.Namespace,
    model: "Model",
    by: str,
    world: "World",
    questions: "Sequence[Question]",
    kept: "KeptEpisodes",
) -> None:
    """Browses for all questions, but not again for batches that are kept."""
    import jax
    from kept_episodes import Browsed

    from data_pipelines.demonstrators.options import settings_of
    from gophercite.browser.environment import reset
    from gophercite.browsing.playing import Lane

    player, rules, asked = _player(model, flags), settings_of(flags), _asked(flags, questions)
    for start in range(0, len(asked), flags.at_once):
        batch = asked[start : start + flags.at_once]
        if not all(name in kept for name, _ in batch):
            begun = time.monotonic()
            lanes = [
                Lane(reset(question.question, rules, seed=i), i // flags.episodes, i)
                for i, (_, question) in enumerate(batch, start)
            ]
            key = jax.random.fold_in(jax.random.key(flags.seed), start)
            played = player.play(model.params, world, lanes, key, after=lambda n, lane: None)
            assert played is not None
            seconds = (time.monotonic() - begun) / len(batch)
            kept.add(
                Browsed(
                    name,
                    _episodes(turns, name, question, world.name, by),
                    _followed(question, world, turns),
                    sum(len(turn.written.tokens) for turn in turns),
                    sum(len(turn.written.prompt) for turn in turns),
                    seconds,
                )
                for (name, question), turns in zip(batch, played.turns, strict=True)
            )
        print(f"{start + len(batch)} of {len(asked)} episodes", file=sys.stderr, flush=True)


def _player(model: "Model", flags: argparse.Namespace) -> "Player":
    """What browses with a model, as the flags say."""
    from gophercite.browsing.playing import Player
    from gophercite.browsing.writer import BrowsingSettings
    from gophercite.commands.constraint import CommandSettings
    from gophercite.decoding.sampling_settings import SamplingSettings

    sampling = SamplingSettings(
        max_tokens=flags.max_tokens, temperature=flags.temperature, free_log_probs=False
    )
    commands = CommandSettings(find_present=flags.find_present)
    return Player(
        model.transformer,
        model.vocabulary,
        BrowsingSettings(not flags.free, flags.prompt_tokens, sampling, commands),
        together=flags.together,
        answers=flags.answers,
    )


def _episodes(
    turns: "Sequence[Turn]", id: str, question: "Question", world: str, by: str
) -> "list[Episode]":
    """Returns the episodes of an environment's texts, one for each answer."""
    from gophercite.browser.episodes import Episode, EpisodeStep
    from gophercite.browser.observation import prompt

    shared: list[EpisodeStep] = []
    episodes = []
    for turn in turns:
        answered = turn.before.phase == "answering"
        text = (turn.after.answer or "") if answered else turn.after.actions[-1].text
        step = EpisodeStep(prompt(turn.before), text, turn.invalid)
        if not answered:
            shared.append(step)
        if turn.ends:
            steps = tuple([*shared, step] if answered else shared)
            episodes.append(
                Episode(
                    f"{id}/{turn.extra}", question.id, world, by, turns[0].before, steps, turn.after
                )
            )
    return episodes


def _followed(question: "Question", world: "World", turns: "Sequence[Turn]") -> dict[str, Any]:
    """How near an environment's browsing came to the proof; nothing if none is known."""
    from data_pipelines.demonstrators.truth import approach

    if not question.evidence:
        return {}
    browsing = [turn for turn in turns if turn.before.phase == "browsing"]
    states = [turn.before for turn in browsing] + [browsing[-1].after]
    return dataclasses.asdict(approach(question, world, states))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    from data_pipelines.demonstrators.options import add_rules
    from gophercite.storage.paths import is_remote

    parser = argparse.ArgumentParser(
        prog="browse_questions.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="a model folder or a training run's folder")
    add("--world", required=True, metavar="DIR", help="a recorded world")
    add("--questions", required=True, metavar="FILE", help="file of questions (records)")
    add("--output", required=True, metavar="DIR", help="folder to write to, on a disk")
    add("--limit", type=int, help="take only this many questions, from the start of the file")
    add("--episodes", type=int, default=1, help="episodes per question (default 1)")
    add("--answers", type=int, default=1, help="answers to each episode's references (default 1)")
    add(
        "--temperature",
        type=float,
        default=0.8,
        help="sampling temperature of all texts (default 0.8, as in WebGPT)",
    )
    add("--free", action="store_true", help="let the model write anything, not only what is valid")
    add(
        "--find-present",
        action="store_true",
        help="let the model look only for texts that the page has",
    )
    add(
        "--prompt-tokens",
        type=int,
        default=2048,
        help="length of the longest prompt, in tokens (default 2048)",
    )
    add(
        "--max-tokens",
        type=int,
        default=128,
        help="length of the longest command or answer, in tokens (default 128)",
    )
    add("--reward-model", metavar="DIR", help="reward model that scores and chooses the answers")
    add(
        "--validation-reward-model",
        metavar="DIR",
        help="reward model that also scores the answers, but does not choose",
    )
    add(
        "--prefix-tokens",
        type=int,
        default=1024,
        help="number of tokens that reward models read (default 1024)",
    )
    add(
        "--together",
        type=int,
        default=16,
        help="texts that are written at the same time (default 16)",
    )
    add(
        "--at-once",
        type=int,
        default=64,
        help="episodes that are open at the same time (default 64)",
    )
    add("--seed", type=seed, default=0, help="seed of all random draws (default 0)")
    add_rules(parser)
    flags = parser.parse_args(arguments)
    counts = ("limit", "episodes", "answers", "together", "at_once")
    for name in (*counts, "max_tokens", "prompt_tokens", "prefix_tokens"):
        value = getattr(flags, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} is {value}: must be at least 1")
    if is_remote(flags.output):
        parser.error(
            f"--output {flags.output}: must be a folder on a disk, where unfinished episodes are "
            "kept; copy it to the bucket afterwards"
        )
    flags.output = Path(flags.output)
    return flags


if __name__ == "__main__":
    sys.exit(main())
