"""What models read of an episode, as tokens: prompts, what was written, answers to be judged."""

from gophercite.browser.observation import TokenBudget, answering_prompt, prompt
from gophercite.browser.settings import Settings
from gophercite.browser.state import Reference, State
from gophercite.prompts import encode_judged, encode_response_text, encode_text
from gophercite.records import LongAnswer, Response
from gophercite.vocabularies import Vocabulary

PREFIX_TOKENS = 1024  # of question and references that a reward model reads, where nobody says


def encode_state(vocabulary: Vocabulary, state: State, tokens: int) -> list[int]:
    """Returns the ids of what a model reads in a state; what it writes follows them at once.

    Args:
      vocabulary: the model's.
      state: of an episode that is not over.
      tokens: how many there may be.

    Raises:
      ValueError: the episode is over, or the shortest prompt has more.
    """
    return encode_text(vocabulary, text_of_state(vocabulary, state, tokens))


def text_of_state(vocabulary: Vocabulary, state: State, tokens: int) -> str:
    """Returns the text whose ids `encode_state` gives; arguments and errors are the same.

    While browsing that is the observation and a line end, and then the answering prompt.
    """
    end = "\n" if state.phase == "browsing" else ""

    def count(text: str) -> int:
        return len(encode_text(vocabulary, text + end))

    return prompt(state, TokenBudget(tokens, count)) + end


def encode_written(vocabulary: Vocabulary, text: str) -> list[int]:
    """Returns the ids of a command or an answer as a model is taught to write it.

    One blank stands in front, which the browser leaves aside and tokenizers like; the end of
    sequence is included.
    """
    return [*encode_response_text(vocabulary, text), vocabulary.eos_id]


def encode_judged_response(
    vocabulary: Vocabulary, question: str, response: Response, prefix_tokens: int = PREFIX_TOKENS
) -> list[int]:
    """Returns the ids of what a reward model reads: a question and a response of any form.

    Of an answer with numbered references that is as the released comparisons have it (WebGPT, 3.2
    and appendix K): the prompt of the answering phase, shortened to so many tokens, and the
    completion. Of others see `prompts.encode_judged`.

    Args:
      vocabulary: the reward model's.
      question: its text.
      response: to it.
      prefix_tokens: that the prompt of the answering phase may have.

    Raises:
      ValueError: the shortest prompt has more, or inline evidence holds a reserved mark.
    """
    if not isinstance(response, LongAnswer):
        return encode_judged(vocabulary, question, response)
    references = tuple(
        Reference(each.title, each.domain, each.url or "", each.extract, "", 0, 0, "")
        for each in response.references
    )
    state = State(question, Settings(), 1, phase="answering", end="answer", references=references)
    prefix = encode_text(
        vocabulary,
        answering_prompt(
            state, TokenBudget(prefix_tokens, lambda text: len(encode_text(vocabulary, text)))
        ),
    )
    return [*prefix, *encode_written(vocabulary, response.answer)]
