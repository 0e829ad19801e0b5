"""Chooses which of a model's samples people should compare.

    python -m data_pipelines.rating_items SAMPLES QUESTIONS OUT_DIR [--by disagreement]

SAMPLES is the file PREFIX_samples.jsonl of `launch/eval.py --samples 8 --output PREFIX`, and
QUESTIONS has the questions with their pages. Two different answers to a question become an item.
There are three ways to choose a given number of items:

  random         any two answers to any question
  disagreement   the most likely answer with each of the two most frequent claims; questions on
                 whose claim the samples agree least come first
  uncertainty    the two answers with the closest rewards; the closest pairs come first (SAMPLES
                 needs rewards)

A question to which all samples give the same answer has no pair. With --contrast, that answer is
compared with the same claim and another sentence of the pages, which rarely proves it. So good
answers to easy questions are also rated, and a reward model learns what proves a claim, as it does
from the paper's fabricated comparisons (GopherCite, section 2.8).

OUT_DIR gets items.jsonl, with two unrated answers per item, as `gophercite rate new` reads them. If
the samples were judged, it also gets truth.jsonl, with the labels of a rater who makes no mistakes.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import math
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_pipelines.disk_paths import path_on_disk
from gophercite import evidence, records
from gophercite.documents import Document
from gophercite.records import Question, RatedAnswer
from gophercite.storage.json_fields import JsonFields, RecordError, in_one_line
from gophercite.storage.overwriting import refuse_overwriting
from gophercite.text.answer_matching import normalize_answer
from gophercite.text.sentences import sentence_spans

WAYS = ("random", "disagreement", "uncertainty")


@dataclasses.dataclass(frozen=True)
class Sampled:
    """A sample with one claim that quotes a page of its question.

    Attributes:
      answer: the answer as raters will see it, not yet rated.
      log_prob: its log-probability under the policy, in nats.
      reward: its reward, if known.
      plausible, supported: its labels, if known.
    """

    answer: RatedAnswer
    log_prob: float
    reward: float | None
    plausible: bool | None
    supported: bool | None


@dataclasses.dataclass
class Chosen:
    """The items to be rated.

    Attributes:
      items: pairs of answers to the same question.
      passed_over: number of questions or samples that were not used, by reason.
    """

    items: list[tuple[Sampled, Sampled]]
    passed_over: collections.Counter[str]


def read_samples(
    path: Path, questions: Mapping[str, Question], report: records.Report
) -> tuple[dict[str, list[Sampled]], collections.Counter[str]]:
    """Reads samples; if several have the same text, the first is kept.

    Args:
      path: path of the file.
      questions: questions with their pages, by id.
      report: counts lines and names bad ones.

    Returns:
      The usable samples by question, and the number of unusable ones by reason.

    Raises:
      OSError: there is no such file.
    """
    found: dict[str, dict[str, Sampled]] = {}
    faults: collections.Counter[str] = collections.Counter()
    for fields in records.read_parsed(path, _fields, lambda _: None, report=report):
        question = questions.get(fields["question_id"])
        if question is None:
            faults["samples whose question is not in the file"] += 1
            continue
        of_question = found.setdefault(question.id, {})
        text = fields["answer"].strip()
        if text in of_question:
            continue
        sampled = _sampled(question, text, fields)
        if isinstance(sampled, str):
            faults[sampled] += 1
        else:
            of_question[text] = sampled
    return {id: list(samples.values()) for id, samples in found.items()}, faults


def _fields(value: object, unknown_fields: collections.Counter[str]) -> dict[str, Any]:
    fields = JsonFields(value, None, unknown_fields)
    log_prob = fields.optional_number("log_prob")
    if log_prob is None:
        raise fields.error("log_prob", "is missing")
    return {
        "question_id": fields.text("question_id"),
        # The part of the text that is the answer; after few-shot prompts it may not be all of it.
        "answer": fields.text("answer" if "answer" in fields else "text", empty=True),
        "model": fields.optional_text("model"),
        "log_prob": log_prob,
        "reward": fields.optional_number("reward"),
        "claim_correct": fields.flag("claim_correct"),
        "supported": fields.flag("supported"),
    }


def _sampled(question: Question, text: str, fields: Mapping[str, Any]) -> Sampled | str:
    """A sample in a form that can be rated, or why it can't be."""
    try:
        (triple,) = evidence.parse(text)
    except evidence.SyntaxFault:
        return "malformed samples"
    except ValueError:
        return "samples with several claims"
    folded = evidence.fold_case(triple.quote)
    for page in question.documents:
        if (
            isinstance(page, Document)
            and page.title == triple.title
            and folded in evidence.fold_case(page.text)
        ):
            break
    else:
        return "samples whose quote is not in its page"
    answer = RatedAnswer(
        question.id,
        question.question,
        question.documents,
        triple.claim,
        triple.title,
        triple.quote,
        page.id,
        model=fields["model"],
    )
    try:
        answer = records.from_json(records.to_json(answer), RatedAnswer)
    except RecordError as error:
        return f"samples whose {error.field} {error.problem}"
    labels = fields["claim_correct"], fields["supported"]
    return Sampled(answer, fields["log_prob"], fields["reward"], *labels)


def contrast(sampled: Sampled, question: Question, draw: random.Random) -> Sampled | None:
    """Returns the same claim with another sentence of the pages as its quote.

    Args:
      sampled: an answer to the question.
      question: the question, with its pages.
      draw: chooses among the sentences.

    Returns:
      The new answer, which is supported if the sentence contains a gold span; None if no sentence
      can be quoted.
    """
    answer = sampled.answer
    fitting = [
        (page, start, end)
        for page in question.documents
        if isinstance(page, Document) and not evidence.holds_mark(page.title)
        for start, end in sentence_spans(page.text)
        if end - start >= evidence.MINIMUM_QUOTE_LENGTH
        and not evidence.holds_mark(text := page.text[start:end])
        and answer.quote not in text
        and text not in answer.quote
    ]
    if not fitting:
        return None
    page, start, end = draw.choice(fitting)
    proven = any(
        span.document == page.id and start <= span.start and span.end <= end
        for span in question.evidence
    )
    supported = None if sampled.supported is None else bool(sampled.plausible) and proven
    other = dataclasses.replace(
        answer, title=page.title, quote=page.text[start:end], document=page.id
    )
    return Sampled(other, sampled.log_prob, None, sampled.plausible, supported)


def choose(
    samples: Mapping[str, Sequence[Sampled]], by: str, most: int, draw: random.Random
) -> Chosen:
    """Chooses the questions to be rated, and two answers to each.

    Args:
      samples: different samples, by question.
      by: one of `WAYS`.
      most: maximum number of items.
      draw: random numbers, which also break ties.

    Raises:
      ValueError: a sample has no reward, and the choice is by reward.
    """
    pair = {"random": _any_two, "disagreement": _disagreeing, "uncertainty": _closest}[by]
    passed_over: collections.Counter[str] = collections.Counter()
    found: list[tuple[float, float, tuple[Sampled, Sampled]]] = []
    for id in sorted(samples):
        if len(samples[id]) < 2:
            passed_over["questions without two different answers"] += 1
            continue
        urgency, two = pair(samples[id], draw)
        found.append((-urgency, draw.random(), two))
    found.sort(key=lambda each: each[:2])
    passed_over["questions beyond --items"] += max(0, len(found) - most)
    items = []
    for _, _, two in found[:most]:
        first, second = draw.sample(two, 2)
        items.append((first, second))
    return Chosen(items, passed_over)


_Pair = tuple[float, tuple[Sampled, Sampled]]


def _any_two(samples: Sequence[Sampled], draw: random.Random) -> _Pair:
    first, second = draw.sample(list(samples), 2)
    return 0.0, (first, second)


def _disagreeing(samples: Sequence[Sampled], draw: random.Random) -> _Pair:
    """The most likely answers of two claims, and the entropy of the claims, in nats."""
    claims: dict[str, list[Sampled]] = {}
    for each in samples:
        claims.setdefault(normalize_answer(each.answer.claim), []).append(each)
    if len(claims) == 1:
        return 0.0, _any_two(samples, draw)[1]
    shares = [len(group) / len(samples) for group in claims.values()]
    entropy = -sum(share * math.log(share) for share in shares)
    likeliest = [
        (len(group), max(group, key=lambda each: each.log_prob)) for group in claims.values()
    ]
    likeliest.sort(key=lambda counted: (counted[0], counted[1].log_prob))
    return entropy, (likeliest[-1][1], likeliest[-2][1])


def _closest(samples: Sequence[Sampled], draw: random.Random) -> _Pair:
    """The two samples with the closest rewards, and minus their distance."""
    if any(each.reward is None for each in samples):
        raise ValueError("--by uncertainty needs rewards, but a sample has none")
    ranked = sorted(samples, key=lambda each: (each.reward or 0.0, draw.random()))
    gaps = [
        ((upper.reward or 0.0) - (lower.reward or 0.0), place)
        for place, (lower, upper) in enumerate(itertools.pairwise(ranked))
    ]
    gap, place = min(gaps)
    return -gap, (ranked[place], ranked[place + 1])


def truth_of(first: Sampled, second: Sampled) -> dict[str, str] | None:
    """The true labels of an item, by the names in the comparison form; None if unknown.

    An answer counts as supported if it is right and its quote proves it, as in all evaluations.
    """
    values = {}
    for place, each in enumerate((first, second)):
        if each.plausible is None or each.supported is None:
            return None
        values[f"plausible_{place}"] = "yes" if each.plausible else "no"
        values[f"supported_{place}"] = "yes" if each.supported else "no"
    return values


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the items to be rated; returns 1 if there are none."""
    flags = _parse(arguments)
    report = records.Report()
    items, truth = flags.out / "items.jsonl", flags.out / "truth.jsonl"
    try:
        refuse_overwriting([items, truth], [flags.samples, flags.questions])
        questions = {q.id: q for q in records.read(flags.questions, Question, report=report)}
        samples, faults = read_samples(flags.samples, questions, report)
        if flags.contrast:
            draw = random.Random(f"contrast {flags.seed}")
            for id, found in samples.items():
                other = contrast(found[0], questions[id], draw) if len(found) == 1 else None
                samples[id] = [*found, other] if other else found
        chosen = choose(samples, flags.by, flags.items, random.Random(flags.seed))
        if chosen.items:  # else keep the items of an earlier run, which may be in use
            flags.out.mkdir(parents=True, exist_ok=True)
            records.write(items, (each.answer for pair in chosen.items for each in pair))
            _write_truth(truth, chosen.items)
    except (OSError, ValueError) as error:
        print(f"rating_items: {in_one_line(error)}", file=sys.stderr)
        return 1
    if report.skipped:
        print(report, file=sys.stderr)
    for why, count in (faults + chosen.passed_over).items():
        print(f"left out: {count} {why}")
    if not chosen.items:
        print("rating_items: no question has two answers to compare", file=sys.stderr)
        return 1
    print(f"{items}: {len(chosen.items)} items")
    return 0


def _write_truth(path: Path, items: Iterable[tuple[Sampled, Sampled]]) -> None:
    known = [
        {"item": pair[0].answer.question_id, "values": values}
        for pair in items
        if (values := truth_of(*pair)) is not None
    ]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in known), "utf-8")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.rating_items",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("samples", type=path_on_disk, metavar="SAMPLES", help="the samples, JSON lines")
    add(
        "questions",
        type=path_on_disk,
        metavar="QUESTIONS",
        help="their questions, with pages, JSON lines",
    )
    add("out", type=path_on_disk, metavar="OUT_DIR", help="folder to write to")
    add("--by", choices=WAYS, default="random", help="how to choose the items (default: random)")
    add("--items", type=int, default=200, help="maximum number of items (default: 200)")
    add(
        "--contrast",
        action="store_true",
        help="compare a question's only answer with the same claim and another sentence",
    )
    add("--seed", type=int, default=0, help="seed of the random choices (default: 0)")
    flags = parser.parse_args(arguments)
    if flags.contrast and flags.by == "uncertainty":
        parser.error("--contrast adds answers without rewards, but --by uncertainty needs rewards")
    if flags.items < 1:
        parser.error(f"--items is {flags.items}: must be at least 1")
    return flags


if __name__ == "__main__":
    sys.exit(main())
