"""The results of one evaluation: a table, a report, and every answer as a JSON line."""

import dataclasses
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from etils import epath

from gophercite.evaluation.answers import JudgedSample
from gophercite.evaluation.citations import CitationQuality
from gophercite.evaluation.intervals import Estimate
from gophercite.evaluation.metrics import ClaimRule, Judgement
from gophercite.records import Question
from gophercite.reports.figure_sections import FIGURES, SavedSystem, figures_section
from gophercite.reports.report import (
    citation_fields,
    details_table,
    metrics_table,
    summarise,
    summarise_citations,
)
from gophercite.reports.report_files import Section, write_files, write_report
from gophercite.reports.tables import Table
from gophercite.storage.paths import delete
from gophercite.text.counting import counted

# The suffixes of files that only some evaluations have. PREFIX.jsonl is not among them: beside a
# report without a model it may be the user's own.
_SOMETIMES_WRITTEN = (
    "_samples.jsonl",
    "_claims.jsonl",
    *(f"_{name}.png" for name in FIGURES),
)

Choice = Literal["consensus", "mean", "likelihood", "reward", "rouge"]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a question: samples, or why there are none.

    Attributes:
      question: the question that was asked.
      answer: the samples, the most likely first; or why it was declined.
    """

    question: Question
    answer: tuple[JudgedSample, ...] | str

    @property
    def samples(self) -> tuple[JudgedSample, ...]:
        """The samples; empty for a question that was declined."""
        return () if isinstance(self.answer, str) else self.answer


def choose(samples: Sequence[JudgedSample], by: Choice = "consensus") -> JudgedSample:
    """Returns the sample that counts as the answer.

    Args:
      samples: samples of one question, at least one. One whose quote lacks its claim counts only if
        all do.
      by: "consensus", the one that agrees most with all and is likely, too (`with_consensus`);
        "mean", the one with the highest mean of its tokens' log-probabilities; "likelihood", with
        the highest sum; "reward", the one with the highest reward; "rouge", the one whose claim has
        the second-highest ROUGE-L against the evidence that was found for it, which people
        preferred (section 3.2).
    """
    samples = [sample for sample in samples if not sample.quote_lacks_claim] or samples
    if by == "consensus":
        return max(samples, key=lambda sample: (sample.consensus or 0.0, sample.log_prob))
    if by == "mean":
        return max(samples, key=lambda sample: sample.log_prob / max(1, len(sample.tokens)))
    if by == "likelihood":
        return max(samples, key=lambda sample: sample.log_prob)
    if by == "reward":
        return max(samples, key=lambda sample: sample.reward or 0.0)
    scored = sorted(samples, key=lambda sample: -(sample.evidence_score or 0.0))
    return scored[min(1, len(scored) - 1)]


@dataclasses.dataclass(frozen=True)
class Results:
    """All results of one evaluation.

    Attributes:
      title: the report's title.
      systems: judgements of the model's answers and of the baselines', by name.
      run: what decided the answers (`describe_asking`); empty without a model.
      outcomes: one per question; empty without a model.
      best: the answers that count, for the questions that were not declined.
      model: the model's name in result lines.
      citations: citation quality of the answers that count; empty without a
        natural-language-inference model.
      sections: further sections of the report, besides tables, figures and answers.
      files: contents of further files to write, by the suffix that follows the prefix.
      claims: which claims counted as correct (`metrics.judge`).
    """

    title: str
    systems: Mapping[str, Sequence[Judgement]]
    run: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    outcomes: Sequence[Outcome] = ()
    best: Sequence[JudgedSample] = ()
    model: str = ""
    citations: Sequence[CitationQuality | None] = ()
    sections: Sequence[Section] = ()
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    claims: ClaimRule = "equal"

    @functools.cached_property
    def declined(self) -> list[Outcome]:
        """The questions without an answer."""
        return [outcome for outcome in self.outcomes if not outcome.samples]

    def table(self) -> Table:
        """Returns a row for each system."""
        return metrics_table(self.systems)

    def details(self) -> Table:
        """Returns a row for each system, with the columns that the first table has no room for."""
        return details_table(self.systems, self._citations)

    def lines(self) -> list[dict[str, Any]]:
        """Returns a line for each question: the answer that counts, or why it was declined."""
        found = [sample_line(s, self.model, self._seed) | {"declined": False} for s in self.best]
        if self.citations:
            for line, quality in zip(found, self.citations, strict=True):
                line.update(citation_fields(quality))
        return found + [
            {
                "question_id": outcome.question.id,
                "question": outcome.question.question,
                "declined": True,
                "reason": outcome.answer,
            }
            for outcome in self.declined
        ]

    def sample_lines(self) -> list[dict[str, Any]]:
        """Returns a line for each sample, question by question."""
        every = (sample for outcome in self.outcomes for sample in outcome.samples)
        return [sample_line(sample, self.model, self._seed) for sample in every]

    def write(self, prefix: epath.PathLike) -> list[str]:
        """Writes the report and, if there is a model, all its answers.

        PREFIX.json has the settings and all shares; PREFIX.jsonl has the answers that count;
        PREFIX_samples.jsonl has all samples, if questions have several. Samples, claims and figures
        that an earlier evaluation wrote with this prefix, and this one did not, are deleted.

        Args:
          prefix: a path, or a URL of a bucket.

        Returns:
          The names of the files.
        """
        summary = {
            "title": self.title,
            "run": self.run,
            "claims": self.claims,
            "declined": len(self.declined),
            "systems": {
                name: {field: dataclasses.asdict(e) for field, e in self._shares(name).items()}
                for name in self.systems
            },
        }
        files: dict[str, str | bytes] = {
            ".json": json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
        }
        sections = [Section("", [self._settings()], [self.table(), self.details()])]
        if self.declined:
            declined = counted(len(self.declined), "question")
            sections.append(Section("", [f"Declined, and counted in no row: {declined}."]))
        sections += self.sections
        if self.outcomes:
            lines = self.lines()
            files[".jsonl"] = json_lines(lines)
            samples = self.sample_lines()
            if len(samples) > len(self.best):
                files["_samples.jsonl"] = json_lines(samples)
            sections.append(figures_section({"": SavedSystem(self.model, lines, samples)}))
            sections.append(Section("Answers", answers=self.best))
        written = write_report(prefix, self.title, sections)
        written += write_files(prefix, {**files, **self.files})
        for suffix in _SOMETIMES_WRITTEN:
            path = epath.Path(f"{epath.Path(prefix)}{suffix}")
            if str(path) not in written:
                delete(path)
        return written

    def _shares(self, system: str) -> dict[str, Estimate]:
        """All that is known of a system's answers, by field."""
        citations = summarise_citations(self._citations.get(system, ()))
        return summarise(self.systems[system]) | citations

    @property
    def _citations(self) -> dict[str, Sequence[CitationQuality | None]]:
        """Citation quality by system: only the model's is measured."""
        asked = next(iter(self.systems))  # the model, if there is one
        return {asked: self.citations} if self.citations else {}

    @property
    def _seed(self) -> int:
        return int(self.run.get("seed", 0))

    def _settings(self) -> str:
        sampling = self.run.get("sampling")
        about = "Percentages with 90 % intervals."
        if sampling is not None:
            about = (
                f"Temperature {sampling['temperature']}, top-p {sampling['top_p']}, "
                f"seed {self._seed}; percentages with 90 % intervals."
            )
        if self.claims == "contain":
            about += " A claim is correct here if it contains an accepted answer."
        return about


def sample_line(sample: JudgedSample, model: str, seed: int) -> dict[str, Any]:
    """Returns a sample as a line of a result file.

    Args:
      sample: a judged sample.
      model: the model's name.
      seed: seed of the sampling.
    """
    judgement = sample.judgement
    scores = {
        "consensus": sample.consensus,
        "evidence_score": sample.evidence_score,
        "reward": sample.reward,
        "supported_and_plausible": sample.supported_and_plausible,
    }
    return {
        "question_id": sample.question.id,
        "question": sample.question.question,
        "document": sample.document,
        "text": sample.text,
        **({} if sample.answer == sample.text else {"answer": sample.answer}),
        "tokens": sample.tokens,
        "log_prob": sample.log_prob,
        **({"quote_lacks_claim": True} if sample.quote_lacks_claim else {}),
        **{name: score for name, score in scores.items() if score is not None},
        "faults": sorted(fault.value for fault in judgement.faults),
        "well_formed": judgement.well_formed,
        "verbatim": judgement.verbatim,
        "claim_correct": judgement.claim_correct,
        "claim_f1": judgement.claim_f1,
        "claim_rouge_l": judgement.claim_rouge_l,
        "quote_contains_answer": judgement.quote_contains_answer,
        "supported": judgement.supported,
        "evidence_precision": judgement.evidence_precision,
        "evidence_recall": judgement.evidence_recall,
        "seed": seed,
        "model": model,
    }


def json_lines(lines: Iterable[Mapping[str, Any]]) -> str:
    """Returns JSON lines."""
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
