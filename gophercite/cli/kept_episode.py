"""What `gophercite browse` keeps of an episode: a line of a log, and a page with its steps."""

import hashlib
import json
import os
from typing import TYPE_CHECKING, Any

from gophercite.cli.output import RefusedError, note, write_text

if TYPE_CHECKING:
    from gophercite.browser.episodes import Episode, EpisodeStep
    from gophercite.browser.state import State
    from gophercite.browser.worlds import World


def steps_before(
    world: "World", start: "State", state: "State", path: str | None
) -> "list[EpisodeStep]":
    """Returns the steps that led to a state that is continued, taken again.

    Args:
      world: what is browsed.
      start: the state in which the episode began.
      state: the state that is continued.
      path: the file that holds it, for the message.

    Raises:
      RefusedError: they now lead elsewhere.
    """
    from gophercite.browser.episodes import taken

    steps, again = [], start
    try:
        for text in state.texts:
            one, again = taken(world, again, text)
            steps.append(one)
    except ValueError:  # the episode is over earlier
        again = start
    if again != state:
        raise RefusedError(
            f"{path}: pages or searches have changed since, so that --log and --highlight can't "
            "show what was seen: continue without them"
        )
    return steps


def episode_of(
    world: "World", start: "State", steps: "list[EpisodeStep]", end: "State", by: str
) -> "Episode":
    """Returns an episode, whose id is the same each time the command is given.

    Args:
      world: what was browsed.
      start: the state in which it began.
      steps: all steps that were taken.
      end: the state in which it ended.
      by: who browsed.
    """
    from gophercite.browser.episodes import Episode
    from gophercite.browser.state import dumps

    digest = hashlib.sha256("\n".join([world.name, by, dumps(end)]).encode()).hexdigest()
    question_id = hashlib.sha256(start.question.encode()).hexdigest()[:16]
    return Episode(digest[:16], question_id, world.name, by, start, tuple(steps), end)


def keep(episode: "Episode", world: "World", log: str | None, highlight: str | None) -> None:
    """Appends an episode to a log, and writes a page that shows it.

    Args:
      episode: the episode.
      world: what was browsed.
      log: the JSON-lines file, if any.
      highlight: the HTML file, if any.
    """
    from gophercite.browser.episode_pages import episode_page, pages_in
    from gophercite.browser.episodes import episode_to_json

    if log is not None:
        _append(log, episode_to_json(episode))
    if highlight is not None:
        write_text(highlight, episode_page(episode, pages_in(world)).page())


def _append(path: str, episode: dict[str, Any]) -> None:
    """Appends an episode to a log, unless the log has it: a command can be given twice."""
    from gophercite.storage.json_lines import read_json_lines

    line = json.dumps(episode, ensure_ascii=False).encode() + b"\n"
    if os.path.isfile(path):
        for number, value in read_json_lines(path):
            if isinstance(value, dict) and value.get("id") == episode["id"]:
                note(f"{path}: has this episode already, in line {number}")
                return
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 1))
            if file.read() not in (b"", b"\n"):  # half a line, which would spoil this one
                line = b"\n" + line
    with open(path, "ab") as log:
        log.write(line)
