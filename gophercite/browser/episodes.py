"""Episodes as records: what was read and written at each step, one JSON object per line.

A record holds enough to be replayed: `docs/browser.md` lists its fields.
"""

import collections
import dataclasses
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from gophercite import records
from gophercite.browser.environment import step
from gophercite.browser.observation import TokenBudget, prompt
from gophercite.browser.state import (
    END_REASONS,
    EndReason,
    Reference,
    State,
    reference_from_fields,
    settings_from_json,
)
from gophercite.browser.worlds import World
from gophercite.storage.json_fields import JsonFields, RecordError, describe

_FIELDS = frozenset(
    {"id", "question_id", "question", "world", "settings", "limit", "reference_answer", "steps"}
    | {"references", "answer", "end", "by", "reward", "right", "supported"}
)
_STEP_FIELDS = frozenset({"observation", "action", "invalid", "mistake", "tokens", "log_prob"})
_REFERENCE_FIELDS = frozenset(field.name for field in dataclasses.fields(Reference))


@dataclasses.dataclass(frozen=True)
class EpisodeStep:
    """One step of an episode.

    Attributes:
      observation: what was read.
      action: what was written.
      invalid: why that was not a valid action; None if it was.
      mistake: what was wrong with it, if known: scripted demonstrators make mistakes on purpose.
        Models should not learn these mistakes, only how they are corrected.
    """

    observation: str
    action: str
    invalid: str | None = None
    mistake: str | None = None


@dataclasses.dataclass(frozen=True)
class Episode:
    """A finished episode.

    Attributes:
      id: unique name of the episode within its file.
      question_id: id of the question.
      world: the world's name.
      by: who browsed: a person or a model.
      start: the initial state.
      steps: everything that was read and written, the answer last.
      end: the final state; for an episode read from a file, only what the record contains
        (`replayed` gives the complete state).
      reward: its score, if known.
      right: whether the answer is right, if known; no answer counts as not right.
      supported: whether it is right, and what it cites proves it.
    """

    id: str
    question_id: str
    world: str
    by: str
    start: State
    steps: tuple[EpisodeStep, ...]
    end: State
    reward: float | None = None
    right: bool | None = None
    supported: bool | None = None


class Example(NamedTuple):
    """What a model learns from a step: to write `action` after `prompt`.

    Attributes:
      prompt: the observation, or the prompt of the answering phase.
      action: the command, or the answer.
      state: the state before the step.
    """

    prompt: str
    action: str
    state: State


def taken(
    world: World, state: State, text: str, mistake: str | None = None
) -> tuple[EpisodeStep, State]:
    """Takes a step; returns its record and the state after it.

    Raises:
      ValueError: when the episode is over.
    """
    observation = prompt(state)
    after, _, invalid = step(world, state, text)
    written = after.answer if state.phase == "answering" else after.actions[-1].text
    return EpisodeStep(observation, written or "", invalid, mistake), after


def examples(
    world: World, episode: Episode, tokens: TokenBudget | None = None, *, faults: bool = False
) -> Iterator[Example]:
    """Yields what behaviour cloning learns from an episode (WebGPT, section 3.2), step by step.

    The episode is replayed, so that prompts can fit any budget; without a budget they are the
    recorded observations.

    Args:
      world: the world in which it was played.
      episode: the recorded episode.
      tokens: the budget that prompts must fit.
      faults: whether to yield invalid actions and mistakes too. What follows them is always
        yielded.

    Raises:
      ValueError: when the world is a different one: a step gives another observation there, or is
        valid in only one of the two.
    """
    state = episode.start
    for number, each in enumerate(episode.steps):
        again, after = taken(world, state, each.action, each.mistake)
        if again != each:
            raise ValueError(
                f"episode {episode.id!r}, step {number}: in the world {world.name!r} it takes "
                f"another course than when it was recorded in {episode.world!r}"
            )
        if faults or (each.invalid is None and each.mistake is None):
            yield Example(prompt(state, tokens), each.action, state)
        state = after


def played(
    world: World, start: State, texts: Sequence[str], *, id: str, question_id: str, by: str
) -> Episode:
    """Returns the episode that results from these texts.

    Raises:
      ValueError: when they do not end the episode, or continue after its end.
    """
    state, steps = start, []
    for text in texts:
        one, state = taken(world, state, text)
        steps.append(one)
    if not state.done:
        raise ValueError("the episode is not over")
    return Episode(id, question_id, world.name, by, start, tuple(steps), state)


def replayed(world: World, episode: Episode) -> Episode:
    """Returns the episode as it goes in this world; identical if the world is the same.

    Raises:
      ValueError: when its texts do not end it there.
    """
    again = played(
        world,
        episode.start,
        [each.action for each in episode.steps],
        id=episode.id,
        question_id=episode.question_id,
        by=episode.by,
    )
    steps = tuple(
        dataclasses.replace(one, mistake=before.mistake)
        for one, before in zip(again.steps, episode.steps, strict=True)
    )
    known = {name: getattr(episode, name) for name in ("reward", "right", "supported")}
    return dataclasses.replace(again, steps=steps, **known)


def episode_to_json(episode: Episode) -> dict[str, Any]:
    """Returns the JSON object of an episode, without optional fields that are empty."""
    start, end = episode.start, episode.end
    value: dict[str, Any] = {
        "id": episode.id,
        "question_id": episode.question_id,
        "question": start.question,
        "world": episode.world,
        "settings": dataclasses.asdict(start.settings),
        "limit": start.limit,
        "reference_answer": start.reference_answer,
        "steps": [
            {name: each for name, each in dataclasses.asdict(one).items() if each is not None}
            for one in episode.steps
        ],
        "references": [dataclasses.asdict(reference) for reference in end.references],
        "answer": end.answer,
        "end": end.end,
        "by": episode.by,
        "reward": episode.reward,
        "right": episode.right,
        "supported": episode.supported,
    }
    return {name: each for name, each in value.items() if each is not None}


def write_episodes(path: str | os.PathLike[str], episodes: Iterable[Episode]) -> int:
    """Writes episodes as `records.write` writes records; returns their number."""
    return records.write_json(path, map(episode_to_json, episodes))


def read_episodes(
    path: str | os.PathLike[str], *, strict: bool = False, report: records.Report | None = None
) -> Iterator[Episode]:
    """Reads the episodes of a `.jsonl` or `.jsonl.gz` file; see `records.read`.

    Raises:
      FileNotFoundError, RecordError: as in `records.read`.
    """
    return records.read_parsed(
        path, episode_from_json, lambda episode: episode.id, strict=strict, report=report
    )


def episode_from_json(
    value: object, unknown_fields: collections.Counter[str] | None = None
) -> Episode:
    """Parses an episode from its JSON object.

    Args:
      value: the object.
      unknown_fields: counts unknown fields, which are ignored.

    Raises:
      RecordError: names the field, and what would be right.
    """
    unknown = collections.Counter() if unknown_fields is None else unknown_fields
    fields = JsonFields(value, _FIELDS, unknown)
    settings = settings_from_json(fields.values.get("settings"))
    limit = fields.integer("limit")
    if limit < 1:
        raise fields.error("limit", "must be at least 1")
    start = State(
        fields.text("question", empty=True, raw=True),
        settings,
        limit,
        _optional(fields, "reference_answer"),
    )
    steps = tuple(
        EpisodeStep(
            each.text("observation", raw=True),
            each.text("action", empty=True, raw=True),
            _optional(each, "invalid"),
            _optional(each, "mistake"),
        )
        for each in fields.objects("steps", _STEP_FIELDS, required=True)
    )
    reason = fields.text("end")
    if reason not in END_REASONS:
        choices = ", ".join(END_REASONS)
        raise fields.error("end", f"must be one of {choices}, got {describe(reason)}")
    references = tuple(
        reference_from_fields(each) for each in fields.objects("references", _REFERENCE_FIELDS)
    )
    end = dataclasses.replace(
        start,
        phase="done",
        end=cast(EndReason, reason),
        references=references,
        answer=_optional(fields, "answer"),
    )
    if end.answer is not None and not references:
        raise RecordError("is given, but there is no reference that it could cite", "answer")
    return Episode(
        id=fields.text("id"),
        question_id=fields.text("question_id"),
        world=fields.text("world"),
        by=fields.text("by"),
        start=start,
        steps=steps,
        end=end,
        reward=fields.optional_number("reward"),
        right=fields.flag("right"),
        supported=fields.flag("supported"),
    )


def _optional(fields: JsonFields, name: str) -> str | None:
    return fields.text(name, empty=True, raw=True) if name in fields else None
