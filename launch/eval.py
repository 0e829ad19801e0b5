"""Lets a model answer questions and scores its answers beside the baselines.

examples:
  python launch/eval.py --model runs/sft --questions questions_test.jsonl --output runs/sft/test

  # settings from a file; flags come after and win
  python launch/eval.py --gin_file=gin_configs/evaluation/paper.gin --gin.MODEL=runs/sft \\
    --gin.QUESTIONS=questions_test.jsonl --gin.OUTPUT=runs/sft/test --batch-size 64

  # one of four processes that share the questions, on one machine or on four
  python launch/eval.py --gin_file=… --gin.OUTPUT=gs://bucket/sft/test \\
    --num_processes=4 --process_id=0

Prints a table of percentages with 90 % intervals and some answers with their evidence, and writes a
report as PREFIX.md, PREFIX.html and figures, all answers as PREFIX.jsonl, and where a question has
several samples all of them as PREFIX_samples.jsonl. Ended at any moment and started again, it goes
on with the questions that have no answer yet. Exit status: 0 done; 1 refused or failed, with one
line that says why; 2 wrong usage; 130 Ctrl-C, which ends it at once.
"""

import sys

from gophercite import interruption

if __name__ == "__main__":  # before the imports that take seconds
    interruption.end_at_once()

import argparse
import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import gin
import gin_files
import jax
import processes
from etils import epath
from evaluation_settings import Evaluation

from gophercite.decoding.rerank import Scorer
from gophercite.evaluation.answer_log import (
    AnswerLog,
    describe_asking,
    read_answer,
    shared_questions,
)
from gophercite.evaluation.baselines import judge_baselines
from gophercite.evaluation.citations import CitationQuality, EntailmentServer, citation_quality
from gophercite.evaluation.overlap import overlap_splits, overlap_table
from gophercite.evaluation.question_prompts import PromptReport
from gophercite.evaluation.report import describe
from gophercite.evaluation.report_files import Section
from gophercite.evaluation.results import Choice, Outcome, Results, choose, json_lines
from gophercite.evaluation.truthfulqa import rating_line, truthfulqa_section
from gophercite.few_shot.prompting import Style
from gophercite.models.checkpoint_files import CheckpointError
from gophercite.models.folder import Model, load_model
from gophercite.models.reward_model import load_reward_model
from gophercite.models.tensors import TensorFileError
from gophercite.records import Question, Report
from gophercite.retrieval.index_file import IndexFileError
from gophercite.training.progress import Progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags, given, bindings = _parse(arguments)
    processes.join(flags)
    try:
        gin_files.load(flags.gin_file, bindings, flags.gin_search_paths)
        with gin_files.one_line():
            evaluation = gin.get_configurable(Evaluation)(**given)
        results = _evaluate(evaluation, *_place(flags))
    except (OSError, ValueError, CheckpointError, TensorFileError, IndexFileError) as error:
        print(f"eval: {error}", file=sys.stderr)
        return 1
    if results is None:
        return 0
    print(f"\n{results.table().markdown()}")
    for sample in results.best[: evaluation.examples]:
        print(f"{describe(sample)}\n")
    if evaluation.output is not None:
        print(f"Written: {', '.join(results.write(evaluation.output))}")
    return 0


def _place(flags: argparse.Namespace) -> tuple[int, int]:
    """Which process this is, and of how many."""
    if flags.distributed or flags.coordinator_address:
        return jax.process_index(), jax.process_count()
    return flags.process_id or 0, flags.num_processes or 1


def _evaluate(evaluation: Evaluation, process: int, count: int) -> Results | None:
    """Asks this process's share of the questions; None where others are not through with theirs.

    Raises:
      ValueError: there is no question, or every one was declined.
    """
    report = Report()
    questions = evaluation.read_questions(report)
    if report.skipped or report.unknown_fields:
        print(f"{evaluation.questions}: {report}", file=sys.stderr)
    if evaluation.model is None:
        systems = judge_baselines(questions)
        return Results(f"Baselines on {evaluation.questions}", systems)
    model = load_model(evaluation.model)
    judge = load_reward_model(evaluation.reward_model) if evaluation.reward_model else None
    settings = evaluation.asking()
    run = describe_asking(model, str(evaluation.model), settings, questions, judge)
    with _log(evaluation, run) as log:
        _ask(evaluation, model, judge, questions, log, process, count)
        lines = log.read()
    left = sum(question.id not in lines for question in questions)
    if left:
        print(f"Done here; {left} questions are left to the other processes.", file=sys.stderr)
        return None
    outcomes = [Outcome(q, read_answer(q, lines[q.id], evaluation.omissions)) for q in questions]
    if not any(outcome.samples for outcome in outcomes):
        raise ValueError("every question was declined: there is nothing to score")
    return _results(evaluation, model, run, outcomes)


def _results(
    evaluation: Evaluation, model: Model, run: dict[str, Any], outcomes: Sequence[Outcome]
) -> Results:
    """Judges the answers that count, and the baselines on the same questions."""
    asked = [outcome.question for outcome in outcomes if outcome.samples]
    best = [choose(outcome.samples, evaluation.choice) for outcome in outcomes if outcome.samples]
    name = "model, constrained" if evaluation.constrained else "model"
    systems = {name: [sample.judgement for sample in best]}
    if evaluation.baselines:
        systems |= judge_baselines(asked)
    citations: list[CitationQuality | None] = []
    if evaluation.nli is not None:
        triples = [sample.judgement.triples for sample in best]
        citations = citation_quality(triples, EntailmentServer(evaluation.nli))
    sections = []
    if evaluation.train:
        splits = overlap_splits(asked, evaluation.read_training_questions())
        judged = [(sample.question.id, sample.judgement) for sample in best]
        text = ["By what of a question was in the training data."]
        sections.append(Section("Overlap", text, [overlap_table(splits, judged)]))
    files = {}
    if any(question.incorrect_answers for question in asked):
        lines = [rating_line(sample, model.vocabulary) for sample in best]
        files["_claims.jsonl"] = json_lines(lines)
        sections.append(truthfulqa_section(lines))
    return Results(
        title=f"{evaluation.model} on {evaluation.questions}",
        systems=systems,
        run=run,
        outcomes=outcomes,
        best=best,
        model=str(model.provenance.get("id", evaluation.model)),
        citations=citations,
        sections=sections,
        files=files,
    )


@contextlib.contextmanager
def _log(evaluation: Evaluation, run: dict[str, Any]) -> Iterator[AnswerLog]:
    """Where answers are kept as they come; for this run alone when there is no output."""
    if evaluation.output is not None:
        epath.Path(evaluation.output).parent.mkdir(parents=True, exist_ok=True)
        yield AnswerLog(evaluation.output, run)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield AnswerLog(epath.Path(folder) / "answers", run)


def _ask(
    evaluation: Evaluation,
    model: Model,
    judge: Model | None,
    questions: Sequence[Question],
    log: AnswerLog,
    process: int,
    count: int,
) -> None:
    """Asks, showing progress, and says what became of the prompts."""
    total = shared_questions(len(questions), evaluation.batch_size, process, count)
    progress = Progress(sys.stderr, total, unit="question")
    report = PromptReport()
    scorer = None if judge is None else Scorer(judge)
    counts = log.ask(model, questions, evaluation.asking(), report, scorer, process, count)
    begun = shown = next(counts)
    if begun:
        progress.note(f"{total} questions, {begun} answered already")
    for answered in counts:
        if answered - shown >= evaluation.batch_size or answered == total:
            progress.step(answered, {})
            shown = answered
    progress.note(str(report))


def _parse(
    arguments: Sequence[str] | None,
) -> tuple[argparse.Namespace, dict[str, Any], dict[str, str]]:
    """The command's own flags, the settings that were given, and gin's bindings."""
    parser = argparse.ArgumentParser(
        prog="eval.py",
        description=__doc__,
        usage="eval.py [--gin_file=FILE …] [--gin.NAME=VALUE …] [settings]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    gin_files.add_flags(parser, required=False)
    processes.add_flags(parser)
    settings = parser.add_argument_group("settings", argument_default=argparse.SUPPRESS)
    _add_settings(settings)
    flags, rest = parser.parse_known_args(arguments)
    bindings = gin_files.read_bindings(parser, rest)
    names = {action.dest for action in settings._group_actions}
    given = {name: value for name, value in vars(flags).items() if name in names}
    for name in ("limit", "batch_size", "max_prompt_tokens", "samples"):
        if given.get(name) is not None and given[name] < 1:
            parser.error(f"--{name.replace('_', '-')} is {given[name]}: must be at least 1")
    if not flags.gin_file and "questions" not in given:
        parser.error("the following arguments are required: --questions")
    count, process = flags.num_processes or 1, flags.process_id or 0
    if not 0 <= process < count:
        parser.error(f"--process_id is {process}: must be from 0 to {count - 1}")
    return flags, given, bindings


def _add_settings(group: argparse._ArgumentGroup) -> None:
    """Adds a flag for each setting of `Evaluation`; what is not given keeps gin's value."""
    add = group.add_argument
    yes_or_no = argparse.BooleanOptionalAction
    add(
        "--model",
        metavar="FOLDER",
        help="model folder, or folder of a run; without, baselines only",
    )
    add("--questions", metavar="FILE", help="questions.jsonl")
    add("--limit", type=int, help="ask only the first so many questions (default: all)")
    add("--batch-size", type=int, help="prompts answered at once (default: 16)")
    add("--max-tokens", type=int, help="longest answer (default: 256)")
    add(
        "--max-prompt-tokens",
        type=int,
        help="longest prompt; longer pages are cut to windows (default: 3840)",
    )
    add("--index", metavar="FILE", help="has the pages of questions that hold search results")
    add(
        "--pages",
        choices=("together", "each"),
        help="a question's pages in one prompt, or each in one of its own (default: together)",
    )
    add("--samples", type=int, help="answers to each prompt (default: 1)")
    add(
        "--few-shot",
        choices=[style.value for style in Style],
        help="put examples before, for a base model (docs/bootstrapping.md)",
    )
    add("--temperature", type=float, help="0 takes the likeliest token (default: 0)")
    add("--top-p", type=float, help="nucleus to sample from (default: 1, everything)")
    add(
        "--constrained",
        action=yes_or_no,
        help="allow only answers that are well formed and quote the pages verbatim",
    )
    add("--omissions", type=int, help="of words, by ` [...] `, in a constrained quote (default: 0)")
    add("--seed", type=int, help="of the sampling (default: 0)")
    add(
        "--choose",
        choices=get_args(Choice),
        help="which of a question's samples counts: the likeliest, that with the highest reward, "
        "or of a few-shot model's claims that with the second best evidence (default: by reward "
        "where there is a reward model)",
    )
    add("--reward-model", metavar="FOLDER", help="of a reward model's run; scores all samples")
    add("--nli", metavar="URL", help="of a language-inference server (docs/evaluation.md)")
    add("--train", nargs="+", metavar="FILE", help="training questions, to score by overlap")
    add("--examples", type=int, help="answers to print (default: 5)")
    add("--strict", action=yes_or_no, help="stop at the first bad line of the questions")
    add("--baselines", action=yes_or_no, help="score the baselines on the same questions")
    add(
        "--output",
        metavar="PREFIX",
        help="write results to PREFIX.md, .html, .jsonl …; a path, or a URL as gs://bucket/name",
    )


if __name__ == "__main__":
    status = main()
    interruption.over()
    sys.exit(status)
