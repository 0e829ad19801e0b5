"""Writes browsed answers without their references, for raters who judge them one by one.

    python -m data_pipelines.browsed_claims EPISODES.jsonl.gz … --out FOLDER --tokens 50 \\
        --vocabulary runs/bc --questions truthfulqa.jsonl
    python -m data_pipelines.browsed_claims EPISODES.jsonl.gz … --out FOLDER

For TruthfulQA, where other models' answers are short, answers are cut to 50 tokens, and an
incomplete last sentence is dropped (WebGPT, section 4.2). For ratings of their stance, answers are
complete (appendix H). Citations are stripped in both cases. FOLDER gets

  claims.jsonl  the input of `gophercite rate new … --form truthfulqa` (or `--form stance`)
  empty.jsonl   votes for questions without an answer, or with one of which nothing is left: they
                count as truthful and not informative, as in the paper

If a question has several episodes, the one with the highest reward counts; without rewards, the
first. With --questions, answers to other questions are left out.
Exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from data_pipelines.browsed_pairs import chosen
from data_pipelines.disk_paths import path_on_disk
from gophercite import records
from gophercite.browser.browsed_answers import shortened, without_citations
from gophercite.browser.episodes import Episode, read_episodes
from gophercite.records import Question
from gophercite.records.answers import Answer, Citation, answer_to_json
from gophercite.storage.json_fields import in_one_line
from gophercite.storage.overwriting import refuse_overwriting
from gophercite.text.counting import counted
from gophercite.vocabularies import Vocabulary, load_vocabulary

EMPTY = {"rater": "empty", "truthful_0": "yes", "informative_0": "no"}


def claim_of(episode: Episode, vocabulary: Vocabulary | None, tokens: int) -> str:
    """Returns an episode's answer without citations; with a vocabulary, cut to `tokens` tokens."""
    answer = without_citations(episode.end.answer or "")
    return answer if vocabulary is None else shortened(answer, vocabulary, tokens)


def as_answer(episode: Episode, claim: str) -> Answer:
    """Converts an episode for the rating app: the claim, with its first reference as the quote."""
    first = episode.end.references[0]
    citation = Citation(
        claim,
        first.title or first.domain or first.document,
        first.extract,
        first.document,
        first.url or None,
        first.retrieved_at,
        first.sha256,
        ((first.start, first.end),),
        first.pages,
    )
    return Answer(episode.start.question, episode.by, citations=(citation,), text=claim)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _parse(arguments)
    report = records.Report()
    written = [options.out / "claims.jsonl", options.out / "empty.jsonl"]
    try:
        refuse_overwriting(written, [*options.episodes, options.questions])
        wanted_ids: set[str] | None = None
        if options.questions is not None:
            wanted_ids = {q.id for q in records.read(options.questions, Question, report=report)}
        vocabulary = None if options.vocabulary is None else load_vocabulary(options.vocabulary)
        episodes = (e for path in options.episodes for e in read_episodes(path, report=report))
        answers: list[dict[str, Any]] = []
        empty: list[dict[str, Any]] = []
        for id, episode in chosen(episodes).items():
            if wanted_ids is not None and id not in wanted_ids:
                continue
            claim = claim_of(episode, vocabulary, options.tokens)
            if claim:
                answers.append(answer_to_json(as_answer(episode, claim)))
            else:
                empty.append({"item": episode.start.question, **EMPTY})
        for problem in report.errors:
            print(problem, file=sys.stderr)
        if not answers and not empty:
            raise ValueError("no episode answers one of the questions")
        options.out.mkdir(parents=True, exist_ok=True)
        for path, of_path in zip(written, (answers, empty), strict=True):
            records.write_json(path, of_path)
    except (OSError, ValueError) as error:
        print(f"browsed_claims: {in_one_line(error)}", file=sys.stderr)
        return 1
    print(f"{options.out}: {counted(len(answers), 'answer')}, plus {len(empty)} empty")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.browsed_claims",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
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
        help="folder for claims.jsonl and empty.jsonl",
    )
    add(
        "--questions",
        type=path_on_disk,
        metavar="FILE",
        help="question records: keep only answers to these",
    )
    add(
        "--vocabulary",
        type=path_on_disk,
        metavar="DIR",
        help="vocabulary that counts the tokens: shortens the answers",
    )
    add(
        "--tokens",
        type=int,
        default=50,
        help="tokens of an answer to keep, with --vocabulary (default 50)",
    )
    options = parser.parse_args(arguments)
    if options.tokens < 1:
        parser.error(f"--tokens is {options.tokens}: must be at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
