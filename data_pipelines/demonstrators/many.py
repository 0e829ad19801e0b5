"""Demonstrations of many questions, and a table of results by style."""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from data_pipelines.demonstrators.demonstrate import demonstrate
from data_pipelines.demonstrators.routes import NoWayError, route_of
from data_pipelines.demonstrators.styles import Style
from gophercite.browser.environment import reset
from gophercite.browser.episodes import Episode
from gophercite.browser.settings import Settings
from gophercite.browser.worlds import World
from gophercite.records import Question
from gophercite.text.counting import counted

KEPT_PROBLEMS = 20


@dataclasses.dataclass
class DemonstrationReport:
    """What happened to the questions, and the results of each style.

    Attributes:
      episodes: for each style, the results of its episodes, from which its table row is computed.
      problems: the first questions without a route to their proof, each with the reason.
      without_way: number of questions without a route to their proof.
    """

    episodes: dict[str, list[tuple[bool, bool, int, int]]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(list)
    )
    problems: list[str] = dataclasses.field(default_factory=list)
    without_way: int = 0

    def count(self, episode: Episode) -> None:
        """Counts an episode."""
        browsing = len(episode.steps) - (episode.end.answer is not None)
        invalid = sum(each.invalid is not None for each in episode.steps)
        verdict = bool(episode.right), bool(episode.supported)
        self.episodes[episode.by].append((*verdict, browsing, invalid))

    def __str__(self) -> str:
        """The table: a line for each style, and one for all."""
        lines = [
            f"{'style':12} {'episodes':>8} {'right':>7} {'supported':>9} {'actions':>7} invalid"
        ]
        rows = dict(self.episodes)
        if len(rows) > 1:
            rows["all"] = list(itertools.chain.from_iterable(rows.values()))
        for style, row in rows.items():
            right, supported, actions, invalid = map(sum, zip(*row, strict=True))
            number = len(row)
            lines.append(
                f"{style:12} {number:8d} {right / number:7.1%} {supported / number:9.1%} "
                f"{actions / number:7.1f} {invalid / actions:7.1%}"
            )
        if self.without_way:
            lines.append(f"{counted(self.without_way, 'question')} without a route to the evidence")
        return "\n".join(lines)


def demonstrations(
    world: World,
    questions: Iterable[Question],
    styles: Sequence[Style],
    report: DemonstrationReport,
    *,
    settings: Settings | None = None,
    seed: int = 0,
    addresses: Mapping[str, str] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Iterator[Episode]:
    """Yields an episode for each question; the styles take turns.

    Args:
      world: the world to browse.
      questions: questions with documents and evidence that the world contains.
      styles: the demonstrators.
      report: collects the styles' results, and the questions without a route to their proof.
      settings: the rules of the episodes.
      seed: seed of the random decisions.
      addresses: addresses of documents by id; other documents have their addresses as ids.
      progress: called with the number of questions done.
    """
    for number, question in enumerate(questions):
        try:
            route = route_of(question, world, addresses)
        except NoWayError as problem:
            report.without_way += 1
            if len(report.problems) < KEPT_PROBLEMS:
                report.problems.append(str(problem))
            continue
        start = reset(question.question, settings, seed=seed)
        style = styles[number % len(styles)]
        episode = demonstrate(world, question, route, style, start, seed)
        report.count(episode)
        progress(number + 1)
        yield episode
