"""The paper's sentence baselines on real questions: exact, and without any model (table 1a).

    python benchmarks/baselines.py --questions 500

Reads public sets (docs/public_data.md), whole articles where they have some, asks each set as many
questions, drawn by their ids, and prints a table for each in Markdown: percentages with 90 %
intervals (Wilson).
"""

import argparse
import pathlib
import sys
import zlib

from public_data import add_data

from data_pipelines.converters.articles import join_passages
from data_pipelines.converters.fairytaleqa import convert_fairytaleqa
from data_pipelines.converters.gold import ConversionReport, Converter, GoldQuestion
from data_pipelines.converters.natural_questions import convert_natural_questions
from data_pipelines.converters.squad import convert_squad
from data_pipelines.converters.writing import ConversionSettings, to_records
from gophercite.evaluation.baselines import judge_baselines
from gophercite.reports.report import metrics_table

# What reads a file, the file, and whether its passages are parts of articles.
SETS: dict[str, tuple[Converter, str, bool]] = {
    "passages (Natural Questions)": (
        *(convert_natural_questions, "natural_questions/gold_passages.jsonl.gz"),
        False,
    ),
    "Wikipedia articles (SQuAD 1.1)": (convert_squad, "squad/wikipedia.json.gz", True),
    "Wikipedia articles (SquadShifts)": (convert_squad, "squad/shifts_new_wiki.json.gz", True),
    "privacy policies (PolicyQA)": (convert_squad, "squad/policyqa_dev.json.gz", True),
    "Reddit paragraphs (SquadShifts)": (convert_squad, "squad/shifts_reddit.json.gz", False),
    "Amazon paragraphs (SquadShifts)": (
        *(convert_squad, "squad/shifts_amazon_reviews.json.gz"),
        False,
    ),
    "sections of stories (FairytaleQA)": (convert_fairytaleqa, "fairytaleqa/val.jsonl.gz", False),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data(parser)
    parser.add_argument("--questions", type=int, default=500, help="of each set (default: 500)")
    flags = parser.parse_args()
    for name, (convert, file, articles) in SETS.items():
        asked = read_gold(convert, flags.data / file, articles=articles)
        drawn = sorted(asked, key=lambda item: zlib.crc32(item.id.encode()))[: flags.questions]
        questions = [
            to_records(item, (item.document,), name, ConversionSettings())[0] for item in drawn
        ]
        print(f"{name}: {len(drawn)} of {len(asked)} questions\n")
        print(metrics_table(judge_baselines(questions)).markdown(), flush=True)
    return 0


def read_gold(convert: Converter, path: pathlib.Path, *, articles: bool) -> list[GoldQuestion]:
    """The questions of a set that have an answer and a span that proves it."""
    found = list(convert(path, ConversionReport()))
    found = join_passages(found) if articles else found
    return [item for item in found if item.answers and item.span is not None]


if __name__ == "__main__":
    sys.exit(main())
