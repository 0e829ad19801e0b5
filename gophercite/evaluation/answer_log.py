"""A model's answers to a file of questions, saved as they come, so no question is asked twice.

The answers are in a folder whose name depends on everything that decides them, such as
`PREFIX.answers/3f9a1c0b55e2/`. Any change of the model's parameters, a setting or a page changes
the folder, and an existing folder can be resumed after any interruption. Questions are dealt out in
blocks, and the batches of a block depend on that block alone. So the answers are the same, bit for
bit, whatever ended the process and however many processes share the work, now or earlier.
"""

import contextlib
import dataclasses
import enum
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
from etils import epath

from gophercite.decoding.across_processes import gather_json
from gophercite.decoding.rerank import Scorer
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.evaluation.answers import JudgedSample, answer_questions, with_consensus
from gophercite.evaluation.metrics import ClaimRule, judge
from gophercite.evaluation.question_prompts import PromptReport, PromptSettings
from gophercite.model_folders.checkpoint_files import name_leaves
from gophercite.model_folders.digests import digests
from gophercite.model_folders.folder import Model
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.run_boundaries import Boundaries
from gophercite.records import Question, to_json
from gophercite.storage.result_file import ResultFile, ResultFileError, files_in, read_results

_BATCHES_IN_BLOCK = 8  # enough to find prompts of similar length for each batch
_SCORES = ("evidence_score", "reward", "supported_and_plausible")  # fields of `JudgedSample`


@dataclasses.dataclass(frozen=True)
class AskingSettings:
    """How a model is prompted.

    Attributes:
      sampling: how tokens are drawn.
      prompts: what the model is shown.
      samples: number of answers per prompt.
      constrained: whether answers must be well formed and their quotes verbatim.
      batch_size: number of prompts per batch.
      seed: seed of the sampling.
      maximum_omissions: how often a constrained quote may leave words out (`QuoteSettings`).
      boundaries: where a constrained quote may begin and end.
      claim_in_quote: whether a constrained quote must contain its claim, where some quote could.
    """

    sampling: SamplingSettings
    prompts: PromptSettings
    samples: int = 1
    constrained: bool = False
    batch_size: int = 16
    seed: int = 0
    maximum_omissions: int = 0
    boundaries: Boundaries = "words"
    claim_in_quote: bool = True


def describe_asking(
    model: Model,
    name: str,
    settings: AskingSettings,
    questions: Sequence[Question],
    reward_model: Model | None = None,
) -> dict[str, Any]:
    """Returns all that decides a model's answers and scores, as JSON; large parts as digests.

    Args:
      model: the model.
      name: where it was read from.
      settings: how it is prompted.
      questions: the questions, with their pages.
      reward_model: the model that scores the answers.
    """
    asked = hashlib.sha256()
    for question in questions:
        asked.update(json.dumps(to_json(question), sort_keys=True).encode() + b"\n")
    form = {"question_first": True} if model.vocabulary.question_first else {}
    return {
        "model": name,
        **form,
        "provenance": model.provenance,
        "parameters": sum(leaf.size for leaf in name_leaves(model.params).values()),
        "parameters_sha256": _digest(model),
        "reward_model_sha256": None if reward_model is None else _digest(reward_model),
        "questions": len(questions),
        "questions_sha256": asked.hexdigest(),
        **json.loads(json.dumps(dataclasses.asdict(settings), default=_plain)),
    }


def _digest(model: Model) -> str:
    found = sorted(digests(name_leaves(model.params)).items())
    return hashlib.sha256(repr(found).encode()).hexdigest()


class AnswerLog:
    """The folder of one model's answers to one list of questions.

    Args:
      prefix: prefix of the results, a path or a URL (`gs://…`).
      run: the output of `describe_asking`.
    """

    def __init__(self, prefix: epath.PathLike, run: Mapping[str, Any]) -> None:
        name = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:12]
        self._run = run
        self.folder = epath.Path(f"{epath.Path(prefix)}.answers") / name

    def read(self) -> dict[str, dict[str, Any]]:
        """Returns the lines of all processes by their question's id.

        Raises:
          ResultFileError: a line is not a result, or a question has two different ones.
        """
        # In a bucket, a file that is being written exists only as its parts.
        names = {path.name.removesuffix(".parts") for path in files_in(self.folder)}
        found: dict[str, dict[str, Any]] = {}
        places: dict[str, epath.Path] = {}
        for name in sorted(names):
            if name.endswith(".jsonl"):
                path = self.folder / name
                for line in read_results(path):
                    _check(line, path)
                    id = line["question_id"]
                    # Processes that did not know of each other may have given the same answer.
                    if found.setdefault(id, line) != line:
                        raise ResultFileError(
                            f"{path}: has another answer to question {id!r} than {places[id]}; "
                            "remove one of the two lines"
                        )
                    places.setdefault(id, path)
        return found

    def ask(
        self,
        model: Model,
        questions: Sequence[Question],
        settings: AskingSettings,
        report: PromptReport | None = None,
        scorer: Scorer | None = None,
        process: int = 0,
        processes: int = 1,
        *,
        together: bool = False,
    ) -> Iterator[int]:
        """Answers the unanswered questions of this process's share, and saves the answers.

        Args:
          model: the model.
          questions: all of them, with their pages; ids are unique.
          settings: how the model is prompted.
          report: counts the prompts that are built in this run.
          scorer: gives samples their rewards.
          process: index of this process, from 0.
          processes: number of processes that share the questions.
          together: whether several processes answer all questions with one model that is spread
            over their devices; the first of them writes.

        Yields:
          Number of questions of the share that are answered or declined: first those of earlier
          runs, then after each batch.

        Raises:
          ResultFileError: another process writes this one's file, or a line in it is not a result.
        """
        done = frozenset(self.read())
        if together:  # the first may write before another has read
            done = frozenset(gather_json(sorted(done))[0])
        writes = not together or jax.process_index() == 0
        total = PromptReport() if report is None else report
        self.folder.mkdir(parents=True, exist_ok=True)
        quotes = QuoteSettings(
            maximum_omissions=settings.maximum_omissions, boundaries=settings.boundaries
        )
        constraint = QuoteConstraint(model.vocabulary, quotes) if settings.constrained else None
        share = _share(questions, settings, process, processes)
        finished = sum(questions[index].id in done for block in share for index in block)
        yield finished
        path = self.folder / f"{process:05d}-of-{processes:05d}.jsonl"
        with ResultFile(path, self._run) if writes else contextlib.nullcontext() as file:
            for indices in share:
                block = [questions[index] for index in indices]
                answered = {place for place, q in enumerate(block) if q.id in done}
                if len(answered) == len(block):
                    continue
                block_report = PromptReport()
                asked = _ask_block(model, block, settings, constraint, block_report, answered)
                for place, samples in asked:
                    line = _line(block[place], _scored(block[place], samples, scorer))
                    if file is not None:
                        file.append(line)
                    finished += 1
                    yield finished
                declined = sorted(block_report.declined.keys() - answered)
                if file is not None:
                    file.append(
                        *(_declined_line(block[at], block_report.declined[at]) for at in declined)
                    )
                finished += len(declined)
                yield finished
                total.add(block_report, indices.start)


def _check(line: Mapping[str, Any], path: epath.Path) -> None:
    """Refuses a line that is no answer, as one may be that somebody has edited."""
    samples = line.get("samples")
    if "declined" not in line and not (
        isinstance(samples, list)
        and all(isinstance(sample, dict) and _is_sample(sample) for sample in samples)
    ):
        question = line["question_id"]
        raise ResultFileError(
            f"{path}: the line of question {question!r} is not a valid answer; remove the line"
        )


def _is_sample(sample: Mapping[str, Any]) -> bool:
    tokens = sample.get("tokens")
    return (
        isinstance(sample.get("text"), str)
        and isinstance(sample.get("answer", ""), str)
        and isinstance(tokens, list)
        and all(isinstance(token, int) for token in tokens)
        and isinstance(sample.get("log_prob"), int | float)
        and isinstance(sample.get("document"), str | None)
        and all(isinstance(sample.get(name), int | float | None) for name in _SCORES)
    )


def shared_questions(
    questions: Sequence[Question], settings: AskingSettings, process: int, processes: int
) -> int:
    """Returns how many of the questions are in a process's share (see `AnswerLog.ask`)."""
    return sum(map(len, _share(questions, settings, process, processes)))


def _share(
    questions: Sequence[Question], settings: AskingSettings, process: int, processes: int
) -> list[range]:
    """Returns the indices of a process's questions, as a range per block.

    The answers of a block arrive together if each page has its own prompt, so blocks are as long
    then in prompts as otherwise. They are shorter if there would be too few for all processes.
    """
    pages = 1
    if settings.prompts.pages == "each":
        pages = max((len(question.documents) for question in questions), default=0) or 1
    batch = -(-settings.batch_size // pages)  # questions whose prompts fill a batch
    batches = -(-len(questions) // batch)
    size = batch * max(1, min(_BATCHES_IN_BLOCK, batches // processes))
    starts = range(0, len(questions), size)[process::processes]
    return [range(start, min(start + size, len(questions))) for start in starts]


def _ask_block(
    model: Model,
    block: Sequence[Question],
    settings: AskingSettings,
    constraint: QuoteConstraint | None,
    report: PromptReport,
    answered: set[int],
) -> Iterator[tuple[int, tuple[JudgedSample, ...]]]:
    return answer_questions(
        model,
        block,
        settings.sampling,
        jax.random.key(settings.seed),
        batch_size=settings.batch_size,
        constraint=constraint,
        prompts=settings.prompts,
        samples=settings.samples,
        claim_in_quote=settings.claim_in_quote,
        report=report,
        answered=answered,
    )


def _scored(
    question: Question, samples: Sequence[JudgedSample], scorer: Scorer | None
) -> Sequence[JudgedSample]:
    """Returns samples with their rewards; a malformed answer is scored as plain text."""
    if scorer is None:
        return samples
    responses = [sample.judgement.triples or sample.answer for sample in samples]
    rewards = scorer.score(question.question, responses)
    return [
        dataclasses.replace(sample, reward=float(reward), supported_and_plausible=float(both))
        for sample, reward, both in zip(samples, *rewards, strict=True)
    ]


def read_answer(
    question: Question,
    line: Mapping[str, Any],
    maximum_omissions: int = 0,
    claims: ClaimRule = "equal",
) -> tuple[JudgedSample, ...] | str:
    """Returns a question's samples, judged, the most likely first; or why it was declined.

    Args:
      question: the question that was asked.
      line: what `AnswerLog` stores for it.
      maximum_omissions: as when the model was prompted.
      claims: which claims count as correct (`metrics.judge`).
    """
    if "declined" in line:
        return str(line["declined"])
    return with_consensus(
        [_read_sample(question, sample, maximum_omissions, claims) for sample in line["samples"]]
    )


def _read_sample(
    question: Question, line: Mapping[str, Any], maximum_omissions: int, claims: ClaimRule
) -> JudgedSample:
    answer = line.get("answer", line["text"])
    return JudgedSample(
        question,
        line["text"],
        answer,
        judge(answer, question, maximum_omissions, claims),
        tuple(line["tokens"]),
        line["log_prob"],
        line["document"],
        **{name: line.get(name) for name in _SCORES},
        quote_lacks_claim=line.get("quote_lacks_claim") is True,
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
    if sample.quote_lacks_claim:
        line["quote_lacks_claim"] = True
    scores = {name: getattr(sample, name) for name in _SCORES}
    return line | {name: score for name, score in scores.items() if score is not None}


def _declined_line(question: Question, reason: str) -> dict[str, Any]:
    return {"question_id": question.id, "declined": reason}


def _plain(value: object) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    raise TypeError(f"{value!r} can't be written as JSON")
