"""Episodes as records: what was read and written at each step, one JSON object a line.

A record holds enough to be replayed: `docs/browser.md` lists its fields.
"""

import collections
import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any, cast

from gophercite import records
from gophercite.browser.environment import step
from gophercite.browser.observation import prompt
from gophercite.browser.state import (
    END_REASONS,
    EndReason,
    Reference,
    State,
    reference_from_fields,
    settings_from_json,
)
from gophercite.browser.worlds import World
from gophercite.json_fields import JsonFields, RecordError, describe

_FIELDS = frozenset(
    {"id", "question_id", "question", "world", "settings", "limit", "reference_answer", "steps"}
    | {"references", "answer", "end", "by", "reward"}
)
_STEP_FIELDS = frozenset({"observation", "action", "invalid", "tokens", "log_prob"})
_REFERENCE_FIELDS = frozenset(field.name for field in dataclasses.fields(Reference))


@dataclasses.dataclass(frozen=True)
class EpisodeStep:
    """A step: what was read, what was written, and why that was invalid where it was."""

    observation: str
    action: str
    invalid: str | None = None


@dataclasses.dataclass(frozen=True)
class Episode:
    """An episode that is over.

    Attributes:
      id: names the episode within its file.
      question_id: names the question.
      world: the world's name.
      by: who browsed: a person or a model.
      start: the state that it began with.
      steps: all that was read and written, the answer last.
      end: the state that it ended with; of a record that was read, as far as the record says it:
        `replayed` gives it whole.
      reward: what it scored, where that is known.
    """

    id: str
    question_id: str
    world: str
    by: str
    start: State
    steps: tuple[EpisodeStep, ...]
    end: State
    reward: float | None = None


def played(
    world: World, start: State, texts: Sequence[str], *, id: str, question_id: str, by: str
) -> Episode:
    """Returns the episode that these texts make of a state.

    Raises:
      ValueError: when they don't end it, or go on when it is over.
    """
    state, steps = start, []
    for text in texts:
        observation = prompt(state)
        after, _, invalid = step(world, state, text)
        written = after.answer if state.phase == "answering" else after.actions[-1].text
        steps.append(EpisodeStep(observation, written or "", invalid))
        state = after
    if not state.done:
        raise ValueError("the episode is not over")
    return Episode(id, question_id, world.name, by, start, tuple(steps), state)


def replayed(world: World, episode: Episode) -> Episode:
    """Returns the episode as it goes in this world; it is the same where the world is the same.

    Raises:
      ValueError: when its texts don't end it there.
    """
    again = played(
        world,
        episode.start,
        [each.action for each in episode.steps],
        id=episode.id,
        question_id=episode.question_id,
        by=episode.by,
    )
    return dataclasses.replace(again, reward=episode.reward)


def episode_to_json(episode: Episode) -> dict[str, Any]:
    """Returns the JSON object of an episode, without the optional fields that say nothing."""
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
    }
    return {name: each for name, each in value.items() if each is not None}


def read_episodes(
    path: str | os.PathLike[str], *, strict: bool = False, report: records.Report | None = None
) -> Iterator[Episode]:
    """Reads the episodes of a `.jsonl` or `.jsonl.gz` file; see `records.read`.

    Raises:
      FileNotFoundError, RecordError: as by `records.read`.
    """
    return records.read_parsed(
        path, episode_from_json, lambda episode: episode.id, strict=strict, report=report
    )


def episode_from_json(
    value: object, unknown_fields: collections.Counter[str] | None = None
) -> Episode:
    """Makes an episode of its JSON object.

    Args:
      value: the object.
      unknown_fields: counts the fields that mean nothing here and are passed over.

    Raises:
      RecordError: with the field, and what would be right.
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
        raise RecordError("is there, and no reference that it could cite", "answer")
    return Episode(
        id=fields.text("id"),
        question_id=fields.text("question_id"),
        world=fields.text("world"),
        by=fields.text("by"),
        start=start,
        steps=steps,
        end=end,
        reward=fields.optional_number("reward"),
    )


def _optional(fields: JsonFields, name: str) -> str | None:
    return fields.text(name, empty=True, raw=True) if name in fields else None
