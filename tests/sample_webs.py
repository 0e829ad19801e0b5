"""Small sample webs in memory, for tests."""

import contextlib
from collections.abc import Iterator

from data_pipelines.sample_web.making import site
from data_pipelines.sample_web.pages import SitePage
from data_pipelines.sample_world.names import Split
from gophercite.browser.settings import Settings
from gophercite.browser.worlds import SiteWorld
from gophercite.retrieval.index import DocumentIndex

SCREEN = Settings(view_lines=8)


@contextlib.contextmanager
def web(
    seed: int = 0, split: Split = "train", pages: int = 100, settings: Settings = SCREEN
) -> Iterator[tuple[list[SitePage], SiteWorld]]:
    """Yields the pages of a site, and the site as a world that finds all that is not hidden."""
    whole = site(seed, split, pages, settings)
    with DocumentIndex(None) as index:
        index.add(page.page.document for page in whole if not page.hidden)
        yield whole, SiteWorld("web", [page.page for page in whole], index)
