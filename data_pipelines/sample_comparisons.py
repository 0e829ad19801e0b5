"""Builds comparisons of a model's own samples, given which of them are supported.

    python -m data_pipelines.sample_comparisons SAMPLES OUT_DIR [--pairs 3]

SAMPLES is the file PREFIX_samples.jsonl of `launch/eval.py --samples 8 --output PREFIX`: several
answers to each question, judged by its right answer and evidence. For each question, up to --pairs
unsupported samples are each compared with a supported one, which is preferred. So a reward model
sees the faults of the model among whose samples it will choose. The same is true in the paper,
where raters compared samples (GopherCite, sections 2.4 and 2.6). OUT_DIR gets
comparisons_train.jsonl and comparisons_validation.jsonl. Whole questions are held out, by their
ids.
"""

import argparse
import collections
import dataclasses
import random
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from data_pipelines.disk_paths import path_on_disk
from gophercite import evidence, records
from gophercite.records import Comparison, Response
from gophercite.storage.json_fields import JsonFields, in_one_line

SPLITS = ("train", "validation")


@dataclasses.dataclass(frozen=True)
class JudgedSamples:
    """Different answers to one question.

    Attributes:
      question: its text.
      supported: for each answer's text, whether the answer is right and its quote proves it.
    """

    question: str
    supported: dict[str, bool] = dataclasses.field(default_factory=dict)


def read_samples(path: Path, report: records.Report) -> dict[str, JudgedSamples]:
    """Reads judged samples.

    Args:
      path: path of the file.
      report: counts lines and names bad ones.

    Returns:
      The samples by question id.

    Raises:
      OSError: there is no such file.
    """
    found: dict[str, JudgedSamples] = {}
    for id, question, text, supported in records.read_parsed(
        path, _parse_sample, lambda _: None, report=report
    ):
        found.setdefault(id, JudgedSamples(question)).supported[text] = supported
    return found


def _parse_sample(
    value: object, unknown_fields: collections.Counter[str]
) -> tuple[str, str, str, bool]:
    """The question's id and text, the answer, and whether it is supported."""
    fields = JsonFields(value, None, unknown_fields)
    supported = fields.flag("supported")
    if supported is None:
        raise fields.error("supported", "is missing; judge the samples first")
    # The part of the text that was judged; after few-shot prompts it may not be all of it.
    text = fields.text("answer" if "answer" in fields else "text", empty=True)
    return fields.text("question_id"), fields.text("question"), text, supported


def compare(
    samples: Mapping[str, JudgedSamples], pairs: int, source: str = "samples"
) -> Iterator[Comparison]:
    """Builds comparisons of each question's samples; the question's id seeds choice and order.

    Args:
      samples: samples by question id; a question needs both supported and unsupported samples.
      pairs: maximum number of comparisons per question.
      source: the comparisons' source.

    Yields:
      Comparisons of a supported and an unsupported sample.
    """
    for id, of_question in samples.items():
        draw = random.Random(f"comparisons/{id}")
        good = [text for text, is_good in of_question.supported.items() if is_good]
        bad = [text for text, is_good in of_question.supported.items() if not is_good]
        for number, worse in enumerate(draw.sample(bad, min(pairs, len(bad))) if good else ()):
            sides = [(draw.choice(good), True), (worse, False)]
            draw.shuffle(sides)
            (first, first_good), (second, second_good) = sides
            yield Comparison(
                f"{id}/{number}",
                of_question.question,
                source,
                (_response(first), _response(second)),
                float(second_good),
                (first_good, second_good),
            )


def split_of(comparison: Comparison, held_out: float) -> str:
    """The split of a comparison, which depends on its question."""
    question = comparison.id.rpartition("/")[0]
    return SPLITS[zlib.crc32(question.encode()) / 2**32 < held_out]


def _response(text: str) -> Response:
    """The claims of a text with their evidence; a malformed text stays as it is."""
    try:
        return evidence.parse(text)
    except evidence.SyntaxFault:
        return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the comparisons; returns 1 if there are none to train on."""
    flags = _parse(arguments)
    report = records.Report()
    by_split: dict[str, list[Comparison]] = {split: [] for split in SPLITS}
    try:
        for each in compare(read_samples(flags.samples, report), flags.pairs):
            by_split[split_of(each, flags.held_out)].append(each)
        if by_split["train"]:  # otherwise what an earlier command wrote stays
            flags.out.mkdir(parents=True, exist_ok=True)
            for split, comparisons in by_split.items():
                records.write(flags.out / f"comparisons_{split}.jsonl", comparisons)
    except (OSError, ValueError) as error:
        print(f"sample_comparisons: {in_one_line(error)}", file=sys.stderr)
        return 1
    if report.skipped:
        print(report, file=sys.stderr)
    if not by_split["train"]:
        print(
            "sample_comparisons: no question has a supported sample and an unsupported one",
            file=sys.stderr,
        )
        return 1
    for split, comparisons in by_split.items():
        print(f"{flags.out}/comparisons_{split}.jsonl: {len(comparisons)}")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.sample_comparisons",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("samples", type=path_on_disk, metavar="SAMPLES", help="the judged samples, JSON lines")
    add("out", type=path_on_disk, metavar="OUT_DIR", help="folder to write to")
    add(
        "--pairs",
        type=int,
        default=3,
        help="maximum number of comparisons per question (default 3)",
    )
    add(
        "--held-out",
        type=float,
        default=0.05,
        help="share of the questions for validation (default 0.05)",
    )
    flags = parser.parse_args(arguments)
    if flags.pairs < 1:
        parser.error(f"--pairs is {flags.pairs}: must be at least 1")
    if not 0 <= flags.held_out < 1:
        parser.error(f"--held-out is {flags.held_out}: must be at least 0 and below 1")
    return flags


if __name__ == "__main__":
    sys.exit(main())
