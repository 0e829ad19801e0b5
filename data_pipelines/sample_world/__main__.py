"""Writes a sample world to files: documents, questions, rated answers and pretraining text.

    python -m data_pipelines.sample_world --out DIR [--seed 0] [--questions 1000] [--pages 1000]

DIR gets, for each split, `documents_SPLIT.jsonl`, `questions_SPLIT.jsonl`,
`rated_answers_SPLIT.jsonl` and `text_SPLIT.txt`.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from data_pipelines.disk_paths import path_on_disk
from data_pipelines.sample_world import names, texts
from data_pipelines.sample_world.convert import to_question, to_rated_answer
from data_pipelines.sample_world.world import World
from gophercite import records
from gophercite.storage.json_fields import in_one_line


def write_world(out: Path, world: World, questions: int) -> dict[str, int]:
    """Writes the files of one split, and returns the number of records in each.

    Args:
      out: the folder; created if it is missing.
      world: the world with the pages and questions.
      questions: number of questions, of rated answers and of pretraining texts of each form.
    """
    out.mkdir(parents=True, exist_ok=True)
    indices = range(questions)
    counts = {}
    for kind, items in (
        ("documents", (world.page(index).document for index in range(world.size))),
        ("questions", (to_question(world.question(index)) for index in indices)),
        ("rated_answers", (to_rated_answer(world.rated_answer(index)) for index in indices)),
    ):
        file = f"{kind}_{world.split}.jsonl"
        counts[file] = records.write(out / file, items)
    file = f"text_{world.split}.txt"
    with (out / file).open("w", encoding="utf-8") as text:
        for index in indices:
            for parts in (texts.excerpts(world, index), texts.cited(world, index)):
                text.write("".join(part.text for part in parts) + "\n\n\n")
    counts[file] = 2 * questions
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the three splits; returns 1 if they can't be written."""
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.sample_world",
        description="Writes a world of invented pages, questions and rated answers.",
    )
    parser.add_argument("--out", type=path_on_disk, required=True, help="folder to write to")
    parser.add_argument("--seed", type=int, default=0, help="seed of the world (default 0)")
    parser.add_argument(
        "--questions", type=int, default=1000, help="questions per split (default 1000)"
    )
    parser.add_argument(
        "--pages", type=int, default=1000, help="pages per split, at most 1490 (default 1000)"
    )
    flags = parser.parse_args(arguments)
    if flags.questions < 1:
        parser.error(f"argument --questions: expected 1 or more, got {flags.questions}")
    for split in names.SPLITS:
        try:
            world = World(seed=flags.seed, split=split, pages=flags.pages)
        except ValueError as error:
            parser.error(f"argument --pages: {error}")
        try:
            counts = write_world(flags.out, world, flags.questions)
        except OSError as error:
            print(f"sample_world: {in_one_line(error)}", file=sys.stderr)
            return 1
        for file, count in counts.items():
            print(f"{flags.out / file}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
