"""The token ids that models read in an episode: prompts, written texts, answers to be judged."""

from gophercite.browser.observation import TokenBudget, answering_prompt, prompt
from gophercite.browser.settings import Settings
from gophercite.browser.state import Reference, State
from gophercite.prompts import encode_judged, encode_response_text, encode_text
from gophercite.records import Extract, LongAnswer, Response
from gophercite.vocabularies import Vocabulary

PREFIX_TOKENS = 1024  # default number of prompt tokens (question, references) for reward models


def encode_state(vocabulary: Vocabulary, state: State, tokens: int) -> list[int]:
    """Returns the ids of a state's prompt; the model's text follows them directly.

    Args:
      vocabulary: the model's.
      state: of an episode that is not over.
      tokens: maximum number of tokens.

    Raises:
      ValueError: the episode is over, or even the shortest prompt has more tokens.
    """
    return encode_text(vocabulary, text_of_state(vocabulary, state, tokens))


def text_of_state(vocabulary: Vocabulary, state: State, tokens: int) -> str:
    """Returns the text that `encode_state` encodes; arguments and errors are the same.

    While browsing, this is the observation and a line end; afterwards it is the answering prompt.
    """
    end = "\n" if state.phase == "browsing" else ""

    def count(text: str) -> int:
        return len(encode_text(vocabulary, text + end))

    return prompt(state, TokenBudget(tokens, count)) + end


def encode_written(vocabulary: Vocabulary, text: str) -> list[int]:
    """Returns the ids of a command or an answer in the form that models are trained to write.

    It starts with one blank, which the browser ignores and tokenizers prefer, and includes the end
    of sequence.
    """
    return [*encode_response_text(vocabulary, text), vocabulary.eos_id]


def long_answer(end: State) -> LongAnswer:
    """An answered episode in the form that reward models read.

    A page without a title, which records don't allow, is named by its host or its document.
    """
    references = tuple(
        Extract(
            each.title or each.domain or each.document, each.extract, each.domain, each.url or None
        )
        for each in end.references
    )
    return LongAnswer(end.answer or "", references)


def encode_judged_response(
    vocabulary: Vocabulary, question: str, response: Response, prefix_tokens: int = PREFIX_TOKENS
) -> list[int]:
    """Returns the ids that a reward model reads: a question and a response of any form.

    An answer with numbered references is encoded as in the released comparisons (WebGPT, 3.2 and
    appendix K): the prompt of the answering phase, shortened to `prefix_tokens`, and the
    completion. For other responses see `prompts.encode_judged`.

    Args:
      vocabulary: the reward model's.
      question: its text.
      response: the response to it.
      prefix_tokens: maximum number of tokens for the prompt of the answering phase.

    Raises:
      ValueError: the shortest prompt has more tokens, or inline evidence holds a reserved mark.
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
