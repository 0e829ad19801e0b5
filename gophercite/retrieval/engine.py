"""The interface of a search engine, and the `site:` filters that all engines support.

GopherCite sends the question to a web search engine unchanged (section 2.3), and appends
`site:wikipedia.org` to questions of Natural Questions and `-site:reddit.com` to those of ELI5
(appendix A). Engines differ in how faithfully they obey such operators, so every engine here
filters its results itself.
"""

import dataclasses
import re
import urllib.parse
from typing import Protocol

from gophercite.documents import normalise_text

# An operator is a separate word; after the colon comes a host, with or without a path.
_OPERATOR = re.compile(r"(?<!\S)(-?)site:(\S+)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Hit:
    """One result of a search.

    Attributes:
      url: the page's address; empty for a local document that has none.
      title: the page's title.
      snippet: the part of the page that a results page shows, with `…` where text is left out.
      id: the document's id in the engine's own store; None when the engine has no store.
      score: ranks the hits of one search, higher is better; None when the engine gives none.
        It does not take part in comparisons of hits.
    """

    url: str
    title: str
    snippet: str
    id: str | None = None
    score: float | None = dataclasses.field(default=None, compare=False)


class SearchEngine(Protocol):
    """Anything that finds pages for a query."""

    def search(self, query: str, k: int) -> list[Hit]:
        """Returns at most `k` hits, the best first; fewer if there are no more.

        Args:
          query: what a user would type, with `site:` and `-site:` filters.
          k: number of hits wanted, at least 1.

        Raises:
          SearchError: when the engine can't answer.
        """
        ...


class SearchError(Exception):
    """The engine could not answer; the message tells the user why and what to do."""


@dataclasses.dataclass(frozen=True)
class Query:
    """A query, split into text and filters.

    Attributes:
      text: what is searched for, without the filters.
      sites: hosts, each with or without a path; if there are any, a page must be on one of them.
      excluded_sites: likewise; a page must be on none of them.
    """

    text: str
    sites: tuple[str, ...] = ()
    excluded_sites: tuple[str, ...] = ()

    def admits(self, url: str) -> bool:
        """Whether the filters let this page through.

        `site:example.org` admits example.org and its subdomains, `site:example.org/docs` only the
        pages at and below that path. A page without a host is admitted if no `site:` is given.
        """
        if not self.sites and not self.excluded_sites:
            return True
        page = _host_and_path(url)
        if any(_is_within(page, _host_and_path(site)) for site in self.excluded_sites):
            return False
        return not self.sites or any(_is_within(page, _host_and_path(s)) for s in self.sites)

    def __str__(self) -> str:
        """The query in the syntax of engines that have these operators."""
        sites = " OR ".join(f"site:{site}" for site in self.sites)
        excluded = (f"-site:{site}" for site in self.excluded_sites)
        return " ".join(part for part in (self.text, sites, *excluded) if part)


def parse_query(query: str) -> Query:
    """Splits what a user typed into text and filters; any string is a query.

    >>> parse_query("eiffel tower height -site:reddit.com")
    Query(text='eiffel tower height', sites=(), excluded_sites=('reddit.com',))
    """
    query = normalise_text(query)
    filters = [(match[1] == "-", match[2]) for match in _OPERATOR.finditer(query)]
    return Query(
        " ".join(_OPERATOR.sub(" ", query).split()),
        tuple(dict.fromkeys(site for excluded, site in filters if not excluded)),
        tuple(dict.fromkeys(site for excluded, site in filters if excluded)),
    )


def check_number_of_hits(k: int) -> None:
    """Refuses a number of hits that makes no sense.

    Raises:
      ValueError: when `k` is less than 1.
    """
    if k < 1:
        raise ValueError(f"k = {k}: the number of hits must be at least 1")


def _host_and_path(address: str) -> tuple[str, str]:
    """The host in lower case and the path; both are empty for an invalid address."""
    try:
        parts = urllib.parse.urlsplit(address if "://" in address else f"//{address}")
        return (parts.hostname or "").rstrip(".").lower(), parts.path.rstrip("/")
    except ValueError:  # such as half an IPv6 address
        return "", ""


def _is_within(page: tuple[str, str], site: tuple[str, str]) -> bool:
    (host, path), (site_host, site_path) = page, site
    if not site_host or not (host == site_host or host.endswith(f".{site_host}")):
        return False
    return not site_path or path == site_path or path.startswith(f"{site_path}/")
