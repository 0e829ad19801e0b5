"""Divides questions into disjoint sets, for demonstrations, comparisons and RL.

    python -m data_pipelines.question_sets QUESTIONS.jsonl OUT --share rm=1 --share rl=3 \\
        --without demonstrations_train.jsonl.gz

OUT gets `questions_NAME.jsonl` for each share; the sets are mutually disjoint (WebGPT, 3.2). The
set of a question depends only on its text, so it is in the same set whichever file it comes from.
Questions in the files of --without (episodes, comparisons or questions) are in no set.
"""

import argparse
import hashlib
import math
import sys
from collections.abc import Mapping, Sequence

from data_pipelines.browsing_input import asked_as, questions_of
from data_pipelines.disk_paths import path_on_disk
from gophercite import records
from gophercite.storage.json_fields import in_one_line
from gophercite.storage.overwriting import refuse_overwriting


def set_of(question: str, shares: Mapping[str, float]) -> str:
    """Returns the name of the set to which a question belongs.

    Args:
      question: its text.
      shares: relative sizes of the sets.
    """
    digest = hashlib.sha256(asked_as(question).encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64 * sum(shares.values())
    for name, share in shares.items():
        if place < share:
            return name
        place -= share
    return name


def in_share(question: str, share: float) -> bool:
    """Whether a question is in a part of a data set, as used by a scaling experiment.

    A smaller part is contained in every larger one. Parts are independent of all other divisions.

    Args:
      question: its text, or another key that all its records share.
      share: size of the part, above 0 and at most 1.
    """
    return set_of(f"share of {question}", {"in": share, "out": 1 - share}) == "in"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.question_sets",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "questions",
        type=path_on_disk,
        metavar="QUESTIONS",
        help="question records, .jsonl or .jsonl.gz",
    )
    parser.add_argument("out", type=path_on_disk, metavar="OUT", help="folder to write to")
    parser.add_argument("--share", action="append", required=True, metavar="NAME=N")
    parser.add_argument("--without", action="append", default=[], metavar="FILE")
    options = parser.parse_args(arguments)
    shares: dict[str, float] = {}
    for share in options.share:
        name, _, size = share.partition("=")
        if name in shares:
            parser.error(f"--share {share}: the name {name!r} was given before")
        try:
            shares[name] = float(size)
        except ValueError:
            parser.error(f"--share {share}: expected NAME=NUMBER, such as rl=3")
        if not name.isidentifier() or not 0 < shares[name] < math.inf:
            parser.error(f"--share {share}: expected a name and a number above 0")
    dealt: dict[str, list[records.Question]] = {name: [] for name in shares}
    files = {name: options.out / f"questions_{name}.jsonl" for name in shares}
    report = records.Report()
    try:
        refuse_overwriting(files.values(), [options.questions, *options.without])
        excluded = questions_of(options.without)
        for each in records.read(options.questions, records.Question, report=report):
            key = asked_as(each.question)
            if key not in excluded:
                excluded.add(key)
                dealt[set_of(each.question, shares)].append(each)
        for problem in report.errors:
            print(problem, file=sys.stderr)
        if not any(dealt.values()):
            raise ValueError(f"{options.questions}: holds no question that can be used")
        options.out.mkdir(parents=True, exist_ok=True)
        for name, questions in dealt.items():
            records.write(files[name], questions)
    except (OSError, ValueError) as error:
        print(f"question_sets: {in_one_line(error)}", file=sys.stderr)
        return 1
    counts = ", ".join(f"{len(questions)} {name}" for name, questions in dealt.items())
    print(f"{report.read} questions: {counts}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
