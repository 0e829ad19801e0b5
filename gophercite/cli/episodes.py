"""`gophercite episodes`: recorded episodes, as a list or as pages that show them step by step."""

import argparse
import contextlib
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gophercite.cli.arguments import add_command, positive
from gophercite.cli.output import (
    DONE,
    FAILED,
    RefusedError,
    note,
    print_json,
    print_text,
    require_on_disk,
    shown,
)
from gophercite.storage.json_fields import printable
from gophercite.text.counting import counted

if TYPE_CHECKING:
    from gophercite.browser.episodes import Episode
    from gophercite.records import Report

_SHOWN_ERRORS = 20


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands,
        "episodes",
        run,
        "list recorded episodes, or write pages that show them step by step",
        (
            "episodes.jsonl",
            "episodes.jsonl.gz --out pages --world worlds/sky",
            "runs/answers/bc/episodes.jsonl.gz --id q17/0/0 --out pages",
        ),
    )
    command.add_argument(
        "files", nargs="+", metavar="FILE", help="files of episodes: .jsonl or .jsonl.gz"
    )
    command.add_argument(
        "--out",
        metavar="FOLDER",
        help="write an HTML page for each episode, and index.html, into this folder",
    )
    command.add_argument(
        "--id", action="append", metavar="ID", help="only the episode with this id; may be repeated"
    )
    command.add_argument(
        "--limit",
        type=positive,
        default=200,
        metavar="N",
        help="highest number of episodes (default: 200)",
    )
    command.add_argument(
        "--world", metavar="FOLDER", help="the world of the episodes, to show quotes in their pages"
    )


def run(options: argparse.Namespace) -> int:
    """Lists episodes or writes their pages; bad lines are named and left out."""
    from gophercite import records
    from gophercite.browser.episode_pages import pages_in, write_episode_pages
    from gophercite.browser.recorded import RecordedWorld

    if options.out is not None:
        require_on_disk("--out", options.out)
    report = records.Report()
    found = _chosen(options, report)
    chosen = itertools.islice(found, options.limit)
    listed: list[dict[str, Any]] = []

    def noted() -> Iterator["Episode"]:
        for episode in shown(chosen, "episodes"):
            listed.append(_summary(episode))
            yield episode

    with contextlib.ExitStack() as stack:
        if options.out is None:
            for _ in noted():
                pass
        else:
            find = None
            if options.world is not None:
                try:
                    find = pages_in(stack.enter_context(RecordedWorld(options.world)))
                except records.RecordError as error:
                    raise RefusedError(str(error)) from error
            title = ", ".join(options.files)
            write_episode_pages(options.out, f"Episodes of {title}", noted(), find)
    missing = sorted({*(options.id or ())} - {each["id"] for each in listed})
    if missing:
        raise RefusedError(f"--id {missing[0]}: there is no such episode in the files")
    if not listed and not report.skipped:
        raise RefusedError(f"{options.files[0]}: holds no episodes")
    if options.json:
        print_json({"episodes": listed, "skipped": report.skipped})
    elif options.out is None:
        for each in listed:
            print_text(printable(_line(each)))
    else:
        print_text(f"{options.out}/index.html: {counted(len(listed), 'episode')}")
    if next(found, None) is not None:
        first = counted(options.limit, "episode")
        note(f"only the first {first} of more; for the others raise --limit")
    for bad in report.errors[:_SHOWN_ERRORS]:
        note(str(bad))
    return FAILED if report.skipped else DONE


def _chosen(options: argparse.Namespace, report: "Report") -> Iterator["Episode"]:
    from gophercite.browser.episodes import read_episodes
    from gophercite.records import RecordError

    for file in options.files:
        try:
            for episode in read_episodes(file, report=report):
                if options.id is None or episode.id in options.id:
                    yield episode
        except RecordError as error:
            raise RefusedError(str(error)) from error


def _summary(episode: "Episode") -> dict[str, Any]:
    end = episode.end
    return {
        "id": episode.id,
        "question": episode.start.question,
        "by": episode.by,
        "end": end.end,
        "actions": len(episode.steps) - (end.answer is not None),
        "references": len(end.references),
        "answer": end.answer,
        "reward": episode.reward,
        "right": episode.right,
        "supported": episode.supported,
    }


def _line(each: dict[str, Any]) -> str:
    """An episode on one line."""
    known = [
        counted(each["actions"], "action"),
        counted(each["references"], "reference"),
        str(each["end"]),
    ]
    if each["reward"] is not None:
        known.append(f"reward {each['reward']:.3g}")
    for name in ("right", "supported"):
        if each[name] is not None:
            known.append(name if each[name] else f"not {name}")
    answer = " ".join((each["answer"] or "no answer").split())
    question = " ".join(each["question"].split())
    return f"{each['id']}  {question[:200]}  ->  {answer[:200]}  ({', '.join(known)})"
