"""Builds training data for an extractor of short answers from browsed ones, as for TriviaQA.

    python -m data_pipelines.short_answers QUESTIONS.jsonl EPISODES.jsonl.gz … --out FOLDER
    python -m data_pipelines.short_answers trivia_train.jsonl runs/answers/bc/episodes.jsonl.gz \\
        --out extraction --count 256

Because WebGPT's answers are long, its appendix G fine-tunes a model on 256 questions to give the
short answer after reading the browsed answer as its page. --without-browsing builds the same data
for the ablation, which reads the question alone. FOLDER gets `completions_train.jsonl`, and
`completions_validation.jsonl` with the first --held-out questions. Train with
gin_configs/extractor_webgpt.gin, and answer with launch/extract_answers.py. The target is the
accepted answer that the browsed answer contains, or the first accepted answer if it contains none.
Questions without a browsed answer or without accepted answers are left out.
Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence

from data_pipelines.browsed_pairs import chosen
from data_pipelines.disk_paths import path_on_disk
from gophercite import prompts, records
from gophercite.browser.browsed_answers import without_citations
from gophercite.browser.episodes import Episode, read_episodes
from gophercite.documents import Document
from gophercite.records import Completion, Question
from gophercite.storage.json_fields import in_one_line
from gophercite.text.answer_matching import contains_answer

PAGE_TITLE = "What was found"  # title of the page that contains the browsed answer


def browsed_texts(episodes: Iterable[Episode]) -> dict[str, str]:
    """Returns the episodes' answers by question id, without citations and without empty answers.

    If a question has several episodes, the one with the highest reward counts; without rewards, the
    first.
    """
    texts = {id: without_citations(each.end.answer or "") for id, each in chosen(episodes).items()}
    return {id: text for id, text in texts.items() if text}


def extraction_prompt(question: str, browsed: str | None) -> str:
    """Returns an extractor's prompt: table 12 of GopherCite, with the browsed answer as its page.

    Args:
      question: its text.
      browsed: the browsed answer; None for a prompt with the question alone.
    """
    pages = [] if not browsed else [Document("browsed", PAGE_TITLE, browsed)]
    return prompts.prompt(question, pages)


def completions(
    questions: Iterable[Question], browsed: Mapping[str, str], *, browsing: bool = True
) -> list[Completion]:
    """Returns the training examples for the questions that have a browsed answer.

    The questions and short answers are the same with and without browsing.

    Args:
      questions: questions with their accepted answers.
      browsed: browsed answers by question id.
      browsing: whether the prompt shows the browsed answer.
    """
    learnt = []
    for each in questions:
        text = browsed.get(each.id)
        if text is None or not each.answers:
            continue
        contained = (answer for answer in each.answers if contains_answer(text, [answer]))
        prompt = extraction_prompt(each.question, text if browsing else None)
        learnt.append(Completion(each.id, prompt, next(contained, each.answers[0])))
    return learnt


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _parse(arguments)
    report = records.Report()
    try:
        episodes = (e for path in options.episodes for e in read_episodes(path, report=report))
        browsed = browsed_texts(episodes)
        questions = list(records.read(options.questions, Question, report=report))
        lines = completions(questions, browsed, browsing=not options.without_browsing)
        if len(lines) <= options.held_out:
            raise ValueError(
                f"{len(lines)} questions have both answers: --held-out {options.held_out} leaves "
                "none to learn from"
            )
        held_out, rest = lines[: options.held_out], lines[options.held_out :]
        options.out.mkdir(parents=True, exist_ok=True)
        records.write(options.out / "completions_train.jsonl", rest[: options.count])
        records.write(options.out / "completions_validation.jsonl", held_out)
    except (OSError, ValueError) as error:
        print(f"short_answers: {in_one_line(error)}", file=sys.stderr)
        return 1
    for problem in report.errors:
        print(problem, file=sys.stderr)
    learnt = len(rest[: options.count])
    print(f"{options.out}: {learnt} questions to learn from, {len(held_out)} held out")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.short_answers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "questions",
        type=path_on_disk,
        metavar="QUESTIONS",
        help="question records with accepted answers",
    )
    add(
        "episodes",
        nargs="+",
        type=path_on_disk,
        metavar="EPISODES",
        help="episodes, .jsonl or .jsonl.gz",
    )
    add(
        "--out",
        type=path_on_disk,
        required=True,
        metavar="FOLDER",
        help="folder to write the completions to",
    )
    add(
        "--count",
        type=int,
        default=256,
        help="maximum number of questions to learn from (default 256)",
    )
    add("--held-out", type=int, default=32, help="number of questions to evaluate on (default 32)")
    add("--without-browsing", action="store_true", help="ablation: prompts with the question alone")
    options = parser.parse_args(arguments)
    for flag, number in (("--count", options.count), ("--held-out", options.held_out)):
        if number < 1:
            parser.error(f"{flag} is {number}: must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
