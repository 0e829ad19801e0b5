"""`gophercite rate`: people rate answers in their browsers; with a subcommand for each task."""

import argparse
import json
import re
import urllib.parse
from collections.abc import Callable
from typing import Any

from gophercite.cli.arguments import amount, portion, positive, share
from gophercite.cli.output import RefusedError, require_on_disk, require_utf8
from gophercite.retrieval.apis import ENGINES

_FORMS = (
    "comparison",
    "free-text",
    "truthfulqa",
    "stance",
    "long-comparison",
    "minimal",
    "demonstration",
)
_KINDS = ("rated-answers", "comparisons", "dpo", "webgpt", "votes", "episodes")

_EXAMPLES = """\
from the start to the first rating:
  gophercite rate new study comparisons.jsonl --documents pages.jsonl
  gophercite rate serve study --invite me

then:
  gophercite rate invite study ada bob eve --url https://ratings.example.org
  gophercite rate status study
  gophercite rate export study comparisons comparisons rated.jsonl

`gophercite rate ACTION --help` has more; docs/ratings.md explains everything.
"""

# The app has all its pages at the top of a host.
_SITE = re.compile(r"https?://(\w[\w.-]*|\[[0-9a-f:.]+\])(:[0-9]{1,5})?/?", re.IGNORECASE)

Add = Callable[..., argparse.ArgumentParser]


def add(commands: Any) -> None:
    """Adds the command with its subcommands."""
    command = commands.add_parser(
        "rate",
        help="let people rate answers in their browsers",
        description="Let people rate answers in their browsers.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = command.add_subparsers(dest="action", required=True, metavar="ACTION")
    command.set_defaults(run=_run)

    def action(
        name: str, summary: str, *examples: str, folder: str = "STUDY", has_result: bool = True
    ) -> argparse.ArgumentParser:
        lines = "".join(f"\n  gophercite rate {name} {example}" for example in examples)
        parser: argparse.ArgumentParser = actions.add_parser(
            name,
            help=summary,
            description=summary,
            epilog=f"examples:{lines}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        what = "the study's folder" if folder == "STUDY" else "folder to write the pages to"
        parser.add_argument("study", metavar=folder, help=what)
        if has_result:
            parser.add_argument("--json", action="store_true", help="print the result as JSON")
        return parser

    _add_making(action)
    _add_serving(action)
    _add_people(action)
    _add_results(action)


def _run(options: argparse.Namespace) -> int:
    try:
        from sqlalchemy.exc import InterfaceError, OperationalError

        from gophercite.cli import rate_actions
        from gophercite.ratings.store import StudyError
        from gophercite.storage.json_fields import RecordError
    except ImportError as error:
        raise RefusedError(
            f"{error.name} is not installed: pip install 'gophercite[ratings]'"
        ) from None
    for name in ("study", "file", "out"):
        if (path := getattr(options, name, None)) is not None:
            require_on_disk(name, path)
    for name in ("experiment", "new", "name", "reason"):
        require_utf8(name, getattr(options, name, None))
    try:
        return rate_actions.ACTIONS[options.action](options)
    except (StudyError, RecordError) as error:
        raise RefusedError(str(error)) from error
    except (OperationalError, InterfaceError) as error:  # a full disk, a lock, a lost server
        raise RefusedError(f"the database of {options.study}: {error.orig}") from error
    except json.JSONDecodeError as error:
        raise RefusedError(
            f"the database of {options.study}: holds a value that is not JSON ({error}); restore "
            "it from a backup"
        ) from error


def _add_making(action: Add) -> None:
    new = action(
        "new",
        "make an experiment, and its study if there is none yet",
        "study comparisons.jsonl --documents pages.jsonl",
        "study answers.jsonl --form truthfulqa --questions truthfulqa.jsonl --experiment truth",
        "study rated.jsonl --screening --experiment screening --pool wide",
        "study --database postgresql+pg8000://me@host/ratings answers.jsonl",
        "study questions.jsonl --form demonstration --world webs/small/world_train",
    )
    new.add_argument("files", nargs="*", metavar="FILE", help="what to rate: .jsonl")
    new.add_argument(
        "--experiment", metavar="NAME", help="name of the experiment (default: the form's name)"
    )
    new.add_argument(
        "--form", choices=_FORMS, default="comparison", help="the form that raters fill in"
    )
    new.add_argument("--pool", default="super", help="pool of raters who may rate (default: super)")
    new.add_argument(
        "--screening",
        action="store_true",
        help="every rater rates all of FILE, and is compared with its labels",
    )
    new.add_argument("--checks", metavar="FILE", help="your own attention checks, or `none`")
    new.add_argument("--examples", metavar="FILE", help="your own examples, or `none`")
    new.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of docs/ratings.md, such as raters=6",
    )
    new.add_argument(
        "--database", metavar="URL", help="keep the data in PostgreSQL instead of a file"
    )
    _add_sources(new)
    browsed = new.add_argument_group(
        "what the demonstrators browse", "only for --form demonstration, where FILE holds questions"
    )
    worlds = browsed.add_mutually_exclusive_group()
    worlds.add_argument("--world", metavar="FOLDER", help="a recorded world")
    worlds.add_argument("--index", metavar="FILE", help="an index made by `gophercite index`")
    worlds.add_argument(
        "--engine",
        choices=ENGINES,
        help="the live web, with this search engine: raters' clicks then fetch unknown pages "
        "from the web",
    )
    browsed.add_argument(
        "--browser",
        dest="browser_settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a rule of the browser (docs/browser.md), such as view_lines=12 or actions=50",
    )

    more = action("add", "add items to an experiment, even while it runs", "study nq more.jsonl")
    more.add_argument("experiment", metavar="EXPERIMENT")
    more.add_argument("files", nargs="+", metavar="FILE", help="what to rate: .jsonl")
    _add_sources(more)


def _add_serving(action: Add) -> None:
    serve = action(
        "serve",
        "serve the web app until Ctrl-C",
        "study --invite me",
        "study --port 8080 --url https://ratings.example.org",
        has_result=False,
    )
    serve.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"
    )
    serve.add_argument(
        "--port",
        type=_port,
        default=8000,
        help="port to listen on (default: 8000; 0: a free port)",
    )
    serve.add_argument(
        "--invite",
        metavar="NAME",
        help="also print a link for this rater, in the pool of the newest experiment",
    )
    serve.add_argument(
        "--requests-a-minute",
        type=positive,
        default=300,
        metavar="N",
        help="of one rater, or of one address without a link (default: 300)",
    )
    _add_url(serve)

    backup = action(
        "backup", "copy the database while raters go on working", "study backups/monday.db"
    )
    backup.add_argument(
        "file", metavar="FILE", help="file to write the copy to; it must not exist yet"
    )


def _add_people(action: Add) -> None:
    invite = action(
        "invite",
        "print links for raters",
        "study ada bob --pool wide --days 7",
        "study ada --new-link",
    )
    invite.add_argument(
        "names", nargs="+", metavar="NAME", help="names of the raters; only you see them"
    )
    invite.add_argument("--pool", default="super", help="pool of these raters (default: super)")
    invite.add_argument(
        "--days",
        type=positive,
        default=14,
        help="number of days for which a link is valid (default: 14)",
    )
    invite.add_argument("--new-link", action="store_true", help="make earlier links invalid")
    _add_url(invite)

    undo = action(
        "undo",
        "stop counting a rater's votes; their items are handed out again",
        "study bob --reason 'answers at random'",
        "study bob --experiment nq",
        "study bob --redo",
    )
    undo.add_argument("name", metavar="NAME", help="the rater")
    undo.add_argument(
        "--experiment", metavar="NAME", help="only in this experiment (default: in all)"
    )
    undo.add_argument("--reason", default="excluded by command", help="reason, for the audit log")
    undo.add_argument("--redo", action="store_true", help="count them again")

    promote = action(
        "promote",
        "move the raters who pass a screening to the pool of super raters",
        "study screening",
        "study screening --least 0.9 --pool super",
    )
    promote.add_argument("experiment", metavar="EXPERIMENT")
    promote.add_argument("--pool", default="super", help="pool to move them to (default: super)")
    promote.add_argument(
        "--least",
        type=share,
        default=0.85,
        help="lowest agreement on each question (default: 0.85)",
    )

    admin = action(
        "admin",
        "set the password for the overview at /admin; it is asked for, or read from stdin",
        "study me",
    )
    admin.add_argument("name", metavar="NAME", help="name of the administrator")


def _add_results(action: Add) -> None:
    status = action("status", "show the progress of the experiments", "study", "study nq --json")
    status.add_argument("experiment", nargs="?", metavar="EXPERIMENT")

    export = action(
        "export",
        "write ratings as records, with the rules for which votes count",
        "study nq rated-answers rated.jsonl",
        "study nq comparisons comparisons.jsonl --minimum-seconds 10 --gold-right 0.7",
        "study nq dpo pairs.jsonl --adjudicated-by nq-decided",
        "study demonstration episodes demonstrations.jsonl.gz",
    )
    export.add_argument("experiment", metavar="EXPERIMENT")
    export.add_argument("kind", choices=_KINDS)
    export.add_argument("out", metavar="FILE")
    export.add_argument(
        "--minimum-seconds", type=amount, default=0.0, help="votes that took less time don't count"
    )
    export.add_argument(
        "--gold-right",
        type=portion,
        default=0.0,
        help="raters with a lower share of gold items right don't count",
    )
    export.add_argument(
        "--surplus",
        action="store_true",
        help="also count votes that came when there were enough already",
    )
    export.add_argument(
        "--adjudicated-by", metavar="EXPERIMENT", help="experiment whose votes decide"
    )
    export.add_argument("--comments", action="store_true", help="also export what raters wrote")

    imports = action(
        "import", "add votes that were collected elsewhere: .csv or .jsonl", "study nq votes.csv"
    )
    imports.add_argument("experiment", metavar="EXPERIMENT")
    imports.add_argument("file", metavar="FILE")

    view = action(
        "view",
        "write HTML pages of answers with rewards and ratings, to open from disk",
        "pages rated.jsonl comparisons.jsonl --title 'Answers to NQ'",
        "pages answers/rl_samples.jsonl --questions questions.jsonl",
        folder="FOLDER",
    )
    view.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="what `export`, `gophercite ask --json`, launch/infer.py or launch/eval.py wrote",
    )
    view.add_argument(
        "--documents",
        nargs="+",
        default=[],
        metavar="FILE",
        help="documents with the pages: .jsonl",
    )
    view.add_argument(
        "--questions", nargs="+", default=[], metavar="FILE", help="questions with their pages"
    )
    view.add_argument("--title", default="Rated answers", help="of the pages")

    adjudicate = action(
        "adjudicate",
        "make an experiment from the items that raters disagree on",
        "study nq nq-decided --pool researchers",
    )
    adjudicate.add_argument("experiment", metavar="EXPERIMENT")
    adjudicate.add_argument("new", metavar="NEW", help="name of the new experiment")
    adjudicate.add_argument(
        "--pool", default="researchers", help="pool of the raters who decide (default: researchers)"
    )


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--documents",
        nargs="+",
        default=[],
        metavar="FILE",
        help="documents with the pages: .jsonl",
    )
    parser.add_argument(
        "--questions", nargs="+", default=[], metavar="FILE", help="trusted answers: .jsonl"
    )
    parser.add_argument(
        "--gold", nargs="+", default=[], metavar="FILE", help="items whose labels are known"
    )


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url",
        type=_site,
        metavar="URL",
        help="where raters reach the server, as https://ratings.example.org (default: here)",
    )


def _site(text: str) -> str:
    """The address of a site, with its scheme in lower case."""
    if not _SITE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text}: must be like https://ratings.example.org")
    return urllib.parse.urlsplit(text).geturl().rstrip("/")


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 16:
        raise argparse.ArgumentTypeError(f"{number}: must be from 0 to 65535")
    return number
