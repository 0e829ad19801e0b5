"""Lets a model extract short answers from browsed ones, and scores them by exact match.

examples:
  python launch/extract_answers.py --model runs/extractor --questions trivia_test.jsonl \\
    --episodes runs/answers/bc/episodes.jsonl.gz --train trivia_train.jsonl --output bc.jsonl

  # the ablation: a model that was fine-tuned without browsed answers, and reads none
  python launch/extract_answers.py --model runs/extractor_alone --questions trivia_test.jsonl \\
    --train trivia_train.jsonl --output alone.jsonl

See WebGPT's appendix G (docs/browsed_answers.md). Decoding is greedy. A question without
a browsed answer is asked without a page. --output has one line for each question with accepted
answers; launch/browse_report.py --short-answers compares several such files.
Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from gophercite.cli.sources import keep_compiled_programs
from gophercite.storage.json_fields import in_one_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        _run(flags)
    except (OSError, ValueError) as error:
        print(f"extract_answers: {in_one_line(error)}", file=sys.stderr)
        return 1
    return 0


def _run(flags: argparse.Namespace) -> None:
    import jax

    keep_compiled_programs()
    from question_files import training_questions

    from data_pipelines.short_answers import browsed_texts, extraction_prompt
    from gophercite import records
    from gophercite.browser.episodes import read_episodes
    from gophercite.decoding.sampler import sample
    from gophercite.decoding.sampling_settings import SamplingSettings
    from gophercite.model_folders.folder import load_model
    from gophercite.prompts import encode_text
    from gophercite.records import Question
    from gophercite.reports.extraction import extraction_lines, extraction_section
    from gophercite.storage.overwriting import refuse_overwriting
    from gophercite.storage.paths import storage_path

    inputs = [flags.questions, *(flags.train or []), *flags.episodes]
    refuse_overwriting([storage_path(flags.output)], inputs)
    report = records.Report()
    questions = [q for q in records.read(flags.questions, Question, report=report) if q.answers]
    if not questions:
        raise ValueError(f"{flags.questions}: no question has accepted answers")
    train = None
    if flags.train:
        train = list(training_questions(flags.train))
    episodes = (e for path in flags.episodes for e in read_episodes(path, report=report))
    browsed = browsed_texts(episodes)
    for problem in report.errors:
        print(problem, file=sys.stderr)
    if flags.episodes and not any(question.id in browsed for question in questions):
        files = " ".join(flags.episodes)
        raise ValueError(f"{files}: no question of {flags.questions} is answered there")
    model = load_model(flags.model)
    vocabulary = model.vocabulary
    predictions: dict[str, str] = {}
    for start in range(0, len(questions), flags.together):
        batch = questions[start : start + flags.together]
        prompts = [encode_text(vocabulary, extraction_prompt(q.question, browsed.get(q.id)))
                 for q in batch]  # fmt: skip
        # Always the same number of prompts: one program serves all batches.
        filled = [*prompts, *[prompts[0]] * (flags.together - len(batch))]
        samples = sample(
            model.transformer,
            model.params,
            filled,
            jax.random.key(0),
            SamplingSettings(flags.max_tokens, temperature=0.0, free_log_probs=False),
            eos_id=vocabulary.eos_id,
            pad_id=vocabulary.pad_id,
            other_eos_ids=vocabulary.other_eos_ids,
            least_width=256,
        )
        for question, tokens, length in zip(batch, samples.tokens, samples.lengths, strict=False):
            answer_tokens = [int(token) for token in tokens[:length] if token != vocabulary.eos_id]
            predictions[question.id] = vocabulary.decode(answer_tokens).strip()
        print(f"{start + len(batch)} of {len(questions)} questions", file=sys.stderr, flush=True)
    lines = extraction_lines(questions, predictions, train)
    for line in lines:
        line["browsed"] = browsed.get(line["question_id"])
    records.write_json(flags.output, lines)
    (table,) = extraction_section({str(flags.model): lines}).tables
    found = sum(line["browsed"] is not None for line in lines)
    print(f"{table.markdown()}\n{found} of {len(lines)} questions have a browsed answer")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="extract_answers.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", required=True, metavar="DIR", help="a model folder or a training run's folder")
    add(
        "--questions",
        required=True,
        metavar="FILE",
        help="questions with accepted answers",
    )
    add("--episodes", nargs="+", default=[], metavar="FILE", help="the browsed answers")
    add(
        "--train",
        nargs="+",
        metavar="FILE",
        help="training questions, to split the questions by overlap",
    )
    add(
        "--output",
        required=True,
        metavar="FILE",
        help="file to write the short answers to (JSON lines)",
    )
    add(
        "--max-tokens",
        type=int,
        default=24,
        help="length of the longest short answer, in tokens (default 24)",
    )
    add("--together", type=int, default=16, help="questions answered at the same time (default 16)")
    flags = parser.parse_args(arguments)
    for name in ("max_tokens", "together"):
        if getattr(flags, name) < 1:
            flag = name.replace("_", "-")
            parser.error(f"--{flag} is {getattr(flags, name)}: must be at least 1")
    return flags


if __name__ == "__main__":
    sys.exit(main())
