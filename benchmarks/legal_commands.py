"""Whether all that is written under the command constraint is valid: actions and answers.

    python benchmarks/legal_commands.py --samples 10000
    python benchmarks/legal_commands.py --samples 100000 --results legal.jsonl   # again and again
    python benchmarks/legal_commands.py --results legal.jsonl --samples 0        # only the table

As benchmarks/legal_answers.py, whose vocabularies and pages it takes: models with random weights
browse worlds made of these pages, several episodes side by side (tests/commands/drawn_commands.py
has the ways of drawing). Each sample is tried by the environment's own `step`, and by judges that
share no code with the constraint. Results are appended to a file, a line a batch, with whatever was
wrong as a whole; a run goes on where those before it spent the least time. One that finds a
fault exits with status 1. A line's batch is drawn again by its names and seed.
"""

import argparse
import collections
import json
import os
import pathlib
import secrets
import sys
import tempfile
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import legal_vocabularies  # noqa: E402
from benchmarks.legal_answers import (  # noqa: E402
    Line,
    chosen,
    digest_of_code,
    read_lines,
    training_texts,
)
from gophercite.quoting.table_sizes import TableSizes  # noqa: E402
from tests.commands import drawn_commands  # noqa: E402
from tests.quoting import page_kinds  # noqa: E402

SIZES = TableSizes(1 << 16, 1 << 19)


class Run:
    """Draws batches, and says what the judges say."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self._flags = flags
        self._code = digest_of_code()
        self._texts: list[str] | None = None
        self._drawers: dict[tuple[str, str], drawn_commands.CommandDrawer] = {}
        self.kinds = page_kinds.real(flags.data, flags.scratch) | page_kinds.made_up()

    def batch(self, vocabulary: str, drawing: str, pages: str, seed: int) -> Line:
        begun = time.perf_counter()
        judged = self._drawer(vocabulary, drawing).judge_batch(self.kinds[pages], seed)
        return {
            "vocabulary": vocabulary,
            "drawing": drawing,
            "pages": pages,
            "seed": seed,
            "samples": judged.samples.total(),
            "kinds": dict(judged.samples),
            "full": judged.full,
            "cited": judged.cited,
            "marked": judged.marked,
            "faults": len(judged.offences),
            "offences": [each._asdict() for each in judged.offences],
            "seconds": round(time.perf_counter() - begun, 2),
            "code": self._code,
        }

    def _drawer(self, vocabulary: str, drawing: str) -> drawn_commands.CommandDrawer:
        if (vocabulary, drawing) not in self._drawers:
            self._texts = self._texts or training_texts(self._flags.data)
            path = legal_vocabularies.file_of(vocabulary, self._flags.scratch, self._texts)
            self._drawers[vocabulary, drawing] = drawn_commands.CommandDrawer(
                path, drawn_commands.DRAWINGS[drawing], SIZES
            )
        return self._drawers[vocabulary, drawing]


def print_tables(lines: list[Line]) -> None:
    """Samples by what they are, then by vocabulary, drawing and pages."""
    kinds = collections.Counter[str]()
    for line in lines:
        kinds.update(line["kinds"])
    print("\n| written | samples |\n|---|---|")
    for name, count in kinds.most_common():
        print(f"| {name} | {count:,} |")
    names = "samples", "full", "marked", "cited", "faults"
    for field in ("vocabulary", "drawing", "pages"):
        print(f"\n| {field} | samples | all tokens used | start━end | answers that cite | faults |")
        print("|---|---|---|---|---|---|")
        for value in [*dict.fromkeys(line[field] for line in lines), None]:
            rows = [line for line in lines if value is None or line[field] == value]
            numbers = [sum(line[name] for line in rows) for name in names]
            cells = " | ".join(f"{number:,}" for number in numbers)
            print(f"| {value or 'all'} | {cells} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = pathlib.Path(tempfile.gettempdir()) / "legal_answers"
    parser.add_argument("--samples", type=int, default=10_000, help="in the file when it is done")
    parser.add_argument("--results", type=pathlib.Path, help="default: commands.jsonl in --scratch")
    parser.add_argument("--scratch", type=pathlib.Path, default=default, help="vocabularies, pages")
    parser.add_argument("--data", type=pathlib.Path, default=page_kinds.DATA)
    parser.add_argument("--vocabulary", metavar="TEXT", help="those with this in their names")
    parser.add_argument("--pages", metavar="TEXT", help="likewise")
    parser.add_argument("--drawing", metavar="TEXT", help="likewise")
    parser.add_argument("--seed", type=int, help="draw the chosen batches once, by this seed")
    flags = parser.parse_args()
    results = flags.results or flags.scratch / "commands.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    vocabularies = chosen(list(legal_vocabularies.KINDS), flags.vocabulary, "--vocabulary")
    drawings = chosen(list(drawn_commands.DRAWINGS), flags.drawing, "--drawing")
    run = Run(flags)
    pages = chosen(list(run.kinds), flags.pages, "--pages")
    begun, drawn = time.perf_counter(), 0
    lines = read_lines(results)
    while flags.seed is not None or sum(line["samples"] for line in lines) < flags.samples:
        spent = collections.defaultdict[tuple[str, str], float](float)
        for line in lines:
            spent[line["vocabulary"], line["drawing"]] += line["seconds"]
        cells = [(vocabulary, drawing) for vocabulary in vocabularies for drawing in drawings]
        if flags.seed is None:
            cells = [min(cells, key=lambda cell: (spent[cell], secrets.randbits(32)))]
        for vocabulary, drawing in cells:
            for name in pages:
                seed = secrets.randbits(31) if flags.seed is None else flags.seed
                line = run.batch(vocabulary, drawing, name, seed)
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                drawn += line["samples"]
                for offence in line["offences"]:
                    print(f"{vocabulary}, {drawing}, {name}, --seed {seed}: {offence['faults']}")
        lines = read_lines(results)
        done, rate = sum(line["samples"] for line in lines), drawn / (time.perf_counter() - begun)
        print(
            f"{done:,} samples, {sum(line['faults'] for line in lines)} faults; {rate:.0f} a second"
            f" ({vocabulary}; {drawing})",
            file=sys.stderr,
            flush=True,
        )
        if flags.seed is not None:
            break
    print_tables(lines)
    sys.exit(any(line["faults"] for line in lines))


if __name__ == "__main__":
    main()
