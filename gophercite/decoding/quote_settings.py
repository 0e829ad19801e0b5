"""What constrained answers may look like."""

import dataclasses

import jax

from gophercite.decoding.token_edges import UNLIMITED, Limits
from gophercite.evidence import MINIMUM_QUOTE_LENGTH


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class QuoteSettings:
    """What answers may look like.

    Attributes:
      minimum_quote: characters of the shortest quote.
      maximum_quote: characters of the longest; None for no limit. With a limit, a quote has fewer
        than `minimum_quote` characters of white space before its first other one.
      maximum_claim: characters of the longest claim; None for no limit.
      maximum_triples: claims, each with its quote, in one answer.
    """

    minimum_quote: int = MINIMUM_QUOTE_LENGTH
    maximum_quote: int | None = None
    maximum_claim: int | None = None
    maximum_triples: int = 1

    def __post_init__(self) -> None:
        """Refuses settings that allow no answer, naming the field.

        Raises:
          ValueError: a field is out of range.
        """
        for name in ("minimum_quote", "maximum_claim", "maximum_triples"):
            value = getattr(self, name)
            if value is not None and not 1 <= value < UNLIMITED:
                raise ValueError(f"{name} = {value}: must be at least 1 and under {UNLIMITED}")
        longest = self.maximum_quote
        if longest is not None and not self.minimum_quote <= longest < UNLIMITED:
            raise ValueError(
                f"maximum_quote = {longest}: must be at least minimum_quote ({self.minimum_quote}) "
                f"and under {UNLIMITED}"
            )

    @property
    def limits(self) -> Limits:
        """The lengths as plain numbers."""
        return Limits(
            self.minimum_quote, self.maximum_quote or UNLIMITED, self.maximum_claim or UNLIMITED
        )
