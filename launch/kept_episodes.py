"""What launch/browse_questions.py has browsed so far: an interrupted command goes on from there.

When a batch of environments is over, they are appended to `unfinished.jsonl` in the output's
folder, next to `unfinished.run.json`, which says how they were made. Both are removed once the
results are written.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gophercite.browser.episodes import Episode, episode_from_json, episode_to_json, replayed
from gophercite.browser.worlds import World
from gophercite.storage.json_fields import in_one_line
from gophercite.storage.result_file import ResultFile, read_results

_FILE = "unfinished.jsonl"


class Browsed(NamedTuple):
    """What became of one environment.

    Attributes:
      name: the question's id, and which of its episodes this is.
      episodes: one for each answer to its references.
      followed: how near its browsing came to the proof, if one is known.
      tokens_written, tokens_read: by the policy.
      seconds: its share of the time that its batch took.
    """

    name: str
    episodes: list[Episode]
    followed: dict[str, Any]
    tokens_written: int
    tokens_read: int
    seconds: float


class KeptEpisodes:
    """The environments that are over; use it in a `with`.

    Args:
      folder: the output's folder.
      run: how they are made, as JSON.
      world: the world that is browsed.

    Raises:
      ValueError: the folder has environments that were made in another way, or what is kept there
        is damaged; the message says what to do.
    """

    def __init__(self, folder: Path, run: Mapping[str, Any], world: World) -> None:
        self._path = folder / _FILE
        self._file = ResultFile(self._path, run)
        try:
            lines = read_results(self._path)
            self._kept = {line["question_id"]: self._read(line, world) for line in lines}
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> "KeptEpisodes":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(None, None, None)

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def add(self, batch: Iterable[Browsed]) -> None:
        """Keeps a batch. Of environments of the same name, the last to be added counts."""
        new = {each.name: each for each in batch}
        lines = (
            {
                "question_id": name,
                **each._asdict(),
                "episodes": [episode_to_json(episode) for episode in each.episodes],
            }
            for name, each in new.items()
        )
        self._file.append(*lines)
        self._kept |= new

    def take(self, names: Sequence[str]) -> list[Browsed]:
        """All that is kept, in this order."""
        return [self._kept[name] for name in names]

    def remove(self) -> None:
        """Removes the files: the results are written."""
        for path in (self._path, self._path.with_suffix(".run.json")):
            path.unlink(missing_ok=True)

    def _read(self, line: dict[str, Any], world: World) -> Browsed:
        try:
            values = {name: line[name] for name in Browsed._fields}
            episodes = [
                replayed(world, episode_from_json(value)) for value in values.pop("episodes")
            ]
            return Browsed(episodes=episodes, **values)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self._path}: {line['question_id']!r} can't be gone on with "
                f"({in_one_line(error)}); remove the file to browse again"
            ) from None
