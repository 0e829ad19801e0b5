"""Demonstrations of many questions, and the table of who made them."""

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

KEPT_PROBLEMS = 20


@dataclasses.dataclass
class DemonstrationReport:
    """What became of the questions, and how the styles did.

    Attributes:
      episodes: by style, what its table row is made of.
      problems: the first questions that have no way to their proof, each named.
      without_way: how many those are.
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
            lines.append(f"{self.without_way} questions have no way to their proof")
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
    """Yields an episode for each question, its styles in turn.

    Args:
      world: where it is browsed.
      questions: each with its documents and evidence, which the world has.
      styles: who demonstrates.
      report: is told how the styles did, and which questions have no way to their proof.
      settings: the rules.
      seed: decides what is left to chance.
      addresses: of the documents by their ids; others have their addresses as ids.
      progress: is told how many questions are done.
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
