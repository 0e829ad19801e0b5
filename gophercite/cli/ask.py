"""`gophercite ask`: answers a question, and shows the quotes that prove the answer."""

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gophercite.cli import processes
from gophercite.cli.answering_flags import add_answering, settings_of
from gophercite.cli.arguments import (
    add_command,
    add_highlight,
    add_pages,
    add_reading,
    add_web,
    count,
    fraction,
    positive,
    share,
)
from gophercite.cli.output import (
    DONE,
    RefusedError,
    doing,
    note,
    print_json,
    print_text,
    require_place,
    require_unread,
    write_text,
)
from gophercite.cli.sources import keep_compiled_programs, page_source
from gophercite.text.counting import counted

if TYPE_CHECKING:
    from gophercite.answering.answerer import Answerer
    from gophercite.answering.declining import Calibration
    from gophercite.answering.pages import FoundPages
    from gophercite.answering.settings import AnsweringSettings
    from gophercite.decoding.abstention import Promise
    from gophercite.records.answers import Answer

_EXAMPLES = (
    '"Who built the lighthouse?" --documents examples/notes --extractive',
    '"Who built the lighthouse?" --documents notes/ --model runs/sft --top 5',
    '"Who built the lighthouse?" --index corpus.db --model runs/sft --json > answer.json',
    '"Who built the lighthouse? site:example.org" --engine brave --extractive',
)
_NO_MODEL = (
    "say what shall answer: --model FOLDER (launch/smollm2.sh makes one, models/smollm2-citing), "
    "or --extractive for a baseline without a model, which quotes the sentence most similar to "
    "the question"
)


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands, "ask", run, "answer a question with quotes that prove it", _EXAMPLES
    )
    add_argument = command.add_argument
    add_argument(
        "question",
        metavar="QUESTION",
        help="the question; site: and -site: in it filter the pages",
    )
    add_pages(command, "answer from")
    who = command.add_mutually_exclusive_group()
    who.add_argument("--model", metavar="FOLDER", help="model folder, or folder of a training run")
    who.add_argument(
        "--extractive",
        action="store_true",
        help="use no model, but a baseline: quote the sentence most similar to the question",
    )
    add_argument(
        "--min-relevance",
        type=fraction,
        metavar="SHARE",
        help="with --extractive: decline unless more than this share of the question's words "
        "occur near the quote (default: 0.33; 0 never declines for this reason)",
    )
    add_argument("--pages", type=positive, default=5, help="number of pages to read (default: 5)")
    add_argument(
        "--top",
        type=positive,
        metavar="N",
        help="show the N best answers, ranked; the baseline gives one answer per page",
    )
    add_reading(command)
    add_highlight(command)
    _add_model(command.add_argument_group("how a model answers"))
    _add_declining(command.add_argument_group("declining when unsure"))
    processes.add_flags(command.add_argument_group("a model that is larger than one host"))
    add_web(command)


def _add_model(group: argparse._ActionsContainer) -> None:
    add_answering(group)
    add_argument = group.add_argument
    add_argument(
        "--few-shot",
        type=count,
        choices=range(6),
        nargs="?",
        const=3,
        default=0,
        metavar="N",
        help="show N examples before the question (3 if no number is given, at most 5); for base "
        "models, which were not trained to answer questions",
    )
    add_argument(
        "--model-parallel",
        type=positive,
        default=1,
        metavar="N",
        help="number of devices to split each model over, if one can't hold it (default: 1); if "
        "one host can't, all devices of several hosts, on each of which the same command runs",
    )
    add_argument("--all-samples", action="store_true", help="with --json: include all samples")
    add_argument(
        "--any-text",
        action="store_true",
        help="also answer from pages that are very different from the model's training text",
    )


def _add_declining(group: argparse._ActionsContainer) -> None:
    group.add_argument(
        "--min-quality",
        type=share,
        metavar="SHARE",
        help="decline so often that this share of the answers given is good, such as 0.9",
    )
    group.add_argument(
        "--calibration",
        metavar="FILE",
        help="calibration made by `gophercite calibrate` (default: the model's own, "
        "calibration.json in its folder, if it has one)",
    )
    group.add_argument(
        "--confidence",
        type=share,
        default=0.95,
        metavar="SHARE",
        help="confidence with which --min-quality is promised (default: 0.95)",
    )


def run(options: argparse.Namespace) -> int:
    """Finds pages, answers from them, and prints the answer."""
    from gophercite.answering.pages import asked
    from gophercite.cli.answer_text import AnswerText
    from gophercite.records.answers import answer_to_json
    from gophercite.retrieval.engine import SearchError

    _refuse_what_does_not_fit(options)
    if options.highlight is not None and not (options.distributed or options.coordinator_address):
        require_place(options.highlight)  # of several hosts, only the first needs the folder
        read = [*(options.documents or []), options.index, options.calibration]
        require_unread("--highlight", options.highlight, read)
    try:
        processes.join(options, "gophercite ask")
    except processes.JoinError as error:
        raise RefusedError(str(error)) from error
    try:
        asked(options.question)
        answerer = None if options.extractive else _answerer(options)
        calibration = None if answerer is None else _calibration(options, answerer)
        with contextlib.ExitStack() as stack:
            source = page_source(options, stack)
            with doing("searching"):
                found = source.find(options.question, options.pages)
    except (ValueError, SearchError) as error:
        if processes.is_of_exchange(error):
            raise
        raise RefusedError(str(error)) from error
    ranked = [found.named_in(each) for each in _answers(options, answerer, found)]
    if not processes.is_first():
        return DONE
    answer = ranked[0]
    if calibration is not None:
        from gophercite.answering.declining import decline, with_track_record

        labelled, promise = calibration
        answer = with_track_record(answer, labelled)
        if promise is not None:
            answer = decline(answer, promise, labelled.by)
        ranked[0] = answer
    for warning in answer.warnings:
        note(f"warning: {warning}")
    if options.json:
        value = answer_to_json(answer)
        print_json(value if options.top is None else value | {"ranked": _ranked_json(ranked)})
    else:
        for page in answer.left_out:
            note(f"left out: {page.document}: {page.reason}")
        text = AnswerText()
        print_text(text.answer(answer) if len(ranked) == 1 else text.ranked(ranked))
    if options.highlight is not None:  # last, so that a full disk does not lose the answer
        from gophercite.answering.highlighting import highlight

        shown = highlight(answer, [result.document for result in found.results])
        write_text(options.highlight, shown.page())
    return DONE


def _refuse_what_does_not_fit(options: argparse.Namespace) -> None:
    if options.model is None and not options.extractive:
        raise RefusedError(_NO_MODEL)
    if problem := processes.impossible(options) or processes.nowhere(options):
        raise RefusedError(problem)
    if options.extractive and (options.distributed or options.coordinator_address):
        raise RefusedError("--extractive needs no model, so that one process does it alone")
    if options.min_relevance is not None and not options.extractive:
        raise RefusedError(
            "--min-relevance is only for --extractive; with a model, use --min-quality"
        )
    for flag in ("reward_model", "calibration", "min_quality"):
        if options.extractive and getattr(options, flag) is not None:
            name = flag.replace("_", "-")
            raise RefusedError(f"--{name} needs --model: --extractive has no samples and no reward")
    if options.top is not None and options.min_quality is not None:
        raise RefusedError(
            "--top and --min-quality can't be used together: the promise holds only for a single "
            "answer"
        )


def _calibration(
    options: argparse.Namespace, answerer: "Answerer"
) -> "tuple[Calibration, Promise | None] | None":
    """Returns what answers are compared with, and the threshold for --min-quality.

    Raises:
      ValueError: the calibration is damaged, of another system, or too small for the promise, or
        there is none.
    """
    from gophercite.answering.declining import own_calibration, read_calibration
    from gophercite.model_folders.folder_contents import CALIBRATION

    promise, file = None, options.calibration
    if file is not None:
        calibration = read_calibration(file)
    else:
        file = f"{options.model.rstrip('/')}/{CALIBRATION}"
        found = own_calibration(options.model, answerer.name)
        if found is None and options.min_quality is None:
            return None
        if found is None:
            raise ValueError(
                f"--min-quality needs --calibration, because there is no {file}: `gophercite "
                "calibrate` makes a calibration from labelled answers"
            )
        calibration = found
    try:
        calibration.require_same(answerer, options.pages)
        if options.min_quality is not None:
            promise = calibration.promise(options.min_quality, options.confidence)
    except ValueError as error:
        if options.calibration is None and options.min_quality is None:
            return None  # it tells nothing of answers with these settings
        raise ValueError(f"{file}: {error}") from error
    return calibration, promise


def _answers(
    options: argparse.Namespace, answerer: "Answerer | None", found: "FoundPages"
) -> "list[Answer]":
    """Returns the answer, and with `--top` the next best answers after it.

    Raises:
      RefusedError: the settings allow no answer, or the model can't read such pages.
    """
    from gophercite.answering.extractive import LEAST_RELEVANCE
    from gophercite.answering.ranking import extractive_answers, ranked_samples

    top = options.top or 1
    if answerer is None:
        least = LEAST_RELEVANCE if options.min_relevance is None else options.min_relevance
        return extractive_answers(options.question, found, top, least_relevance=least)
    with doing(f"answering from {counted(len(found.results), 'page')}"):
        prepared = answerer.prepare(options.question, found)
        if prepared.no_room is not None:
            flag = prepared.no_room.setting
            value = getattr(answerer.settings, flag)
            raise RefusedError(
                f"--{flag.replace('_', '-')} {value} is too few: {prepared.no_room.problem}"
            )
        if prepared.unlike_training is not None and not options.any_text:
            raise RefusedError(
                f"{options.model}: {prepared.unlike_training}. Its answers would be nonsense: use "
                "a model that was trained on such text, or --extractive; to answer anyway, add "
                "--any-text"
            )
        keep = options.all_samples or top > 1
        with _refusing_damage():
            (answer,) = answerer.answer_batch(
                answerer.batch([prepared]), [options.seed], keep_samples=keep
            )
    ranked = ranked_samples(answer, top) if top > 1 else [answer]
    return [answer, *ranked[1:]] if options.all_samples else ranked


def _ranked_json(ranked: "Sequence[Answer]") -> list[dict[str, Any]]:
    """The answers of `--top`, with the fields in which they differ."""
    from gophercite.records.answers import answer_to_json

    fields = ("answer", "text", "score", "likelihood", "consensus", "supported_and_plausible")
    values = [answer_to_json(answer) for answer in ranked if not answer.declined]
    return [
        {"rank": rank, **{field: value[field] for field in fields}}
        for rank, value in enumerate(values, 1)
    ]


def _answerer(options: argparse.Namespace) -> "Answerer":
    """Loads the model.

    Raises:
      ValueError: a flag is out of range, there is no such model, or there are too few devices.
      RefusedError: the model's files are damaged.
    """
    with doing(f"loading {options.model}"), _refusing_damage():
        keep_compiled_programs()
        from gophercite.answering.loading import (
            inference_partitioner,
            load_answerer,
            spans_processes,
        )

        partitioner = inference_partitioner(options.model_parallel)
        if processes.joined() and not spans_processes(partitioner):
            raise RefusedError(
                f"--model-parallel {options.model_parallel}: several processes answer with one "
                "model, so this must be the number of all of their devices"
            )
        return load_answerer(
            options.model,
            _settings(options),
            reward_model=options.reward_model,
            partitioner=partitioner,
            wait=False,
        )


@contextlib.contextmanager
def _refusing_damage() -> Iterator[None]:
    """Refuses a model whose files are damaged, with a line that names the file.

    Raises:
      RefusedError: the model's files are damaged.
    """
    from gophercite.model_folders.checkpoint_errors import CheckpointError
    from gophercite.model_folders.folder_contents import ModelFolderError
    from gophercite.model_folders.tensors import TensorFileError

    try:
        yield
    except (CheckpointError, ModelFolderError, TensorFileError) as error:
        raise RefusedError(str(error)) from error


def _settings(options: argparse.Namespace) -> "AnsweringSettings":
    from gophercite.decoding.sampling_settings import SamplingSettings

    sampling = SamplingSettings(temperature=options.temperature)
    return settings_of(options, sampling, options.few_shot)
