"""Whether every answer under the quote constraint is well formed and verbatim: the 100 % table.

    python benchmarks/legal_answers.py --samples 10000
    python benchmarks/legal_answers.py --samples 1000000 --results legal.jsonl   # again and again
    python benchmarks/legal_answers.py --results legal.jsonl --samples 0         # only the table

The real sampler draws answers of models with random weights about real pages (from ../shared/data,
where that folder exists) and made-up ones, over vocabularies of several kinds that are trained once
(tests/quoting/drawn_answers.py has the settings, page_kinds.py the pages, legal_vocabularies.py
the vocabularies). A judge that shares no code with the constraint (tests/quoting/answer_judge.py)
reads each. Results are appended to a file, a line a batch, with whatever was wrong as a whole; a
run goes on where those before it, or beside it, spent the least time. One that finds a fault
exits with status 1. A line's batch is drawn again by its names and seed:

    python benchmarks/legal_answers.py --vocabulary bytes --pages emoji --setting top-k --seed 17
"""

import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import secrets
import sys
import tempfile
import time
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Eight simulated devices wait for one another in threads: with one a core, as XLA has it, they may
# all be taken by devices that wait for one that has none (tests/conftest.py).
os.environ.setdefault("PJRT_NPROC", "32")
ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import jax  # noqa: E402

from benchmarks import legal_vocabularies  # noqa: E402
from gophercite.quoting.table_sizes import TableSizes  # noqa: E402
from tests.quoting import drawn_answers, page_kinds  # noqa: E402

# They hold a page of 100 kB and seven windows, so that a setting has one program a vocabulary size.
SIZES = TableSizes(1 << 18, 1 << 21)

Line = dict[str, Any]


def training_texts(data: pathlib.Path) -> list[str]:
    """What vocabularies are trained on: some 4 MB of text."""
    if not data.exists():
        kinds = page_kinds.made_up().values()
        rng = random.Random(0)
        return [next(kind(rng))[0].text for kind in kinds for _ in range(500)]
    return [page.text for page in page_kinds.training_pages(data)]


def digest_of_code() -> str:
    """A name for what drew the samples: the code of sampling and of the constraint."""
    digest = hashlib.sha256()
    for room in ("decoding", "quoting"):
        for path in sorted((ROOT / "gophercite" / room).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def read_lines(path: pathlib.Path) -> list[Line]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


class Run:
    """Draws batches, and appends what the judge says."""

    def __init__(self, flags: argparse.Namespace) -> None:
        self._flags = flags
        self._code = digest_of_code()
        self._texts: list[str] | None = None
        self._drawers: dict[tuple[str, str], drawn_answers.AnswerDrawer] = {}
        self.kinds = page_kinds.real(flags.data, flags.scratch) | page_kinds.made_up()

    def batch(self, vocabulary: str, setting: str, pages: str, seed: int) -> Line:
        begun = time.perf_counter()
        judged = self._drawer(vocabulary, setting).judge_batch(self.kinds[pages], seed)
        return {
            "vocabulary": vocabulary,
            "setting": setting,
            "pages": pages,
            "seed": seed,
            "samples": judged.samples,
            "full": judged.full,
            "several": judged.several,
            "joined": judged.joined,
            "faults": len(judged.offences),
            "offences": [each._asdict() for each in judged.offences],
            "seconds": round(time.perf_counter() - begun, 2),
            "code": self._code,
        }

    def _drawer(self, vocabulary: str, setting: str) -> drawn_answers.AnswerDrawer:
        if (vocabulary, setting) not in self._drawers:
            self._texts = self._texts or training_texts(self._flags.data)
            path = legal_vocabularies.file_of(vocabulary, self._flags.scratch, self._texts)
            self._drawers[vocabulary, setting] = drawn_answers.AnswerDrawer(
                path, drawn_answers.SETTINGS[setting], SIZES
            )
        return self._drawers[vocabulary, setting]


def print_tables(lines: list[Line]) -> None:
    """Samples by pages and vocabulary, then by setting."""
    vocabularies = [name for name in legal_vocabularies.KINDS if _of(lines, "vocabulary", name)]
    print("\n| pages | " + " | ".join(vocabularies) + " | all | faults |")
    print("|---|" + "---|" * (len(vocabularies) + 2))
    for pages in [*dict.fromkeys(line["pages"] for line in lines), None]:
        rows = _of(lines, "pages", pages) if pages is not None else lines
        cells = [sum(x["samples"] for x in _of(rows, "vocabulary", v)) for v in vocabularies]
        numbers = [*cells, sum(cells), sum(line["faults"] for line in rows)]
        print(f"| {pages or 'all'} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
    print("\n| setting | samples | with all tokens used | several triples | omissions | faults |")
    print("|---|---|---|---|---|---|")
    for setting in drawn_answers.SETTINGS:
        rows = _of(lines, "setting", setting)
        names = "samples", "full", "several", "joined", "faults"
        numbers = [sum(line[name] for line in rows) for name in names]
        print(f"| {setting} | " + " | ".join(f"{number:,}" for number in numbers) + " |")


def _of(lines: list[Line], name: str, value: str) -> list[Line]:
    return [line for line in lines if line[name] == value]


def chosen(names: list[str], wanted: str | None, flag: str) -> list[str]:
    """The name that a text is, or those that hold it."""
    if wanted in names:
        return [wanted]
    found = [name for name in names if wanted is None or wanted in name]
    if not found:
        sys.exit(f"{flag} {wanted}: no such one; there are: {'; '.join(names)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = pathlib.Path(tempfile.gettempdir()) / "legal_answers"
    parser.add_argument("--samples", type=int, default=10_000, help="in the file when it is done")
    parser.add_argument("--results", type=pathlib.Path, help="default: results.jsonl in --scratch")
    parser.add_argument("--scratch", type=pathlib.Path, default=default, help="vocabularies, pages")
    parser.add_argument("--data", type=pathlib.Path, default=page_kinds.DATA)
    parser.add_argument("--vocabulary", metavar="TEXT", help="those with this in their names")
    parser.add_argument("--pages", metavar="TEXT", help="likewise")
    parser.add_argument("--setting", metavar="TEXT", help="likewise")
    parser.add_argument("--seed", type=int, help="draw the chosen batches once, by this seed")
    parser.add_argument("--until-fault", action="store_true", help="stop at the first fault")
    flags = parser.parse_args()
    results = flags.results or flags.scratch / "results.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    vocabularies = chosen(list(legal_vocabularies.KINDS), flags.vocabulary, "--vocabulary")
    settings = chosen(list(drawn_answers.SETTINGS), flags.setting, "--setting")
    jax.config.update("jax_num_cpu_devices", 8)
    run = Run(flags)
    pages = chosen(list(run.kinds), flags.pages, "--pages")
    if not flags.data.exists():
        print(f"{flags.data}: no such folder; made-up pages only", file=sys.stderr)

    begun, drawn = time.perf_counter(), 0
    lines = read_lines(results)
    while flags.seed is not None or sum(line["samples"] for line in lines) < flags.samples:
        spent = collections.defaultdict[tuple[str, str], float](float)
        for line in lines:
            spent[line["vocabulary"], line["setting"]] += line["seconds"]
        cells = [(vocabulary, setting) for vocabulary in vocabularies for setting in settings]
        if flags.seed is None:
            cells = [min(cells, key=lambda cell: (spent[cell], secrets.randbits(32)))]
        for vocabulary, setting in cells:
            for name in pages:
                seed = secrets.randbits(31) if flags.seed is None else flags.seed
                line = run.batch(vocabulary, setting, name, seed)
                with results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                drawn += line["samples"]
                for offence in line["offences"]:
                    print(f"{vocabulary}, {setting}, {name}, --seed {seed}: {offence['faults']}")
                if line["faults"] and flags.until_fault:
                    print(f"found after {drawn} samples")
                    sys.exit(1)
        lines = read_lines(results)
        done, rate = sum(line["samples"] for line in lines), drawn / (time.perf_counter() - begun)
        print(
            f"{done:,} samples, {sum(line['faults'] for line in lines)} faults; {rate:.0f} a second"
            f", {max(0, flags.samples - done) / rate / 60:.0f} minutes to go ({vocabulary}; "
            f"{setting})",
            file=sys.stderr,
            flush=True,
        )
        if flags.seed is not None:
            break
    print_tables(lines)
    sys.exit(any(line["faults"] for line in lines))


if __name__ == "__main__":
    main()
