"""WebCPM's demonstrations as episodes of the text browser, with their recorded world.

The world consists of what people saw: the results of their searches, and the pages that they
opened. Each demonstration is replayed in it with the commands of WebGPT's table 1. WebCPM's screen
has three results or 500 characters; here it has eight lines of 68 characters. If a link or a quote
would be off the screen, a scroll is added. Actions without a counterpart are left out and counted.
"""

import hashlib
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from data_pipelines.browsing_input import asked_as
from data_pipelines.converters import webcpm
from data_pipelines.converters.gold import BadRecord, ConversionReport
from data_pipelines.converters.webcpm import WebcpmAction, WebcpmDemonstration, read_webcpm
from data_pipelines.converters.writing import SPLITS, ConversionSettings, split_of
from data_pipelines.demonstrators.styles import Noise
from data_pipelines.demonstrators.walks import BrowsingOverError, Walk
from data_pipelines.record_web import record
from gophercite.browser.environment import reset
from gophercite.browser.episodes import Episode, write_episodes
from gophercite.browser.hosts import without_fragment
from gophercite.browser.marks import escape
from gophercite.browser.pages import Page
from gophercite.browser.recorded import RecordedWorld, Recorder
from gophercite.browser.settings import Settings
from gophercite.browser.worlds import SiteWorld
from gophercite.documents import Document, normalise_text
from gophercite.retrieval.engine import Hit

BY = "webcpm"
# A screen is about as large as WebCPM's. Nothing is censored, as for people.
SETTINGS = Settings(
    actions=200, reference_characters=20_000, results=20, view_lines=8, censored_words=0
)

_CITED = re.compile(r"【(\d{1,2})】|<(\d{1,2})>")
_SCROLLS = {webcpm.DOWN: "down", webcpm.UP: "up"}


def convert_webcpm(
    paths: Iterable[Path], out: Path, settings: ConversionSettings, report: ConversionReport
) -> int:
    """Writes `world` and `demonstrations_SPLIT.jsonl.gz`; returns how many demonstrations it read.

    Args:
      paths: WebCPM's files.
      out: the folder, created if it is missing; it must not contain a `world` yet.
      settings: the shares of the splits; all demonstrations of a question are in one split.
      report: counts what was written and what was left out.

    Raises:
      FileExistsError: the world already exists.
      FileNotFoundError, RecordError, ValueError: as `webcpm.read_webcpm`.
    """
    demonstrations = [
        (f"{path.name.split('.')[0]}-{index}", demonstration)
        for path in paths
        for index, demonstration in read_webcpm(path, report)
    ]
    if not demonstrations:
        return 0
    web = _Web(demonstration for _, demonstration in demonstrations)
    out.mkdir(parents=True, exist_ok=True)
    folder = out / "world"
    record(web.pages(), folder, BY)
    site = SiteWorld(BY, web.pages(), web)
    with Recorder(site, folder) as recorder:
        for query in web.queries():
            recorder.search(query, SETTINGS.results)
    episodes: dict[str, list[Episode]] = {split: [] for split in SPLITS}
    with RecordedWorld(folder) as world:
        for id, demonstration in demonstrations:
            with report.skipping(f"demonstration {id!r}"):
                episode = _Play(world, demonstration, id, report).episode()
                split = split_of(demonstration.question.lower(), settings)
                episodes[split].append(episode)
    for split, of_split in episodes.items():
        name = f"demonstrations_{split}.jsonl.gz"
        report.counts[name] += write_episodes(out / name, of_split)
    report.counts["pages of the world"] += len(web.pages())
    return len(demonstrations)


class _Web:
    """What people saw: results by query, pages by address. It serves as a search engine."""

    def __init__(self, demonstrations: Iterable[WebcpmDemonstration]) -> None:
        self._hits: dict[str, dict[str, Hit]] = {}
        self._texts: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        for demonstration in demonstrations:
            self._look(demonstration.actions)

    def search(self, query: str, k: int) -> list[Hit]:
        """As `SearchEngine.search`."""
        return list(self._hits.get(query, {}).values())[:k]

    def queries(self) -> list[str]:
        """Returns all queries."""
        return list(self._hits)

    def pages(self) -> list[Page]:
        """Returns all opened pages that have a text."""
        return [
            Page(Document(address, self._titles.get(address, address), text, address))
            for address, text in self._texts.items()
            if text.strip()
        ]

    def _look(self, actions: Sequence[WebcpmAction]) -> None:
        query = address = ""
        screens: dict[int, str] = {}
        screen = 0
        for action in actions:
            if action.name == webcpm.SEARCH:
                query, address = _query(action.detail), ""
            elif action.name == webcpm.OPEN:
                address, _ = without_fragment(action.detail)
                screens, screen = {}, 0
            elif action.name == webcpm.BACK:
                address = ""
            elif action.name in (webcpm.DOWN, webcpm.UP):
                screen = max(0, screen + (1 if action.name == webcpm.DOWN else -1))
            elif action.name == webcpm.TOP:
                screen = 0
            for hit in action.results if query and not address else ():
                self._hits.setdefault(query, {}).setdefault(hit.url, hit)
                self._titles.setdefault(without_fragment(hit.url)[0], hit.title)
            if address and action.text is not None:
                if action.whole:
                    self._keep(address, action.text)
                else:
                    screens[screen] = action.text
                    self._keep(address, "".join(screens[each] for each in sorted(screens)))

    def _keep(self, address: str, text: str) -> None:
        """Keeps the longest text of a page: other people saw less of it."""
        if len(text) > len(self._texts.get(address, "")):
            self._texts[address] = text


class _Play:
    """A demonstration that is being replayed."""

    def __init__(
        self,
        world: RecordedWorld,
        demonstration: WebcpmDemonstration,
        id: str,
        report: ConversionReport,
    ) -> None:
        self._said, self._id, self._report = demonstration, id, report
        start = reset(demonstration.question, SETTINGS)
        self._start = start
        self._walk = Walk(world, start, random.Random(0), Noise().times(0))
        self._kept = {_squeeze(text) for digest in demonstration.digests for text in digest}
        self._numbers: dict[str, int] = {}  # reference numbers, by quoted text

    def episode(self) -> Episode:
        """Replays the demonstration and returns the episode.

        Raises:
          BadRecord: none of its quotes can be taken, or a page can't be reached.
        """
        walk = self._walk
        try:
            self._browse()
            walk.do("End: Answer")
        except BrowsingOverError:
            pass
        if walk.state.phase == "answering":
            walk.write(self._answer())
        elif walk.state.end != "nonsense":
            raise BadRecord("none of its quotes occurs in the pages that were opened")
        return Episode(
            id=self._id,
            question_id=_question_id(self._said.question),
            world=walk.world.name,
            by=BY,
            start=self._start,
            steps=tuple(walk.steps),
            end=walk.state,
        )

    def _browse(self) -> None:
        scrolls = 0  # sum of consecutive ones: positive is down
        for action in self._said.actions:
            if action.name in _SCROLLS:
                step = 1 if action.name == webcpm.DOWN else -1
                if scrolls * step < 0:
                    self._scroll(scrolls)
                    scrolls = 0
                scrolls += step
                continue
            self._scroll(scrolls)
            scrolls = 0
            self._act(action)

    def _act(self, action: WebcpmAction) -> None:
        walk = self._walk
        match action.name:
            case webcpm.START:
                pass
            case webcpm.SEARCH:
                walk.do(f"Search {action.detail}")
            case webcpm.OPEN:
                self._open(action.detail)
            case webcpm.QUOTE:
                self._quote(action.detail)
            case webcpm.TOP if walk.state.view.first:
                walk.do("Top")
            case webcpm.BACK if walk.state.history:
                walk.do("Back")
            case webcpm.CLOSE:
                walk.do("End: Answer")
            case webcpm.REJECT:
                walk.do("End: Nonsense")
            case name:
                known = name in (webcpm.MERGE, webcpm.TOP, webcpm.BACK)
                self._count(f"actions left out: {name if known else 'unknown names'}")

    def _open(self, address: str) -> None:
        walk = self._walk
        number = next(
            (n for n, link in enumerate(walk.shown.links) if link.url == normalise_text(address)),
            None,
        )
        if number is None or walk.state.place is None or walk.state.place.kind != "search":
            raise BadRecord(f"opens {address!r:.80}, which is not among the search results")
        link = walk.shown.links[number]
        self._bring((link.start, link.end))
        walk.do(f"Clicked on link {number}")
        if walk.page.problem is not None:
            self._count("opened pages whose text the file doesn't have")

    def _quote(self, text: str) -> None:
        walk = self._walk
        if _squeeze(text) not in self._kept:
            self._count("quotes left out: removed by the person")
            return
        span = walk.shown.matcher.quote(escape(normalise_text(text)), 0)
        if walk.page.source_problem is not None or span is None:
            self._count("quotes left out: not on the page")
            return
        self._bring(span)
        written = " ".join(walk.shown.plain[slice(*span)].split())
        # Before the command, because a quote that ends browsing is taken, but raises an error.
        self._numbers.setdefault(_squeeze(text), len(walk.state.references) + 1)
        walk.do(f"Quote: {written}")

    def _scroll(self, times: int) -> None:
        """Scrolls like the person, at most three screens at a time, and not past an end."""
        walk = self._walk
        while times:
            first, last = walk.state.view.first, walk.state.view.last
            if walk.state.place is None or (
                first == 0 if times < 0 else last + 1 >= len(walk.shown)
            ):
                self._report.counts["actions left out: scrolls past the end of a page"] += abs(
                    times
                )
                return
            step = min(3, abs(times))
            walk.do(f"Scrolled {'down' if times > 0 else 'up'} {step}")
            times -= step if times > 0 else -step

    def _bring(self, span: tuple[int, int]) -> None:
        """Scrolls until the beginning of a part of the page is on the screen."""
        walk, lines = self._walk, SETTINGS.view_lines
        line = walk.shown.line_of(span[0])
        while not walk.state.view.first <= line <= walk.state.view.last:
            away = line - walk.state.view.first
            step = min(3, max(1, abs(away) // lines))
            self._count("scrolls added")
            walk.do(f"Scrolled {'down' if away > 0 else 'up'} {step}")

    def _answer(self) -> str:
        """The answer with citations `[1]`, by the numbers of the references."""
        digests = self._said.digests

        def cited(match: re.Match[str]) -> str:
            number = int(match[1] or match[2])
            texts = digests[number - 1] if 1 <= number <= len(digests) else ()
            squeezed = map(_squeeze, texts)
            found = [self._numbers[text] for text in squeezed if text in self._numbers]
            if not found:
                self._count("citations left out: they cite no quote")
            return "".join(f"[{each}]" for each in dict.fromkeys(found))

        return _CITED.sub(cited, self._said.answer)

    def _count(self, what: str) -> None:
        self._report.counts[what] += 1


def _question_id(question: str) -> str:
    """The id shared by all demonstrations of a question, which must stay in one split."""
    digest = hashlib.sha256(asked_as(question).encode("utf-8", "replace")).hexdigest()
    return f"{BY}-{digest[:12]}"


def _query(text: str) -> str:
    """A query as the environment writes it."""
    return " ".join(normalise_text(text).split())


def _squeeze(text: str) -> str:
    return "".join(normalise_text(text).split()).casefold()
