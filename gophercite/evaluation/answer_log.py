"""A model's answers to a file of questions, kept as they come, so that no question is asked twice.

The answers are in a folder named by all that decides them, `PREFIX.answers/3f9a1c0b55e2/`: whatever
changes, the model's parameters, a setting or a page, changes the folder, and what is in it can be
gone on with after any interruption. Questions are dealt out in blocks, and a block's batches are
made of the block alone. So answers are, bit for bit, the same whatever ended the process and
however many processes share the work, now and when it began.
"""

import dataclasses
import enum
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
from etils import epath

from gophercite.decoding.constraint import QuoteConstraint
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.evaluation.answers import JudgedSample, answer_questions
from gophercite.evaluation.metrics import judge
from gophercite.evaluation.question_prompts import PromptReport, PromptSettings
from gophercite.models.checkpoint_files import name_leaves
from gophercite.models.digests import digests
from gophercite.models.folder import Model
from gophercite.records import Question, to_json
from gophercite.result_file import ResultFile, read_results

_BATCHES_IN_BLOCK = 8  # enough to find prompts of like length for each batch


@dataclasses.dataclass(frozen=True)
class AskingSettings:
    """How a model is asked.

    Attributes:
      sampling: how tokens are drawn.
      prompts: what the model is shown.
      samples: answers to each prompt.
      constrained: whether answers have to be well formed and their quotes verbatim.
      batch_size: prompts that are answered at once.
      seed: of the draws.
    """

    sampling: SamplingSettings
    prompts: PromptSettings
    samples: int = 1
    constrained: bool = False
    batch_size: int = 16
    seed: int = 0


def describe_asking(
    model: Model, name: str, settings: AskingSettings, questions: Sequence[Question]
) -> dict[str, Any]:
    """Returns all that decides a model's answers, as JSON; large parts by their digests.

    Args:
      model: what is asked.
      name: where it was read from.
      settings: how it is asked.
      questions: with their pages.
    """
    asked = hashlib.sha256()
    for question in questions:
        asked.update(json.dumps(to_json(question), sort_keys=True).encode() + b"\n")
    parameters = sorted(digests(name_leaves(model.params)).items())
    return {
        "model": name,
        "provenance": model.provenance,
        "parameters": hashlib.sha256(repr(parameters).encode()).hexdigest(),
        "questions": len(questions),
        "questions_sha256": asked.hexdigest(),
        **json.loads(json.dumps(dataclasses.asdict(settings), default=_plain)),
    }


class AnswerLog:
    """The folder of one model's answers to one list of questions.

    Args:
      prefix: of the results, a path or a URL (`gs://…`).
      run: what `describe_asking` says.
    """

    def __init__(self, prefix: epath.PathLike, run: Mapping[str, Any]) -> None:
        name = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:12]
        self._run = run
        self.folder = epath.Path(f"{epath.Path(prefix)}.answers") / name

    def read(self) -> dict[str, dict[str, Any]]:
        """Returns the lines of all processes by their questions' ids.

        Raises:
          ResultFileError: a line is no result.
        """
        if not self.folder.exists():
            return {}
        # In a bucket a file that is being written is there by its parts alone.
        names = {path.name.removesuffix(".parts") for path in self.folder.iterdir()}
        lines = (read_results(self.folder / n) for n in sorted(names) if n.endswith(".jsonl"))
        return {line["question_id"]: line for file in lines for line in file}

    def ask(
        self,
        model: Model,
        questions: Sequence[Question],
        settings: AskingSettings,
        report: PromptReport | None = None,
        process: int = 0,
        processes: int = 1,
    ) -> Iterator[int]:
        """Asks what has no answer yet of this process's share, and keeps the answers.

        Args:
          model: what is asked.
          questions: all of them, with their pages; each id is one question's.
          settings: how.
          report: counts the prompts that were made now.
          process: which of the processes this is, from 0.
          processes: that share the questions.

        Yields:
          How many questions of the share have an answer or are declined: at first those of
          earlier processes, then after each batch.

        Raises:
          ResultFileError: another process writes this one's file, or a line in it is no result.
        """
        done = self.read().keys()
        total = PromptReport() if report is None else report
        self.folder.mkdir(parents=True, exist_ok=True)
        constraint = QuoteConstraint(model.vocabulary) if settings.constrained else None
        share = _share(len(questions), settings.batch_size, process, processes)
        finished = sum(questions[index].id in done for block in share for index in block)
        yield finished
        path = self.folder / f"{process:05d}-of-{processes:05d}.jsonl"
        with ResultFile(path, self._run) as file:
            for indices in share:
                block = [questions[index] for index in indices]
                answered = {place for place, q in enumerate(block) if q.id in done}
                if len(answered) == len(block):
                    continue
                made = PromptReport()
                for lines in _ask_block(model, block, settings, constraint, made, answered):
                    file.append(*lines)
                    finished += len(lines)
                    yield finished
                total.add(made, indices.start)


def shared_questions(questions: int, batch_size: int, process: int, processes: int) -> int:
    """Returns how many of the questions are a process's share (see `AnswerLog.ask`)."""
    return sum(map(len, _share(questions, batch_size, process, processes)))


def _share(questions: int, batch_size: int, process: int, processes: int) -> list[range]:
    """Returns the indices of a process's questions, by blocks."""
    size = batch_size * _BATCHES_IN_BLOCK
    starts = range(0, questions, size)[process::processes]
    return [range(start, min(start + size, questions)) for start in starts]


def _ask_block(
    model: Model,
    block: Sequence[Question],
    settings: AskingSettings,
    constraint: QuoteConstraint | None,
    report: PromptReport,
    answered: set[int],
) -> Iterator[list[dict[str, Any]]]:
    """Yields the lines of some questions at a time, until all have one that are not `answered`."""
    for index, samples in answer_questions(
        model.transformer,
        model.params,
        model.vocabulary,
        block,
        settings.sampling,
        jax.random.key(settings.seed),
        batch_size=settings.batch_size,
        constraint=constraint,
        prompts=settings.prompts,
        samples=settings.samples,
        report=report,
        answered=answered,
    ):
        yield [_line(block[index], samples)]
    declined = sorted(report.declined.items())
    yield [
        {"question_id": block[index].id, "declined": reason}
        for index, reason in declined
        if index not in answered
    ]


def read_answer(question: Question, line: Mapping[str, Any]) -> tuple[JudgedSample, ...] | str:
    """Returns a question's samples, judged, the likeliest first; or why it was declined.

    Args:
      question: as it was asked.
      line: what `AnswerLog` keeps of it.
    """
    if "declined" in line:
        return str(line["declined"])
    return tuple(_read_sample(question, sample) for sample in line["samples"])


def _read_sample(question: Question, line: Mapping[str, Any]) -> JudgedSample:
    answer = line.get("answer", line["text"])
    return JudgedSample(
        question,
        line["text"],
        answer,
        judge(answer, question),
        tuple(line["tokens"]),
        line["log_prob"],
        line["document"],
        line.get("evidence_score"),
    )


def _line(question: Question, samples: Iterable[JudgedSample]) -> dict[str, Any]:
    return {"question_id": question.id, "samples": [_sample_line(sample) for sample in samples]}


def _sample_line(sample: JudgedSample) -> dict[str, Any]:
    line: dict[str, Any] = {
        "text": sample.text,
        "tokens": sample.tokens,
        "log_prob": sample.log_prob,
        "document": sample.document,
    }
    if sample.answer != sample.text:
        line["answer"] = sample.answer
    if sample.evidence_score is not None:
        line["evidence_score"] = sample.evidence_score
    return line


def _plain(value: object) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    raise TypeError(f"{value!r} has no JSON")
