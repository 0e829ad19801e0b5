"""How soon the judge of sampled answers sees that the constraint is broken.

    python benchmarks/broken_constraints.py [--scratch FOLDER] [--only TEXT]

Each way to break it is a change of one or two lines of the code, made in a copy in which
benchmarks/legal_answers.py then draws until the judge finds fault, with the vocabulary, pages and
setting that the change should show in. As it stands, the code draws without a fault. What lives is
a change that the judge could not see in so many samples.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
COPIED = "gophercite", "benchmarks", "tests"


class Edit(NamedTuple):
    file: str
    old: str
    new: str


class Break(NamedTuple):
    """A way to break the constraint.

    Attributes:
      name: what is wrong then.
      edits: of files in gophercite.
      setting: in which it should show.
    """

    name: str
    edits: tuple[Edit, ...]
    setting: str


SEVERAL, BUSY = "omissions, three triples", "rows refilled, prompts wait"
LIMITS, SCARCE = "limits of length", "hardly any tokens"
COST = "legal &= look_up(tables.cost, look_up(tables.node, edge), missing) < tokens_left[:, None]"
CLAIM_COST = "(costs[:, :, 0] < tokens_left[:, None])"

BREAKS = [
    Break(
        "a token too few is left for the rest, outside claims",
        (Edit("quoting/quote_state.py", COST, COST.replace("<", "<=")),),
        SCARCE,
    ),
    Break(
        "a token too few is left for the rest, in claims",
        (Edit("quoting/quote_state.py", CLAIM_COST, CLAIM_COST.replace("<", "<=")),),
        SCARCE,
    ),
    Break(
        "where few tokens are allowed, all that the node has are",
        (
            Edit(
                "decoding/sampling.py",
                "_among(legal, logits.tokens(tokens))",
                "_among(legal | True, logits.tokens(tokens))",
            ),
        ),
        BUSY,
    ),
    Break(
        "a quote may be shorter than the minimum",
        (
            Edit(
                "quoting/quote_state.py",
                "legal &= look_up(tables.need, edge) <= had",
                "legal &= look_up(tables.need, edge) <= had + 1",
            ),
        ),
        BUSY,
    ),
    Break(
        "all prompts quote the first one's pages",
        (Edit("quoting/quote_state.py", "tables.first[prompts]", "tables.first[prompts * 0]"),),
        BUSY,
    ),
    Break(
        "prompts that waited quote the pages of those whose slots they take",
        (
            Edit(
                "decoding/decode_state.py",
                "of_row = jnp.repeat(state.prompts, rows)",
                "of_row = jnp.repeat(jnp.arange(fresh.shape[0]), rows)",
            ),
        ),
        BUSY,
    ),
    Break(
        "rows that go on with another sample keep their place in the graph",
        (
            Edit(
                "decoding/decode_state.py",
                "quote = jax.tree.map("
                "anew, initial(work.quotes, of_row, state.sample.reshape(-1)), quote)",
                "begun = initial(work.quotes, of_row, state.sample.reshape(-1))\n"
                "        quote = jax.tree.map(anew, begun, quote)._replace(node=quote.node)",
            ),
        ),
        SEVERAL,
    ),
    Break(
        "triples are not counted",
        (
            Edit(
                "quoting/quote_state.py",
                "triples=state.triples + triples,",
                "triples=state.triples + 0 * triples,",
            ),
        ),
        SEVERAL,
    ),
    Break(
        "one omission too many",
        (
            Edit(
                "quoting/quote_state.py",
                "state.omissions[:, None] + omissions <= settings.maximum_omissions",
                "state.omissions[:, None] + omissions <= settings.maximum_omissions + 1",
            ),
        ),
        SEVERAL,
    ),
    Break(
        "a quote or claim may be a character too long",
        (
            Edit(
                "quoting/quote_state.py",
                "look_up(tables.reach, edge) <= longest",
                "look_up(tables.reach, edge) <= longest + 1",
            ),
        ),
        LIMITS,
    ),
    Break(
        "a quote may go on from one page of a title to the next",
        (
            Edit(
                "quoting/suffix_automaton.py",
                "last: Any = np.int64(roots[group])\n",
                "if not text or groups[text - 1] != group:\n"
                "            last: Any = np.int64(roots[group])\n",
            ),
        ),
        BUSY,
    ),
    Break(
        "texts are cut behind their marks",
        (
            Edit(
                "quoting/pieces.py",
                "np.arange(start, first + end - 1)",
                "np.arange(start, min(first + end, last))",
            ),
        ),
        BUSY,
    ),
    Break(
        "quotes may end inside a character",
        (
            Edit(
                "quoting/quote_graph.py",
                "may_end = complete.copy()",
                "may_end = np.ones_like(complete)",
            ),
        ),
        BUSY,
    ),
    Break(
        "quotes may be white space",
        (
            Edit("quoting/quote_graph.py", "space = alone[text]", "space = alone[text] & False"),
            Edit(
                "quoting/quote_graph.py", "space[at + len(blank) - 1] = True", "space[at] = False"
            ),
            # Whole words are never white space, whatever this rule says.
            Edit(
                "quoting/quote_settings.py",
                'boundaries: Boundaries = "words"',
                'boundaries: Boundaries = "characters"',
            ),
        ),
        SEVERAL,
    ),
    Break(
        "titles in lower case",
        (Edit("quoting/quote_graph.py", "(title + QUOTE_MARK)", "(title.lower() + QUOTE_MARK)"),),
        BUSY,
    ),
]


def run_broken(each: Break, flags: argparse.Namespace) -> str:
    """What legal_answers.py says in a copy that is broken so."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        for edit in each.edits:
            path = copy / "gophercite" / edit.file
            code = path.read_text("utf-8")
            if code.count(edit.old) != 1:
                sys.exit(
                    f"{path.name}: {edit.old!r} is there {code.count(edit.old)} times, not once"
                )
            path.write_text(code.replace(edit.old, edit.new), "utf-8")
        command = [
            sys.executable, "benchmarks/legal_answers.py", "--until-fault",
            "--samples", str(flags.samples), "--scratch", str(flags.scratch),
            "--results", str(copy / "results.jsonl"), "--data", str(flags.data),
            "--vocabulary", flags.vocabulary, "--setting", each.setting,
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, cwd=copy, capture_output=True, text=True, check=False,
                timeout=60 * flags.minutes,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            drawn = (copy / "results.jsonl").exists()
            return f"{'lives' if drawn else 'never ends a batch'}, {flags.minutes} minutes | "
        lines = done.stdout.splitlines()
        if done.returncode == 1 and any(line.startswith("found after") for line in lines):
            samples = next(line.split()[2] for line in lines if line.startswith("found after"))
            return f"{samples} | {lines[0][-150:]}"
        if done.returncode == 0:
            return f"lives after {flags.samples} | "
        return f"crashed | {done.stderr.splitlines()[-1][:150]}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = pathlib.Path(tempfile.gettempdir()) / "legal_answers"
    parser.add_argument("--scratch", type=pathlib.Path, default=default)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "../shared/data")
    parser.add_argument("--samples", type=int, default=3000, help="after which a change lives")
    parser.add_argument("--minutes", type=float, default=15, help="after which a change is left")
    parser.add_argument("--vocabulary", default="over marks")
    parser.add_argument("--only", default="", help="ways with this in their names")
    flags = parser.parse_args()
    flags.scratch, flags.data = flags.scratch.resolve(), flags.data.resolve()
    print("| broken | samples until it is seen | for instance |\n|---|---|---|")
    for each in BREAKS:
        if flags.only in each.name:
            print(f"| {each.name} | {run_broken(each, flags)} |", flush=True)


if __name__ == "__main__":
    main()
