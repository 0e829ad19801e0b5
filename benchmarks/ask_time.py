"""Seconds that `gophercite ask` takes, from its start to its end, question by question.

    python benchmarks/ask_time.py
    python benchmarks/ask_time.py --rounds 6 --before FOLDER

Each question is asked once first, so that its program is there: that is the time of a user's second
question. `--before` is another checkout of this repository, which takes turns with this one.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[1]
QUESTIONS = (
    "Who leads the town council?",
    "Who built the lighthouse?",
    "How long is the river?",
    "When was the lighthouse built?",
    "How high is the lighthouse?",
)


def seconds(checkout: pathlib.Path, question: str, model: str) -> float:
    """Asks about examples/notes, with this Python and the checkout's code."""
    documents = ROOT / "examples" / "notes"
    command = [sys.executable, "-m", "gophercite", "ask", question]
    command += ["--documents", str(documents), "--model", str(pathlib.Path(model).resolve())]
    start = time.perf_counter()
    subprocess.run(command, cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(ROOT / "models" / "smollm2-citing"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=pathlib.Path, metavar="FOLDER")
    flags = parser.parse_args()
    checkouts = {"now": ROOT} | ({"before": flags.before.resolve()} if flags.before else {})
    took: dict[tuple[str, str], list[float]] = {}
    for turn in range(flags.rounds + 1):
        for question in QUESTIONS:
            for name, checkout in checkouts.items():
                spent = seconds(checkout, question, flags.model)
                if turn:  # the first time compiles what is missing
                    took.setdefault((question, name), []).append(spent)
    names = list(checkouts)
    print("| question | " + " | ".join(f"{name}: median; best" for name in names) + " |")
    print("|---|" + "---|" * len(names))
    for question in QUESTIONS:
        cells = [
            f"{statistics.median(took[question, name]):.1f}; {min(took[question, name]):.1f} s"
            for name in names
        ]
        print(f"| {question} | " + " | ".join(cells) + " |")
    for name in names:
        medians = [statistics.median(took[question, name]) for question in QUESTIONS]
        print(f"{name}: median of the questions' medians {statistics.median(medians):.1f} s")


if __name__ == "__main__":
    main()
