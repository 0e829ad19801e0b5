"""Settings of answering: how many samples, from which prompts, and which sample is the answer."""

import dataclasses
from typing import Literal

from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.few_shot.prompting import FewShotSettings
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.retrieval.contexts import ContextSettings

Chooser = Literal["reward", "consensus", "mean", "sum"]

CHOOSERS: dict[Chooser, str] = {
    "reward": "reward",
    "consensus": "consensus",
    "mean": "mean log-probability of a token",
    "sum": "log-probability",
}


@dataclasses.dataclass(frozen=True)
class AnsweringSettings:
    """How a model answers; the defaults are the paper's for long answers (section 3.2).

    Attributes:
      samples: number of answers to draw, of which the best is given: the paper's N.
      prompt_tokens: maximum prompt length in tokens; prompt and answer together must fit the length
        that the model was trained for. None follows from that length, if it is known
        (`prompts.usual_prompt_tokens`).
      joint: show all pages in one prompt instead of each in its own. None does so if the model was
        also trained with several pages in a prompt (`Vocabulary.several_pages`), and one prompt can
        show at least half of their text, or 500 characters of each.
      few_shot: number of examples before the question, for a base model that was not trained to
        answer (section 2.5 and H): drawn for each prompt, at most five.
      choose: which sample is the answer: "reward", the one with the highest reward; "consensus",
        the one that agrees most with all and is likely, too (`decoding.consensus`); "mean", the one
        with the highest mean of its tokens' log-probabilities; "sum", with the highest sum, which
        favours short answers. None is "reward" with a reward model, otherwise "consensus". Instead
        of its consensus, a single sample is given its mean.
      max_num_seqs: number of answers to draw at a time, which bounds the memory; None draws as many
        as keep the device busy and fit (`decoding.in_flight`). The answers do not depend on it.
      sampling: how tokens are drawn; an `Answerer`'s has the `max_tokens` of its answers.
      claim_in_quote: whether an answer's quote must contain its claim where some quote of the
        prompt could; other samples whose quotes don't are marked (`decoding.claim_in_quote`).
      quotes: what answers may look like.
      contexts: how pages are cut.
      max_tokens: maximum length of an answer in tokens. None follows from the length that the model
        was trained for, if it is known (`prompts.usual_max_tokens`), and is at most
        `sampling.max_tokens`.
    """

    samples: int = 16
    prompt_tokens: int | None = None
    joint: bool | None = None
    few_shot: int = 0
    choose: Chooser | None = None
    max_num_seqs: int | None = None
    claim_in_quote: bool = True
    sampling: SamplingSettings = dataclasses.field(default_factory=SamplingSettings)
    quotes: QuoteSettings = dataclasses.field(default_factory=QuoteSettings)
    contexts: ContextSettings = dataclasses.field(default_factory=ContextSettings)
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("samples", "prompt_tokens", "max_num_seqs", "max_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} = {value}: must be at least 1")
        if self.choose is not None and self.choose not in CHOOSERS:
            raise ValueError(f"choose = {self.choose!r}: must be one of {', '.join(CHOOSERS)}")
        FewShotSettings(examples=self.few_shot)  # refuses what is out of range
