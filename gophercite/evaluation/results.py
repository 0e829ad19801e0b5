"""The results of one evaluation: a table, a report, and every answer as a JSON line."""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from etils import epath

from gophercite.evaluation.answers import JudgedSample
from gophercite.evaluation.metrics import Judgement
from gophercite.evaluation.report import metrics_table, samples_table
from gophercite.evaluation.tables import Table
from gophercite.records import Question

_SHOWN = 100  # answers in the Markdown report

Choice = Literal["likelihood", "rouge"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a question: samples, or why there are none.

    Attributes:
      question: as it was asked.
      answer: the samples, the likeliest first; or why it was declined.
    """

    question: Question
    answer: tuple[JudgedSample, ...] | str

    @property
    def samples(self) -> tuple[JudgedSample, ...]:
        """The samples; none of a question that was declined."""
        return () if isinstance(self.answer, str) else self.answer


def choose(samples: Sequence[JudgedSample], by: Choice = "likelihood") -> JudgedSample:
    """Returns the sample that counts.

    Args:
      samples: of one question, at least one.
      by: "likelihood", the likeliest; "rouge", that with the second-highest ROUGE-L of its claim
        against the evidence that was found for it, which people liked best (section 3.2).
    """
    if by == "likelihood":
        return max(samples, key=lambda sample: sample.log_prob)
    scored = sorted(samples, key=lambda sample: -(sample.evidence_score or 0.0))
    return scored[min(1, len(scored) - 1)]


@dataclasses.dataclass(frozen=True)
class Results:
    """All of one evaluation.

    Attributes:
      title: of the report.
      systems: judgements of the model's answers and of the baselines', by name.
      run: what decided the answers (`describe_asking`); empty without a model.
      outcomes: of each question; none without a model.
      best: the answers that count, of the questions that were not declined.
      model: what the model is called in the lines.
    """

    title: str
    systems: Mapping[str, Sequence[Judgement]]
    run: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outcomes: Sequence[Outcome] = ()
    best: Sequence[JudgedSample] = ()
    model: str = ""

    @functools.cached_property
    def declined(self) -> list[Outcome]:
        """The questions without an answer."""
        return [outcome for outcome in self.outcomes if not outcome.samples]

    def table(self) -> Table:
        """Returns a row for each system."""
        return metrics_table(self.systems)

    def write(self, prefix: epath.PathLike) -> list[str]:
        """Writes PREFIX.md and, of a model, PREFIX.jsonl and PREFIX_samples.jsonl.

        Args:
          prefix: a path, or a URL of a bucket.

        Returns:
          The files.
        """
        files = {".md": self.markdown()}
        if self.outcomes:
            seed = int(self.run.get("seed", 0))
            lines = [sample_line(s, self.model, seed) | {"declined": False} for s in self.best]
            lines += [
                {
                    "question_id": outcome.question.id,
                    "question": outcome.question.question,
                    "declined": True,
                    "reason": outcome.answer,
                }
                for outcome in self.declined
            ]
            files[".jsonl"] = _json_lines(lines)
            if any(len(outcome.samples) > 1 for outcome in self.outcomes):
                every = (sample for outcome in self.outcomes for sample in outcome.samples)
                files["_samples.jsonl"] = _json_lines(
                    sample_line(s, self.model, seed) for s in every
                )
        written = []
        for suffix, content in files.items():
            path = epath.Path(f"{epath.Path(prefix)}{suffix}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            written.append(str(path))
        return written

    def markdown(self) -> str:
        """Returns the report: the table and the first answers."""
        text = f"# {self.title}\n\n{self._settings()}\n\n{self.table().markdown()}"
        if self.declined:
            text += f"\nDeclined, and in no row: {len(self.declined)} questions.\n"
        if self.best:
            shown = samples_table(self.best[:_SHOWN])
            text += f"\n## Answers\n\n{shown.markdown(aligned=False)}"
        return text

    def _settings(self) -> str:
        sampling = self.run.get("sampling")
        if sampling is None:
            return "Percentages with 90 % intervals."
        return (
            f"Temperature {sampling['temperature']}, top-p {sampling['top_p']}, "
            f"seed {self.run['seed']}; percentages with 90 % intervals."
        )


def sample_line(sample: JudgedSample, model: str, seed: int) -> dict[str, Any]:
    """Returns a sample as a line of a result file.

    Args:
      sample: judged.
      model: what the model is called.
      seed: of the draws.
    """
    judgement = sample.judgement
    scores = {"evidence_score": sample.evidence_score, "reward": sample.reward}
    return {
        "question_id": sample.question.id,
        "question": sample.question.question,
        "document": sample.document,
        "text": sample.text,
        "tokens": sample.tokens,
        "log_prob": sample.log_prob,
        **{name: score for name, score in scores.items() if score is not None},
        "faults": sorted(fault.value for fault in judgement.faults),
        "well_formed": judgement.well_formed,
        "verbatim": judgement.verbatim,
        "claim_correct": judgement.claim_correct,
        "claim_f1": judgement.claim_f1,
        "quote_contains_answer": judgement.quote_contains_answer,
        "supported": judgement.supported,
        "seed": seed,
        "model": model,
    }


def _json_lines(lines: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
