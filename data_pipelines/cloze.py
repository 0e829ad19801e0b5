"""Questions made automatically: a page, and sentences from it with a missing phrase.

A small language model that only reads prose hardly learns to look things up and copy them. So each
page is followed by questions made from its own sentences (after Lewis et al., 2019, "Unsupervised
Question Answering by Cloze Translation"). A question word replaces a name, a number or another
phrase. Some of the sentence's other words are left out or swapped, so that it is not enough to
search for the same sequence of words. The answer is the phrase, cited in a plain style with the
title and the whole sentence. With several questions per page, most of a text is predictable.
"""

import random
import re

from data_pipelines import citations
from data_pipelines.citations import Part
from gophercite import prompts
from gophercite.documents import Document
from gophercite.evidence import holds_mark
from gophercite.text.sentences import sentence_spans

# In characters. With a vocabulary of 8,192 pieces nearly all texts fit into rows of 768 tokens.
_LONGEST_PAGE = 1000
_LONGEST_TEXT = 2000
_SENTENCE_WORDS = (6, 45)  # shorter ones say too little to ask about, longer ones are mostly lists
_MOST_DROPPED = 0.5  # maximum share of a question's other words that may be left out

_YEAR = re.compile(r"\b1\d{3}s?\b|\b20\d\ds?\b")
_NUMBER = re.compile(rf"(?!{_YEAR.pattern})[$€£]?\b\d(?:[\d,.]*\d)?\b%?")
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][\w’'-]+(?: (?:of |the )*[A-Z][\w’'-]+)*")
_PHRASE = re.compile(r"(?<= )\w[\w’'-]{3,}(?: \w[\w’'-]*){0,3}(?=[ ,.;:])")
_KINDS = (
    (_YEAR, ("when", "in what year")),
    (_NUMBER, ("how many", "how much", "what")),
    (_NAME, ("who", "what", "where", "which")),
    (_PHRASE, ("what", "why", "how", "which")),
)


def cloze(document: Document, draw: random.Random) -> list[Part]:
    """Returns a page, or a part of a long one, and questions about its sentences.

    The first question has the same place as in the prompt of supervised fine-tuning
    (`prompts.prompt`).

    Args:
      document: the page.
      draw: chooses the part, the sentences and the phrases.
    """
    page, sentences = _stretch(document, draw)
    style = draw.choice(citations.STYLES)
    parts: list[Part] = []
    length = len(page.text)
    for sentence in draw.sample(sentences, len(sentences)):
        asked = _ask(sentence, draw)
        if asked is None:
            continue
        question, phrase = asked
        shown = prompts.prompt(question, [] if parts else [page])
        answer = style.format(answer=phrase, title=page.title, sentence=sentence)
        length += len(question) + len(answer)
        if parts and length > _LONGEST_TEXT:
            break
        parts += [Part("\n\n" * bool(parts) + shown, False), Part(answer, True)]
    return parts or [Part(f"{page.title}\n{page.text}", False)]


def _stretch(document: Document, draw: random.Random) -> tuple[Document, list[str]]:
    """Returns a page that is cut to consecutive whole sentences if it is too long, and these."""
    spans = sentence_spans(document.text)
    if not spans:
        return document, []
    # All starts after which there is more text than fits, and the first after which the rest fits.
    starts = sum(spans[-1][1] - start > _LONGEST_PAGE for start, _ in spans) + 1
    first = min(draw.randrange(starts), len(spans) - 1)
    start = spans[first][0]
    fitting = [span for span in spans[first:] if span[1] - start <= _LONGEST_PAGE]
    end = fitting[-1][1] if fitting else start + _LONGEST_PAGE
    page = Document(document.id, document.title, document.text[start:end])
    return page, [document.text[first:last] for first, last in fitting]


def _ask(sentence: str, draw: random.Random) -> tuple[str, str] | None:
    """Returns a question that a sentence answers, and the phrase; None if none can be made."""
    fewest, most = _SENTENCE_WORDS
    if not fewest <= len(sentence.split()) <= most or holds_mark(sentence) or "\n" in sentence:
        return None
    found = [
        (match, words) for pattern, words in _KINDS if (match := _any(pattern, sentence, draw))
    ]
    if not found:
        return None
    match, words = draw.choice(found)
    dropped = draw.uniform(0, _MOST_DROPPED)
    before, after = (
        [word for word in text.strip(" ,.;:").split() if draw.random() >= dropped]
        for text in (sentence[: match.start()], sentence[match.end() :])
    )
    word = draw.choice(words)
    # "the mill burned in what year" or "in what year, not even the mayor the mill burned".
    order = [*before, word, *after] if draw.random() < 0.5 else [word, *after, *before]
    question = " ".join(order)
    return question[:1].upper() + question[1:] + "?", match.group()


def _any(pattern: re.Pattern[str], sentence: str, draw: random.Random) -> re.Match[str] | None:
    matches = list(pattern.finditer(sentence))
    return draw.choice(matches) if matches else None
