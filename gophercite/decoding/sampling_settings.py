"""How tokens are drawn, and how many."""

import dataclasses

_LEAST = 1e-6  # temperature other than 0, and top-p


@dataclasses.dataclass(frozen=True)
class SamplingSettings:
    """How tokens are drawn among those that are allowed, and how many.

    Attributes:
      max_tokens: maximum number of tokens per sample, including the end of sequence.
      temperature: divides logits before the draw; 0 takes the most likely token. Other values must
        be between 1e-6 and 1e6: outside of this range, float32 can't keep masked tokens apart from
        others.
      top_k: draw from the k most likely tokens and any that tie with the last of them; None for
        all.
      top_p: draw from the smallest set of tokens with at least this total probability (Holtzman et
        al. 2020), applied after temperature and top-k; from 1e-6 to 1.
      free_log_probs: under a constraint, also report each token's unconstrained log-probability
        under the model. If False, the logits of tokens that are not allowed need not be computed.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    free_log_probs: bool = True

    def __post_init__(self) -> None:
        """Checks that each field is in its range.

        Raises:
          ValueError: a field is out of range; the message names it.
        """
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens = {self.max_tokens}: must be at least 1")
        if self.temperature != 0 and not _LEAST <= self.temperature <= 1 / _LEAST:
            raise ValueError(
                f"temperature = {self.temperature}: must be 0 (greedy) or from {_LEAST:g} to "
                f"{1 / _LEAST:g}"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k = {self.top_k}: must be at least 1, or None for all tokens")
        if not _LEAST <= self.top_p <= 1:
            raise ValueError(f"top_p = {self.top_p}: must be from {_LEAST:g} to 1")
