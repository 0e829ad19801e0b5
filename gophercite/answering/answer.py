"""`gophercite.answer`: a question, documents and a model in; an answer with its proof out."""

import contextlib
import dataclasses
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gophercite.answering.extractive import extractive_answer
from gophercite.answering.pages import (
    IndexedPages,
    OwnDocuments,
    PageSource,
    Paths,
    asked,
    index_in_memory,
    read_documents,
)
from gophercite.records.answers import Answer
from gophercite.retrieval.files import FilesReport
from gophercite.retrieval.index import DocumentIndex

if TYPE_CHECKING:
    from gophercite.answering.settings import AnsweringSettings
    from gophercite.model_folders.folder import Model

Documents = OwnDocuments | DocumentIndex | PageSource

PAGES = 5  # pages per question by default; the paper's K is at most 10


def answer(
    question: str,
    documents: Documents,
    model: "Model | Paths | None",
    *,
    reward_model: "Model | Paths | None" = None,
    pages: int = PAGES,
    samples: int | None = None,
    omissions: int | None = None,
    settings: "AnsweringSettings | None" = None,
    seed: int = 0,
    keep_samples: bool = False,
) -> Answer:
    """Answers a question from documents, with a quote for each claim.

    Each call reads the documents, files and models again. For many questions, open a
    `DocumentIndex` and a model once and pass those.

    Args:
      question: as a user would type it; `site:` and `-site:` in it are filters.
      documents: documents, files and folders, an index, or anything that finds pages
        (`gophercite.answering.pages`). Files that can't be read are named in `left_out`.
      model: a model, or the folder of one; None for the baseline, which needs no model and quotes
        a sentence by rule (`gophercite.answering.extractive`).
      reward_model: a reward model, or the folder of one, that chooses among the samples; None
        chooses as the settings say (`AnsweringSettings.choose`).
      pages: maximum number of pages to use.
      samples: number of answers to choose from; None takes the number from the settings.
      omissions: how often a model's quote may leave words out, marked by ` [...] `. None takes the
        number from the settings; their default is never, because leaving words out can change what
        the rest means.
      settings: how the model answers.
      seed: seed of the sampling.
      keep_samples: whether the answer carries all samples.

    Returns:
      The answer; where there is none, it is `declined`, with the reason.

    Raises:
      ValueError: when the question is blank or has only filters, a reward model comes without a
        model, or `samples` or `omissions` is out of range.
      FileNotFoundError: when there is no such file or folder of documents.
      SearchError: when the engine can't answer.
      ModelFolderError, TensorFileError, CheckpointError: when there is no such model.
    """
    asked(question)
    if model is None and reward_model is not None:
        raise ValueError("a reward model needs a model: it chooses among that model's answers")
    with contextlib.ExitStack() as stack:
        found = _source(documents, stack).find(question, pages)
    if model is None:
        return found.named_in(extractive_answer(question, found))

    from gophercite.answering.answerer import Answerer
    from gophercite.answering.settings import AnsweringSettings
    from gophercite.model_folders.folder import Model, load_model, load_reward_model

    settings = settings or AnsweringSettings()
    if samples is not None:
        settings = dataclasses.replace(settings, samples=samples)
    if omissions is not None:
        quotes = dataclasses.replace(settings.quotes, maximum_omissions=omissions)
        settings = dataclasses.replace(settings, quotes=quotes)
    name, reward_name = "model", None
    if not isinstance(model, Model):
        name, model = os.fspath(model), load_model(model)
    if not isinstance(reward_model, Model | None):
        reward_name, reward_model = os.fspath(reward_model), load_reward_model(reward_model)
    answerer = Answerer(model, settings, name, reward_model=reward_model, reward_name=reward_name)
    return found.named_in(answerer.answer(question, found, seed=seed, keep_samples=keep_samples))


def _source(documents: Documents, stack: contextlib.ExitStack) -> PageSource:
    if isinstance(documents, DocumentIndex):
        return IndexedPages(documents)
    if not isinstance(documents, str | os.PathLike | Iterable):
        return documents
    report = FilesReport()
    index = stack.enter_context(index_in_memory(read_documents(documents, report)))
    return IndexedPages(index, report)
