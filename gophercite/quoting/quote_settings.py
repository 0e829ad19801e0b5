"""What constrained answers may look like."""

import dataclasses
from typing import get_args

import jax

from gophercite.evidence import MINIMUM_QUOTE_LENGTH
from gophercite.quoting.run_boundaries import Boundaries
from gophercite.quoting.token_walks import MOST_OMISSIONS, UNLIMITED, Limits


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class QuoteSettings:
    """What answers may look like.

    Attributes:
      minimum_quote: minimum number of characters in a quote; with omissions, in each of its runs.
      maximum_quote: maximum number of characters in a quote; None for no limit. With omissions, the
        limit applies to each run, including any part of ` [...] ` that the page itself has there.
        With a limit and the boundaries `"characters"`, a quote begins with fewer than
        max(`minimum_quote` + 1, `minimum_claim`) characters of white space (with omissions, of
        white space, dots and brackets).
      minimum_claim: minimum number of characters in a claim.
      maximum_claim: maximum number of characters in a claim; None for no limit.
      maximum_triples: maximum number of claims, each with its quote, in one answer.
      maximum_omissions: maximum number of ` [...] ` in one quote. A quote with n of them has n + 1
        runs, each from some page of the title (as in bootstrapping, appendix H). Omitted words can
        change the meaning of the rest, so by default a quote is one run.
      boundaries: where a quote, or with omissions each of its runs, may begin and end: at whole
        words (`"words"`, by Unicode's rules, and never with white space), at whole sentences
        (`"sentences"`), or at any character (`"characters"`). If a `maximum_quote` is set, the
        tables of the first two have a column for each of that many characters, so they are large.
    """

    minimum_quote: int = MINIMUM_QUOTE_LENGTH
    maximum_quote: int | None = None
    minimum_claim: int = 1
    maximum_claim: int | None = None
    maximum_triples: int = 1
    maximum_omissions: int = 0
    boundaries: Boundaries = "words"

    def __post_init__(self) -> None:
        """Checks that the settings allow an answer.

        Raises:
          ValueError: a field is out of range; the message names it.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            is_unset = value is None and field.default is None
            if field.name != "boundaries" and not (is_unset or isinstance(value, int)):
                raise ValueError(f"{field.name} = {value!r}: must be a whole number")
        for name in ("minimum_quote", "minimum_claim", "maximum_triples"):
            value = getattr(self, name)
            if not 1 <= value < UNLIMITED:
                raise ValueError(f"{name} = {value}: must be at least 1 and below {UNLIMITED}")
        if not 0 <= self.maximum_omissions <= MOST_OMISSIONS:
            raise ValueError(
                f"maximum_omissions = {self.maximum_omissions}: must be from 0 to {MOST_OMISSIONS}"
            )
        if self.boundaries not in get_args(Boundaries):
            raise ValueError(
                f"boundaries = {self.boundaries!r}: must be one of {get_args(Boundaries)}"
            )
        for part in ("quote", "claim"):
            least, most = getattr(self, f"minimum_{part}"), getattr(self, f"maximum_{part}")
            if most is not None and not least <= most < UNLIMITED:
                raise ValueError(
                    f"maximum_{part} = {most}: must be at least minimum_{part} ({least}) and "
                    f"below {UNLIMITED}"
                )

    @property
    def limits(self) -> Limits:
        """The lengths as plain numbers."""
        return Limits(
            self.minimum_quote,
            self.maximum_quote or UNLIMITED,
            self.minimum_claim,
            self.maximum_claim or UNLIMITED,
            self.maximum_omissions,
            self.boundaries == "characters",
        )
