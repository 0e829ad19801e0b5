"""A table of sample answers with their faults, written at every evaluation of a run."""

import dataclasses
from collections.abc import Sequence

import jax

from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.evaluation.answers import answer_questions
from gophercite.model_folders.folder import Model
from gophercite.models.parameters import Params
from gophercite.models.transformer import Transformer
from gophercite.quoting.constraint import QuoteConstraint
from gophercite.records import Question
from gophercite.reports.report import metrics_table, samples_table, summarise
from gophercite.vocabularies import Vocabulary


@dataclasses.dataclass(frozen=True)
class AnswerTable:
    """Answers the same questions at every evaluation and judges the answers.

    Attributes:
      transformer: the model.
      vocabulary: its tokenizer.
      questions: held-out questions, each with its pages.
      settings: how answers are drawn; temperature 0 shows the model's most likely answers.
      batch_size: number of questions that are answered at once.
      shown: number of answers in the table; rates are over all questions.
      seed: seed of the draws, the same at every evaluation.
      constraint: what answers may look like; None samples without constraint, to show what goes
        wrong.
    """

    transformer: Transformer
    vocabulary: Vocabulary
    questions: Sequence[Question]
    settings: SamplingSettings
    batch_size: int = 16
    shown: int = 10
    seed: int = 0
    constraint: QuoteConstraint | None = None

    def __call__(self, params: Params, step: int) -> tuple[str, dict[str, float]]:
        """Answers and judges.

        Args:
          params: the model's parameters.
          step: number of updates so far.

        Returns:
          Markdown, and the rates as metrics: `eval/samples/verbatim` and so on.
        """
        answers = dict(
            answer_questions(
                Model(self.transformer, params, self.vocabulary, {}),
                self.questions,
                self.settings,
                jax.random.key(self.seed),
                batch_size=self.batch_size,
                constraint=self.constraint,
            )
        )
        in_order = [best for _, (best, *_) in sorted(answers.items())]
        judgements = [answer.judgement for answer in in_order]
        text = (
            f"# Sample answers after step {step}\n\n"
            f"{metrics_table({f'step {step}': judgements}).markdown()}\n"
            f"{samples_table(in_order[: self.shown]).markdown(aligned=False)}"
        )
        rates = {f"eval/samples/{name}": rate.mean for name, rate in summarise(judgements).items()}
        return text, rates
