"""Reports on policies that browsed: tables, and WebGPT's figures (2 to 8, 11, 12) in one report.

examples:
  # how good answers are, and the best of n; preferences are over the first policy
  python launch/browse_report.py bc=runs/answers/bc ppo=runs/answers/ppo --output runs/report

  # what people prefer: comparisons from data_pipelines.browsed_pairs, rated and exported
  python launch/browse_report.py bc=runs/answers/bc --output runs/report \\
    --over-demonstrations bc=rated/demonstrations.jsonl --over-references bc=rated/minimal.jsonl \\
    --people-best-of 4=rated/best_of_4.jsonl

  # scaling: policies by their share of the demonstrations, reward models by theirs of comparisons
  python launch/browse_report.py bc=runs/answers/bc --output runs/report \\
    --demonstrations 0.5=runs/answers/half 1=runs/answers/bc \\
    --comparisons 0.5=runs/rm_half 1=runs/rm

  # answers that were judged individually, and short answers that were extracted
  python launch/browse_report.py --output runs/report --truthfulqa bc=votes.jsonl bc=empty.jsonl \\
    --stance bc=stance_votes.jsonl --short-answers bc=bc.jsonl alone=alone.jsonl

Each NAME=FOLDER was written by launch/browse_questions.py. The best of n episodes is chosen by the
reward model, and judged by what is true and by the validation reward model, with WebGPT's estimator
over all subsets (appendix I). Intervals are 90 %, by resampling questions. --output PREFIX gets
PREFIX.md, the self-contained PREFIX.html, and PREFIX_NAME.png for each figure.
Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from named_paths import named_path, refuse_repeated

from data_pipelines.stance_questions import stance_questions
from gophercite import records
from gophercite.evaluation import line_fields
from gophercite.evaluation.browsed_results import (
    CHOSEN_BY,
    VALIDATION,
    BrowsedPolicy,
    Interval,
    read_policy,
    resampled,
)
from gophercite.evaluation.intervals import Estimate
from gophercite.model_folders.folder import read_description
from gophercite.models.transformer import Transformer
from gophercite.monitoring.metrics import TRAIN, read_metrics
from gophercite.records import Comparison, Question
from gophercite.reports.browsed_preferences import OVERALL, preferences
from gophercite.reports.browsing_sections import (
    Scaled,
    best_of_section,
    cloning_scaling_section,
    compute_section,
    episodes_section,
    people_section,
    reward_scaling_section,
    training_methods_section,
)
from gophercite.reports.extraction import extraction_section
from gophercite.reports.report_files import Section, write_report
from gophercite.reports.votes import check_vote, stance_section, truthful_section
from gophercite.storage.json_fields import JsonFields, RecordError, in_one_line
from gophercite.storage.json_lines import read_json_lines

_ACCURACY = "/preference_accuracy"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    try:
        sections = [section for section in _sections(flags) if section != Section()]
        files = write_report(flags.output.removesuffix(".md"), flags.title, sections)
    except (OSError, ValueError) as error:
        print(f"browse_report: {in_one_line(error)}", file=sys.stderr)
        return 1
    for section in sections:
        for table in section.tables:
            print(f"{section.heading}\n\n{table.markdown()}")
    print(f"Written: {', '.join(files)}")
    return 0


def _sections(flags: argparse.Namespace) -> Iterable[Section]:
    policies = [read_policy(name, folder) for name, folder in flags.results]
    best_of = {n: _overall(file) for n, file in flags.people_best_of}
    if policies:
        yield episodes_section(policies)
        yield best_of_section(policies)
        yield training_methods_section(policies, best_of)
        yield compute_section(policies)
    yield cloning_scaling_section([_cloned(*each) for each in flags.demonstrations])
    yield reward_scaling_section([_reward_model(*each) for each in flags.comparisons])
    yield people_section(
        {name: preferences(_read(file)) for name, file in flags.over_demonstrations},
        {name: preferences(_read(file)) for name, file in flags.over_references},
    )
    yield truthful_section(_votes(flags.truthfulqa))
    yield extraction_section({name: _short_answers(file) for name, file in flags.short_answers})
    questions = _questions(flags.stance_questions) if flags.stance_questions else stance_questions()
    yield stance_section(_votes(flags.stance), questions)


def _read(file: str) -> list[Comparison]:
    report = records.Report()
    found = records.read_some(file, Comparison, report=report)
    if report.skipped:
        print(f"{file}: {report}", file=sys.stderr)
    return found


def _overall(file: str) -> Estimate:
    shares = preferences(_read(file))
    if OVERALL not in shares:
        raise ValueError(f"{file}: none of its comparisons was decided")
    return shares[OVERALL]


def _votes(files: Sequence[tuple[str, str]]) -> dict[str, list[dict[str, Any]]]:
    """Returns votes by system; a system may have several files."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, file in files:
        of = found.setdefault(name, [])
        for number, value in read_json_lines(file):
            if isinstance(value, RecordError):
                raise value
            if not isinstance(value, dict) or "item" not in value:
                raise ValueError(f"{file}:{number}: is not a vote: it has no 'item'")
            try:
                check_vote(value)
            except RecordError as error:
                raise RecordError(error.problem, error.field, file, number) from None
            of.append(value)
    for name, of in found.items():
        if not of:  # one of several files may be empty: nothing was left for people to judge
            given = ", ".join(file for other, file in files if other == name)
            raise RecordError("holds no votes", None, given)
    return found


def _questions(file: str) -> Iterable[Question]:
    return records.read(file, Question, strict=True)


def _short_answers(file: str) -> list[dict[str, Any]]:
    lines = []
    for number, value in read_json_lines(file):
        try:
            if isinstance(value, RecordError):
                raise value
            fields = JsonFields(value, None, Counter())
            for name in ("exact_match", "f1"):
                if line_fields.share(fields, name) is None:
                    raise fields.error(name, "is missing: expected a number from 0 to 1")
            if "splits" not in fields:
                raise fields.error("splits", "is missing: expected a list of texts")
            fields.texts("splits")
        except RecordError as error:
            raise RecordError(error.problem, error.field, file, number) from None
        lines.append(fields.values)
    if not lines:
        raise RecordError("holds no answers", None, file)
    return lines


def _cloned(share: float, folder: str) -> Scaled:
    """A policy for the scaling of cloning, by the score of a single answer (section 5.2)."""
    policy: BrowsedPolicy = read_policy(folder, folder)
    judge = next((name for name in (VALIDATION, CHOSEN_BY) if name in policy.scores), None)
    if judge is None:
        raise ValueError(f"{folder}: its episodes were not scored by a reward model")
    if not policy.summary.get("parameters"):
        raise ValueError(f"{folder}/summary.json: 'parameters' is missing: browse again")
    worth = resampled(policy.scores[judge].mean(axis=1))
    return Scaled(share, int(policy.summary["parameters"]), worth)


def _reward_model(share: float, folder: str) -> Scaled:
    """A reward model for the scaling, by its best accuracy on held-out comparisons.

    A run does not record the number of pairs, so there is no interval.
    """
    leaves = Transformer(read_description(folder).config).abstract()
    found = []
    try:
        for line in read_metrics(folder):
            fields = JsonFields(line, None, Counter())
            if fields.values.get("split") != TRAIN:
                names = (name for name in fields.values if name.endswith(_ACCURACY))
                accuracies = (fields.optional_number(name) for name in names)
                found += [value for value in accuracies if value is not None]
    except RecordError as error:
        raise RecordError(error.problem, error.field, f"{folder}/metrics.jsonl") from None
    if not found:
        raise ValueError(f"{folder}: its metrics have no accuracy on held-out comparisons")
    return Scaled(share, _size(leaves), Interval(max(found), max(found), max(found)))


def _size(shapes: object) -> int:
    import jax

    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


def _number_and_path(of: Callable[[str], float], what: str) -> Callable[[str], tuple[float, str]]:
    def read(text: str) -> tuple[float, str]:
        number, path = named_path(text)
        try:
            value = of(number)
        except ValueError:
            value = 0
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{text!r}: {number!r} is not a {what}")
        return value, path

    return read


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="browse_report.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    share, n = _number_and_path(float, "share above 0"), _number_and_path(int, "number, at least 1")

    def add_files(flag: str, kind: Callable[[str], object], metavar: str, help: str) -> None:
        add(flag, nargs="+", type=kind, metavar=metavar, default=[], help=help)

    add(
        "results",
        nargs="*",
        type=named_path,
        metavar="NAME=FOLDER",
        help="episodes of the policies",
    )
    add("--output", required=True, metavar="PREFIX", help="of the report")
    add("--title", default="Learning to browse", help="of the report")
    what = "comparisons of the policy's answers (the second ones) with "
    add_files("--over-demonstrations", named_path, "NAME=FILE", f"{what}demonstrations (figure 2)")
    add_files("--over-references", named_path, "NAME=FILE", f"{what}the data set's (figure 2)")
    what = (
        "comparisons of the first policy's best of N (the second answers) with its single answers"
    )
    add_files("--people-best-of", n, "N=FILE", f"{what} (figure 5)")
    what = "episodes of policies that were cloned from this share of the demonstrations"
    add_files("--demonstrations", share, "SHARE=FOLDER", f"{what} (figure 6)")
    what = "runs of reward models that were trained on this share of the comparisons"
    add_files("--comparisons", share, "SHARE=FOLDER", f"{what} (figure 7)")
    what = "output of launch/extract_answers.py"
    add_files("--short-answers", named_path, "NAME=FILE", f"{what} (table 9)")
    what = "votes on the system's answers; a name may be given with several files"
    add_files("--truthfulqa", named_path, "NAME=FILE", f"{what} (figure 3)")
    add_files("--stance", named_path, "NAME=FILE", f"{what} (figures 11, 12)")
    add(
        "--stance-questions",
        metavar="FILE",
        help="questions to use instead of those of data_pipelines.stance_questions",
    )
    flags = parser.parse_args(arguments)
    for flag, given in (
        ("NAME=FOLDER", flags.results),
        ("--over-demonstrations", flags.over_demonstrations),
        ("--over-references", flags.over_references),
        ("--people-best-of", flags.people_best_of),
        ("--short-answers", flags.short_answers),
    ):
        refuse_repeated(parser, flag, given)
    if flags.people_best_of and not flags.results:
        parser.error("--people-best-of needs the policy's episodes: give NAME=FOLDER, too")
    if not any(value for name, value in vars(flags).items() if name not in ("output", "title")):
        parser.error("nothing to report: give NAME=FOLDER, or files")
    return flags


if __name__ == "__main__":
    sys.exit(main())
