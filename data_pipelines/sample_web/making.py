"""Builds one split of a sample web: its pages as a recorded world, questions, demonstrations."""

import collections
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from data_pipelines.demonstrators.many import DemonstrationReport, demonstrations
from data_pipelines.demonstrators.styles import STYLES, VARIED, Style
from data_pipelines.record_web import record
from data_pipelines.sample_web.pages import SitePage, pages_of
from data_pipelines.sample_web.questions import STEPS, QuestionMaker
from data_pipelines.sample_web.things import things_of
from data_pipelines.sample_world.names import Split
from gophercite import records
from gophercite.browser.episodes import write_episodes
from gophercite.browser.recorded import RecordedWorld
from gophercite.browser.settings import Settings
from gophercite.records import Question

SCREENS = 3  # number of screens above each fact of a long page

Progress = Callable[[str, int], Callable[[int], None]]


def site(seed: int, split: Split, pages: int, settings: Settings) -> list[SitePage]:
    """Returns the pages of a site; equal arguments give equal pages.

    Args:
      seed: seed of the site.
      split: the split whose names it uses; no two splits share a name.
      pages: number of pages.
      settings: settings of the episodes, whose screen size counts: the facts of a long page are
        three screens down.

    Raises:
      ValueError: there are too few pages.
    """
    things, _ = things_of(seed, split, pages)
    return list(pages_of(things, seed, SCREENS * settings.view_lines))


@dataclasses.dataclass(frozen=True)
class Made:
    """Counts of what was written for a split.

    Attributes:
      pages, links, hidden: number of pages, of links on them, and of pages that no search finds.
      questions: number of questions, by the number of pages that they need.
      demonstrations: results of the styles of demonstration.
    """

    pages: int
    links: int
    hidden: int
    questions: collections.Counter[int]
    demonstrations: DemonstrationReport


def make_split(
    out: Path,
    split: Split,
    *,
    seed: int = 0,
    pages: int = 300,
    questions: int = 1000,
    demonstrated: int = 1000,
    steps: Sequence[float] = STEPS,
    settings: Settings | None = None,
    styles: Sequence[Style] = tuple(STYLES[name] for name in VARIED),
    progress: Progress = lambda _what, _number: lambda _: None,
) -> Made:
    """Writes `world_SPLIT`, `questions_SPLIT.jsonl` and `demonstrations_SPLIT.jsonl.gz`.

    Args:
      out: the folder; created if it is missing.
      split: the split whose names are used.
      seed: seed of the site.
      pages: number of pages of the site.
      questions: number of questions; fewer if the site has no more.
      demonstrated: number of questions that are demonstrated, starting with the first.
      steps: relative frequencies of questions that need one page, two, and so on, up to four.
      settings: the rules of the episodes.
      styles: the demonstrators, who take turns.
      progress: given a subject and a total, returns a function that is called with the number done.

    Raises:
      FileExistsError: the world already exists.
      ValueError: there are too few pages.
    """
    settings = settings or Settings()
    site_pages = site(seed, split, pages, settings)
    hidden = {page.address for page in site_pages if page.hidden}
    folder = out / f"world_{split}"
    out.mkdir(parents=True, exist_ok=True)
    tell = progress(f"{split}: pages", pages)
    record([page.page for page in site_pages], folder, f"sample-web-{split}-{seed}", hidden, tell)
    report = DemonstrationReport()
    with RecordedWorld(folder) as world:
        maker = QuestionMaker(site_pages, world, split, seed, settings.results)
        asked: list[Question] = []
        tell = progress(f"{split}: questions", questions)
        for question in maker.questions(questions, steps):
            asked.append(question)
            tell(len(asked))
        records.write(out / f"questions_{split}.jsonl", asked)
        tell = progress(f"{split}: demonstrations", min(demonstrated, len(asked)))
        episodes = demonstrations(
            world, asked[:demonstrated], styles, report, settings=settings, seed=seed, progress=tell
        )
        write_episodes(out / f"demonstrations_{split}.jsonl.gz", episodes)
    return Made(
        pages=len(site_pages),
        links=sum(len(page.page.links) for page in site_pages),
        hidden=len(hidden),
        questions=collections.Counter(len(question.documents) for question in asked),
        demonstrations=report,
    )
