"""The seqio tasks and mixtures of this project, and functions that add tasks for your own files.

Importing this module registers the sample world's tasks. Files are only read when a task is used.
"""

import functools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import seqio

from data_pipelines import comparisons, preprocessors, sources, tfds_sources
from data_pipelines.citations import Part
from data_pipelines.cloze import cloze
from data_pipelines.document_choice import (
    ContextReport,
    choose_documents,
    choose_question_documents,
)
from data_pipelines.features import SeqioVocabulary, output_features, prompt_features
from data_pipelines.repeats import repeats
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER
from gophercite import records
from gophercite.browser.encoding import PREFIX_TOKENS
from gophercite.retrieval.contexts import ContextSettings
from gophercite.vocabularies import Vocabulary

Files = Mapping[str, str | Path | Sequence[str | Path]]


def add_rated_answers(
    name: str,
    files: Files,
    vocabulary: Vocabulary | str | Path,
    *,
    prompt_weight: float = 0.0,
    copied_weight: float = 1.0,
    contexts: ContextSettings | None = None,
    report: ContextReport | None = None,
    index: str | Path | None = None,
    by_page: bool = False,
    strict: bool = False,
) -> str:
    """Registers supervised fine-tuning on the Rated-Good answers of JSON-lines files.

    Args:
      name: name of the task; an earlier task with this name is replaced.
      files: the file or files of rated answers of each split.
      vocabulary: a vocabulary, or the folder or file of one.
      prompt_weight: weight of the prompt's tokens in the loss.
      copied_weight: weight of tokens that only continue a title or quote
        (`preprocessors.encode_rated_answers`).
      contexts: how each prompt's documents are chosen and cut, with new draws in each epoch
        (appendix D.2); None shows all of them whole, in order.
      report: counts what `contexts` kept, and what it dropped for which reason.
      index: the search index with the pages, for answers whose documents are search results
        (`data_pipelines.search`); needs `contexts`.
      by_page: whether answers about the same documents stay together when shuffled, so that
        `Input.share_beginnings` reads their documents once.
      strict: whether the first bad line is an error.

    Returns:
      `name`, for `MIXTURE_OR_TASK_NAME`.

    Raises:
      ValueError: there is an `index` without `contexts`.
    """
    _refuse_unread_index(index, contexts)
    source = sources.JsonLinesSource(
        files, records.RatedAnswer, strict=strict, hits=index is not None, by_page=by_page
    )
    encode = functools.partial(
        preprocessors.encode_rated_answers,
        prompt_weight=prompt_weight,
        copied_weight=copied_weight,
    )
    steps: list[preprocessors.Preprocessor] = [preprocessors.keep_rated_good]
    if contexts is not None:
        steps.append(
            functools.partial(choose_documents, settings=contexts, report=report, index=index)
        )
    return register(name, source, [*steps, encode], vocabulary)


def add_questions(
    name: str,
    files: Files,
    vocabulary: Vocabulary | str | Path,
    *,
    contexts: ContextSettings | None = None,
    report: ContextReport | None = None,
    index: str | Path | None = None,
    strict: bool = False,
) -> str:
    """Registers the prompts of questions whose answers are sampled (appendix F.2).

    `RolloutInput` builds the batches. With `contexts`, a prompt shows the first one to five
    documents in random order, as in supervised fine-tuning but without a quoted document. Without,
    it shows all documents whole, in order. Arguments and errors are those of `add_rated_answers`.
    """
    _refuse_unread_index(index, contexts)
    source = sources.JsonLinesSource(files, records.Question, strict=strict, hits=index is not None)
    steps: list[preprocessors.Preprocessor] = []
    if contexts is not None:
        steps.append(
            functools.partial(
                choose_question_documents, settings=contexts, report=report, index=index
            )
        )
    return _add_questions(name, source, steps, vocabulary)


def add_documents(
    name: str, files: Files, vocabulary: Vocabulary | str | Path, *, strict: bool = False
) -> str:
    """Registers language modelling on documents; arguments as in `add_rated_answers`."""
    source = sources.JsonLinesSource(files, records.Document, strict=strict)
    return register(name, source, [preprocessors.encode_documents], vocabulary)


def add_completions(
    name: str,
    files: Files,
    vocabulary: Vocabulary | str | Path,
    *,
    prompt_weight: float = 0.0,
    strict: bool = False,
) -> str:
    """Registers behaviour cloning on completions; by default their prompts are not in the loss.

    `python -m data_pipelines.browsing_completions` builds completions from demonstrations.
    Arguments as in `add_rated_answers`.
    """
    source = sources.JsonLinesSource(files, records.Completion, strict=strict)
    encode = functools.partial(preprocessors.encode_completions, prompt_weight=prompt_weight)
    return register(name, source, [encode], vocabulary)


def add_clozes(
    name: str,
    files: Files,
    vocabulary: Vocabulary | str | Path,
    *,
    prompt_weight: float = 0.2,
    strict: bool = False,
) -> str:
    """Registers language modelling on documents and questions made from their sentences.

    Each question asks for a phrase of a sentence; its answer is the phrase, with title and sentence
    cited in a plain style (`data_pipelines.cloze`). Arguments as in `add_rated_answers`;
    `prompt_weight` is the weight of pages and questions.
    """
    return _add_texts(name, files, vocabulary, cloze, prompt_weight, strict)


def add_repeats(
    name: str,
    files: Files,
    vocabulary: Vocabulary | str | Path,
    *,
    prompt_weight: float = 0.2,
    strict: bool = False,
) -> str:
    """Registers language modelling on passages of documents that are each shown twice.

    Arguments as in `add_clozes`; `prompt_weight` is the weight of the first showing.
    """
    return _add_texts(name, files, vocabulary, repeats, prompt_weight, strict)


def _add_texts(
    name: str,
    files: Files,
    vocabulary: Vocabulary | str | Path,
    make: Callable[[records.Document, random.Random], list[Part]],
    prompt_weight: float,
    strict: bool,
) -> str:
    source = sources.JsonLinesSource(files, records.Document, strict=strict)
    steps = [
        functools.partial(preprocessors.make_texts, make=make),
        functools.partial(preprocessors.encode_texts, prompt_weight=prompt_weight),
    ]
    return register(name, source, steps, vocabulary)


def add_comparisons(
    name: str,
    files: Files,
    vocabulary: Vocabulary | str | Path,
    *,
    prefix_tokens: int = PREFIX_TOKENS,
    strict: bool = False,
) -> str:
    """Registers reward modelling on the comparisons of JSON-lines files.

    If a line lacks a label, it is the majority of the line's ratings. `ComparisonInput` builds the
    batches. Arguments as in `add_rated_answers`; `prefix_tokens` is the maximum number of tokens
    for a long answer's question and references. The reward model must be used with the same value.
    """
    source = sources.JsonLinesSource(files, records.Comparison, strict=strict)
    return _add_comparisons(name, source, vocabulary, prefix_tokens)


def add_tfds(
    dataset: str, vocabulary: Vocabulary | str | Path, *, data_dir: str | None = None
) -> str:
    """Registers task `tfds_DATASET`; TensorFlow Datasets is only accessed when the task is used.

    `squad`, `natural_questions` and `trivia_qa` give Rated-Good answers with the sentence that
    proves them; `natural_questions_open` and `asqa` have no documents and give questions with plain
    answers.

    Args:
      dataset: name of one of these five data sets.
      vocabulary: a vocabulary, or the folder or file of one.
      data_dir: folder with the prepared data set; None for TFDS's own folder.

    Returns:
      The name of the task.

    Raises:
      ValueError: there is no such data set.
    """
    if dataset not in tfds_sources.DATASETS:
        known = ", ".join(tfds_sources.DATASETS)
        raise ValueError(f"no TFDS data set is known as {dataset!r}; the known ones are {known}")
    source = tfds_sources.TfdsSource(tfds_sources.DATASETS[dataset], data_dir)
    steps: list[preprocessors.Preprocessor] = (
        [preprocessors.encode_closed_book]
        if dataset in ("natural_questions_open", "asqa")
        else [preprocessors.keep_rated_good, preprocessors.encode_rated_answers]
    )
    return register(f"tfds_{dataset}", source, steps, vocabulary, shuffle_buffer_size=10_000)


def add_mixture(name: str, rates: Mapping[str, float]) -> str:
    """Registers a mixture of tasks with their rates; an earlier one with this name is replaced.

    Raises:
      ValueError: a rate is not a number above 0.
    """
    for task, rate in rates.items():
        if not 0 < rate < math.inf:
            raise ValueError(
                f"the rate of {task!r} in {name!r} is {rate}; it must be a number above 0 "
                "(add_mixture.rates)"
            )
    if name in seqio.MixtureRegistry.names():
        seqio.MixtureRegistry.remove(name)
    seqio.MixtureRegistry.add(name, list(rates.items()))
    return name


def _refuse_unread_index(index: str | Path | None, contexts: ContextSettings | None) -> None:
    if index is not None and contexts is None:
        raise ValueError(
            "an index of pages needs contexts, which choose the documents that prompts show"
        )


def _add_questions(
    name: str,
    source: seqio.DataSource,
    steps: Sequence[preprocessors.Preprocessor],
    vocabulary: Vocabulary | str | Path,
) -> str:
    features = prompt_features(SeqioVocabulary(vocabulary))
    return register(
        name, source, [*steps, preprocessors.encode_questions], vocabulary, features=features
    )


def _add_comparisons(
    name: str,
    source: seqio.DataSource,
    vocabulary: Vocabulary | str | Path,
    prefix_tokens: int = PREFIX_TOKENS,
) -> str:
    steps: list[preprocessors.Preprocessor] = [
        comparisons.keep_decided,
        functools.partial(comparisons.encode_comparisons, prefix_tokens=prefix_tokens),
    ]
    features = comparisons.comparison_features(SeqioVocabulary(vocabulary))
    return register(name, source, steps, vocabulary, features=features)


def register(
    name: str,
    source: seqio.DataSource,
    steps: Sequence[preprocessors.Preprocessor],
    vocabulary: Vocabulary | str | Path,
    shuffle_buffer_size: int | None = None,  # our own sources shuffle whole splits
    features: Mapping[str, seqio.Feature] | None = None,
) -> str:
    """Registers a task; an earlier one with this name is replaced.

    Args:
      name: name of the task.
      source: source of its records.
      steps: preprocessors, from records to tokens.
      vocabulary: a vocabulary, or the folder or file of one.
      shuffle_buffer_size: for sources that don't shuffle by themselves.
      features: features of its examples; None for those of texts.

    Returns:
      `name`.
    """
    if name in seqio.TaskRegistry.names():
        seqio.TaskRegistry.remove(name)
    seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=list(steps),
        output_features=features or output_features(SeqioVocabulary(vocabulary)),
        metric_fns=[],
        shuffle_buffer_size=shuffle_buffer_size,
    )
    return name


# --- The sample world ---

# Supervised fine-tuning: answers in the evidence syntax.
register(
    "sample_world",
    sources.SampleWorldSource(sources.rated_answer_of),
    [preprocessors.keep_rated_good, preprocessors.encode_rated_answers],
    VOCABULARY_FOLDER,
)
# Reinforcement learning: questions whose answers are sampled.
_add_questions(
    "sample_world_questions", sources.SampleWorldSource(sources.question_of), [], VOCABULARY_FOLDER
)
# Reward modelling: two answers and which of them is better.
_add_comparisons(
    "sample_world_comparisons",
    sources.SampleWorldSource(sources.comparison_of),
    VOCABULARY_FOLDER,
)
# Pretraining: pages with excerpts, and with answers in a plain citation style.
register(
    "sample_world_excerpts",
    sources.SampleWorldSource(sources.excerpts_of),
    [functools.partial(preprocessors.encode_texts, prompt_weight=0.2)],
    VOCABULARY_FOLDER,
)
register(
    "sample_world_citations",
    sources.SampleWorldSource(sources.cited_answers_of),
    [functools.partial(preprocessors.encode_texts, prompt_weight=0.2)],
    VOCABULARY_FOLDER,
)
add_mixture("sample_world_pretraining", {"sample_world_excerpts": 1, "sample_world_citations": 3})
