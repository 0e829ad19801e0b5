"""`gophercite browse`: a person or browsing with a model, and sees what the model sees."""

import argparse
import contextlib
import os
import pathlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gophercite.cli.arguments import (
    add_command,
    add_highlight,
    add_reading,
    add_web,
    positive,
    seed,
)
from gophercite.cli.kept_episode import episode_of, keep, steps_before
from gophercite.cli.output import (
    DONE,
    RefusedError,
    doing,
    note,
    print_json,
    print_text,
    require_place,
)
from gophercite.cli.sources import keep_compiled_programs
from gophercite.documents import normalise_text
from gophercite.retrieval.apis import ENGINES
from gophercite.storage.json_fields import printable
from gophercite.text.counting import counted

if TYPE_CHECKING:
    from gophercite.browser.episodes import EpisodeStep
    from gophercite.browser.state import State
    from gophercite.browser.worlds import World
    from gophercite.browsing.browsing_model import BrowsingModel

_END_OF_ANSWER = "."


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands,
        "browse",
        run,
        "browse as a model does: search, read, quote, answer",
        (
            '"Who built the lighthouse?" --documents examples/notes',
            '"Why is the sky blue?" --engine brave --record worlds/sky --log demonstrations.jsonl',
            '"Why is the sky blue?" --world worlds/sky --json < commands.txt > answer.json',
            '"Who built the lighthouse?" --documents notes/ --model runs/sft --log episodes.jsonl',
            '"Who built the lighthouse?" --index notes.db --model runs/sft --highlight steps.html',
        ),
    )
    command.add_argument("question", metavar="QUESTION")
    worlds = command.add_mutually_exclusive_group(required=True)
    worlds.add_argument("--world", metavar="FOLDER", help="browse a recorded world")
    worlds.add_argument(
        "--documents",
        nargs="+",
        metavar="PATH",
        help="browse files and folders: .txt, .md, .html, .pdf, and .jsonl of documents",
    )
    worlds.add_argument(
        "--index", metavar="FILE", help="browse an index made by `gophercite index`"
    )
    worlds.add_argument("--engine", choices=ENGINES, help="browse the web, with this search engine")
    command.add_argument(
        "--record",
        metavar="FOLDER",
        help="record the pages and searches as a world in this folder",
    )
    command.add_argument("--log", metavar="FILE.jsonl", help="append the episode to this file")
    add_highlight(
        command,
        "also write an HTML page that shows the episode step by step, with its quotes marked",
    )
    command.add_argument(
        "--state",
        metavar="FILE.json",
        help="keep the state in this file, and continue from it if it exists",
    )
    _add_rules(command)
    command.add_argument(
        "--by",
        type=normalise_text,
        metavar="NAME",
        help="name of who browses, for the record (default: person, or the model's name)",
    )
    command.add_argument(
        "--seed",
        type=seed,
        default=0,
        metavar="N",
        help="seed of random draws, such as of limits (default: 0)",
    )
    _add_model(command.add_argument_group("browsing with a model"))
    add_reading(command, html="browser")
    add_web(command)


def _add_rules(command: argparse.ArgumentParser) -> None:
    """The rules of the episode; a model needs those that it was trained with."""
    from gophercite.browser.settings import Settings

    for name, kind, what in (
        ("actions", positive, "highest number of actions"),
        ("results", positive, "number of hits on a page of results"),
        ("view_lines", positive, "lines shown at a time; as the model was trained, like --results"),
        ("lines_above", int, "lines shown above what `Find in page` finds"),
    ):
        default = getattr(Settings(), name)
        flag = f"--{name.replace('_', '-')}"
        text = f"{what} (default: {default})"
        command.add_argument(flag, type=kind, default=default, metavar="N", help=text)


def _add_model(group: argparse._ActionsContainer) -> None:
    add_argument = group.add_argument
    add_argument("--model", metavar="FOLDER", help="model folder, or folder of a training run")
    add_argument(
        "--free",
        action="store_true",
        help="let the model write anything; by default it can only write what the browser accepts",
    )
    add_argument(
        "--find-present",
        action="store_true",
        help="let the model look only for texts that the page has",
    )
    add_argument(
        "--max-tokens",
        type=positive,
        default=128,
        help="length of the longest command and of the longest answer, in tokens (default: 128)",
    )
    add_argument(
        "--prompt-tokens",
        type=positive,
        default=2048,
        help="length of the longest prompt, in tokens (default: 2048)",
    )
    add_argument("--temperature", type=float, default=1.0, help="sampling temperature (default: 1)")
    add_argument(
        "--boundaries",
        choices=("words", "sentences", "characters"),
        default="words",
        help="where a quote may begin and end (default: words)",
    )


def run(options: argparse.Namespace) -> int:
    """Takes commands from standard input or a model until the episode is over, then an answer."""
    from gophercite.browser.browsed_answers import answer_of
    from gophercite.retrieval.engine import SearchError
    from gophercite.storage.json_fields import RecordError

    # With --json only the result goes to standard output.
    show: Callable[[str], None] = note if options.json else _print
    for path in (options.state, options.log, options.highlight):
        if path is not None:
            require_place(path)
    if options.log is not None and options.log.endswith(".gz"):
        raise RefusedError(
            f"--log {options.log}: lines are added without compression: choose a name without .gz"
        )
    try:
        with contextlib.ExitStack() as stack:
            world = _world(options, stack)
            start = _start(options)
            state = _resumed(options, start)
            is_kept = options.log is not None or options.highlight is not None
            steps = steps_before(world, start, state, options.state) if is_kept else []
            write, by = _writer(options, world, show)
            state = _browse(world, state, show, write, options.state, steps)
            answer = answer_of(state, by)
            if is_kept:
                episode = episode_of(world, start, steps, state, by)
                keep(episode, world, options.log, options.highlight)
    except (RecordError, SearchError) as error:
        raise RefusedError(str(error)) from error
    invalid = sum(action.invalid is not None for action in state.actions)
    note(f"{counted(len(state.actions), 'action')}, {invalid} of them invalid")
    if options.json:
        from gophercite.records.answers import answer_to_json

        print_json(answer_to_json(answer))
    elif answer.declined:
        _print(f"No answer: {answer.reason}.")
    else:
        _print(f"\n{answer.text}\n")
        for number, reference in enumerate(state.references, 1):
            _print(f"[{number}] {reference.title} ({reference.domain or reference.url})")
            _print(f"    {' '.join(reference.extract.split())}")
    return DONE


def _writer(
    options: argparse.Namespace, world: "World", show: Callable[[str], None]
) -> "tuple[Callable[[State], str | None], str]":
    """A function that writes the next text, or None at the end of the input; and its name."""
    if options.model is None:
        if options.free:
            raise RefusedError("--free needs --model: a person may always write anything")
        return _typed(show), options.by or "person"
    model = _model(options)

    def write(state: "State") -> str:
        try:
            text = model.next_text(world, state, options.seed)
        except ValueError as error:
            raise RefusedError(f"--prompt-tokens {options.prompt_tokens}: {error}") from error
        show(f"> {text}")
        return text

    return write, options.by or model.name


def _model(options: argparse.Namespace) -> "BrowsingModel":
    with doing(f"loading {options.model}"):
        keep_compiled_programs()
        from gophercite.browsing.browsing_model import BrowsingModel
        from gophercite.browsing.writer import BrowsingSettings
        from gophercite.commands.constraint import CommandSettings
        from gophercite.decoding.sampling_settings import SamplingSettings
        from gophercite.model_folders.checkpoint_errors import CheckpointError
        from gophercite.model_folders.folder import load_model
        from gophercite.model_folders.tensors import TensorFileError

        try:
            settings = BrowsingSettings(
                constrained=not options.free,
                prompt_tokens=options.prompt_tokens,
                sampling=SamplingSettings(
                    options.max_tokens, options.temperature, free_log_probs=False
                ),
                commands=CommandSettings(options.boundaries, options.find_present),
            )
            return BrowsingModel(load_model(options.model), settings, options.model)
        except (ValueError, CheckpointError, TensorFileError) as error:
            raise RefusedError(str(error)) from error


def _start(options: argparse.Namespace) -> "State":
    from gophercite.browser.environment import reset
    from gophercite.browser.settings import Settings

    if not options.question.strip():
        raise RefusedError("there is no question")
    try:
        rules = Settings(
            actions=options.actions,
            results=options.results,
            view_lines=options.view_lines,
            lines_above=options.lines_above,
        )
    except ValueError as error:
        raise RefusedError(f"--{str(error).replace('_', '-', 1)}") from error
    return reset(options.question, rules, seed=options.seed)


def _resumed(options: argparse.Namespace, start: "State") -> "State":
    from gophercite.browser.state import state_from_json
    from gophercite.storage.json_lines import read_one

    if options.state is None or not os.path.exists(options.state):
        return start
    state = read_one(options.state, state_from_json)
    if (state.question, state.settings, state.limit) != (
        start.question,
        start.settings,
        start.limit,
    ):
        raise RefusedError(f"{options.state}: belongs to another question, or to other settings")
    return state


def _browse(
    world: "World",
    state: "State",
    show: Callable[[str], None],
    write: "Callable[[State], str | None]",
    path: str | None,
    steps: "list[EpisodeStep]",
) -> "State":
    """Takes steps until the episode is over, and appends them to `steps`."""
    from gophercite.browser.episodes import taken
    from gophercite.browser.observation import prompt
    from gophercite.browser.state import dumps

    while not state.done:
        show(prompt(state))
        text = write(state)
        if text is None:
            kept = f"; continue it with --state {path}" if path else ""
            raise RefusedError(f"standard input ended before the episode{kept}")
        one, state = taken(world, state, text)
        steps.append(one)
        if path is not None:
            unfinished = pathlib.Path(f"{path}.partial")
            unfinished.write_text(dumps(state) + "\n", "utf-8")
            unfinished.replace(path)
        if one.invalid is not None:
            show(f"(invalid: {one.invalid})")
        elif state.actions and state.actions[-1].note and state.phase != "done":
            show(f"({state.actions[-1].note})")
    return state


def _typed(show: Callable[[str], None]) -> "Callable[[State], str | None]":
    """Reads what a person types."""

    def write(state: "State") -> str | None:
        if state.phase == "browsing":
            return _line()
        show(
            "(Now write the answer, citing [1], [2] …; end it with a line that contains only "
            f"{_END_OF_ANSWER!r})"
        )
        return _answer()

    return write


def _line() -> str | None:
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    try:
        line = sys.stdin.readline()
    except UnicodeDecodeError as error:
        raise RefusedError(f"standard input is not {error.encoding}: {error.reason}") from error
    return line.rstrip("\n") if line else None


def _answer() -> str | None:
    """An answer of several lines; None if there is none before the end of the input."""
    lines = []
    while (line := _line()) is not None and line != _END_OF_ANSWER:
        lines.append(line)
    return None if line is None and not lines else "\n".join(lines).strip()


def _print(text: str) -> None:
    # A page may hold characters that control the terminal.
    for line in text.split("\n"):
        print_text(printable(line))


def _world(options: argparse.Namespace, stack: contextlib.ExitStack) -> "World":
    from gophercite.browser.recorded import Recorder

    world = _browsed(options, stack)
    if options.record is None:
        return world
    return stack.enter_context(Recorder(world, options.record))


def _browsed(options: argparse.Namespace, stack: contextlib.ExitStack) -> "World":
    from gophercite.browser.document_worlds import IndexWorld
    from gophercite.browser.live import LiveWorld
    from gophercite.browser.recorded import RecordedWorld
    from gophercite.cli.sources import extractor_of, fetch_settings, search_engine
    from gophercite.retrieval.index import DocumentIndex

    if options.world is not None:
        return stack.enter_context(RecordedWorld(options.world))
    engine = search_engine(options, stack)
    if isinstance(engine, DocumentIndex):
        return IndexWorld(engine)
    extractor = stack.enter_context(extractor_of(options))
    return stack.enter_context(LiveWorld(engine, extractor, fetch_settings(options)))
