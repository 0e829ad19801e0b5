"""Walks through the first hour of a new user: every command of README in a fresh clone, timed.

    python benchmarks/first_hour.py --out docs/first_hour.md
    python benchmarks/first_hour.py README.md docs/notebooks.md --out walk.md

Commands are the lines of the pages' ```bash blocks, in order. They run as they are written, in a
clone of this repository's HEAD, each after the other; what `source`, `export` and `cd` change is
kept. The page holds a table (command, seconds, exit status) and the end of what each command
printed. What stands between its markers `stumbles` was written by a person, and is kept.
"""

import argparse
import datetime
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"\s+#\s.*$")
_STATE = ("source ", "export ", "cd ")  # what changes the shell itself
_STUMBLES = re.compile(r"<!-- stumbles: begin -->\n(.*?)<!-- stumbles: end -->", re.DOTALL)
_SHOWN = 12  # lines of a command's output


class Step(NamedTuple):
    """A command that was run: from which page, how long it took, what it returned and printed."""

    page: str
    command: str
    seconds: float
    status: int
    output: str


def commands_of(page: str) -> list[str]:
    """The commands in the ```bash blocks of a Markdown text, without comments, in order."""
    lines = (line for block in _BLOCK.findall(page) for line in _joined(block))
    return [command for line in lines if (command := _COMMENT.sub("", line).strip())]


def _joined(block: str) -> list[str]:
    """Lines, each with those that continue it; whole-line comments are left out."""
    whole = re.sub(r"\\\n\s*", "", block).splitlines()
    return [line for line in whole if not line.lstrip().startswith("#")]


def walk(pages: list[str], clone: pathlib.Path, limit: float) -> Iterator[Step]:
    """Runs the commands of pages in a folder; goes on after one that fails."""
    state = ["set -o pipefail"]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name
        in ("HOME", "LANG", "TERM", "USER", "PIP_INDEX_URL", "PIP_CACHE_DIR", "SSL_CERT_FILE")
    } | {"PATH": os.defpath + ":/usr/local/bin"}
    # What other walks have compiled is not there; pip's downloads may be.
    environment["XDG_CACHE_HOME"] = f"{clone}.cache"
    environment.setdefault("PIP_CACHE_DIR", str(pathlib.Path.home() / ".cache" / "pip"))
    if python := os.environ.get("PYTHON"):
        environment["PYTHON"] = python
    for page in pages:
        for command in commands_of((clone / page).read_text("utf-8")):
            print(f"$ {command}", file=sys.stderr, flush=True)
            start = time.monotonic()
            try:
                done = subprocess.run(
                    ["bash", "-c", "\n".join([*state, command])],
                    cwd=clone,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=limit,
                    check=False,
                )
                status, output = done.returncode, done.stdout
            except subprocess.TimeoutExpired as error:
                status, output = 124, error.stdout or b""
            text = output.decode("utf-8", errors="replace").replace(str(clone), "~/gophercite")
            yield Step(page, command, time.monotonic() - start, status, text)
            if command.startswith(_STATE) and status == 0:
                state.append(command)


def report(steps: list[Step], revision: str, machine: str, stumbles: str) -> str:
    """The page."""
    total = sum(step.seconds for step in steps)
    failed = sum(step.status != 0 for step in steps)
    lines = [
        "# The first hour",
        "",
        "A fresh clone, and nothing but README and the pages named here: every command as it is",
        "written, in order, by `python benchmarks/first_hour.py --out docs/first_hour.md`.",
        "",
        f"{datetime.date.today()}, revision {revision}, {machine}: {len(steps)} commands, "
        f"{failed} of them failed, {total / 60:.1f} minutes.",
        "",
        "## What was stumbled over",
        "",
        "<!-- stumbles: begin -->",
        stumbles.strip(),
        "<!-- stumbles: end -->",
        "",
        "## Each command",
        "",
        "| Page | Command | Seconds | Exit status |",
        "|---|---|---|---|",
    ]
    for step in steps:
        shown = step.command.replace("|", "\\|")
        lines.append(f"| {step.page} | `{shown}` | {step.seconds:.1f} | {step.status} |")
    lines += ["", "## What they printed", "", "The last lines of each.", ""]
    for step in steps:
        printed = [line.rsplit("\r", 1)[-1].rstrip() for line in step.output.splitlines()]
        # What pip warns of is the machine's own configuration.
        printed = [line for line in printed if not line.startswith("WARNING: ")]
        cut = ["…"] if len(printed) > _SHOWN else []
        lines += ["```", f"$ {step.command}", *cut, *printed[-_SHOWN:], "```", ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", default=["README.md"], metavar="PAGE")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FILE.md")
    parser.add_argument("--machine", default=f"{os.cpu_count()} CPU cores", help="in words")
    parser.add_argument("--limit", type=float, default=1800, help="seconds a command may take")
    flags = parser.parse_args()
    stumbles = "Not written yet.\n"
    if flags.out.exists() and (kept := _STUMBLES.search(flags.out.read_text("utf-8"))):
        stumbles = kept[1]
    with tempfile.TemporaryDirectory() as folder:
        clone = pathlib.Path(folder, "gophercite")
        git = ("git", "-c", "advice.detachedHead=false")
        subprocess.run([*git, "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
        named = subprocess.run(
            [*git, "-C", clone, "rev-parse", "--short", "HEAD"],
            check=True,
            capture_output=True,
            text=True,
        )
        steps = list(walk(flags.pages, clone, flags.limit))
    flags.out.write_text(report(steps, named.stdout.strip(), flags.machine, stumbles), "utf-8")
    return int(any(step.status for step in steps))


if __name__ == "__main__":
    sys.exit(main())
