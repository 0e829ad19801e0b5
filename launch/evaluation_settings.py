"""The settings of `launch/eval.py`, which can be given in gin files and by flags."""

import dataclasses
import functools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Literal, get_args

import gin

from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.evaluation.answer_log import AskingSettings
from gophercite.evaluation.metrics import ClaimRule
from gophercite.evaluation.question_prompts import PromptSettings
from gophercite.few_shot.examples import SHORT
from gophercite.few_shot.prompting import FewShotSettings, Style
from gophercite.model_folders.folder import Model
from gophercite.prompts import usual_prompt_tokens
from gophercite.quoting.quote_settings import QuoteSettings
from gophercite.quoting.run_boundaries import Boundaries
from gophercite.records import Hit, Question, Report, read
from gophercite.reports.figure_sections import FIGURES
from gophercite.reports.results import Choice
from gophercite.retrieval.index import DocumentIndex
from gophercite.retrieval.search_results import with_pages
from gophercite.storage import is_remote
from gophercite.storage.json_fields import RecordError
from gophercite.storage.overwriting import refuse_overwriting
from gophercite.storage.paths import storage_path

# Endings of the files that an evaluation writes.
WRITTEN = (
    ".md",
    ".html",
    ".json",
    ".jsonl",
    "_samples.jsonl",
    "_claims.jsonl",
    *(f"_{name}.png" for name in FIGURES),
)
# Settings that mean something for the baselines alone; all others say how a model is asked.
_OF_BASELINES = {"questions", "index", "limit", "output", "claims", "strict", "examples"}
_LARGEST = (1 << 31) - 1  # the largest 32-bit integer, as arrays use
_LARGEST_SEED = (1 << 32) - 1


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Which model answers which questions, how, and what happens to its answers.

    Attributes:
      questions: file of questions.
      model: model folder, or folder of a run, whose best checkpoint is used; None for the
        baselines alone.
      output: prefix of the results, a path or a URL; None saves nothing.
      limit: maximum number of questions, evenly spread over the file, because neighbours are often
        about the same page.
      batch_size: number of prompts that are answered at once.
      max_tokens: maximum length of an answer.
      max_prompt_tokens: maximum length of a prompt; longer pages are cut to windows. None follows
        from the length that the model was trained with (`prompts.usual_prompt_tokens`).
      index: holds the pages of questions with search results.
      pages: whether a question's pages share one prompt, or each has its own.
      samples: number of answers per prompt.
      few_shot: style of the examples before the question, for a base model.
      shots: number of these examples.
      temperature: sampling temperature; 0 takes the most likely token.
      top_p: probability mass of nucleus sampling.
      constrained: whether answers have to be well formed and quote the pages verbatim.
      omissions: how often a constrained quote may leave words out, by ` [...] `.
      boundaries: where a constrained quote may begin and end.
      claim_in_quote: whether a constrained quote has to contain its claim, if it is in the pages.
      claims: which claims are correct: those that equal an accepted answer, or that contain one.
      seed: sampling seed.
      choose: which of a question's samples counts; by default the one with the highest reward if
        there is a reward model, otherwise by consensus.
      reward_model: folder of a reward model's run, which scores all samples.
      nli: URL of a natural-language-inference server, for citation recall and precision.
      train: files of questions that the model was trained on, to score by overlap with them.
      model_parallel: number of devices that each model is split over; if several processes have
        joined, it may be all of their devices. They then answer all questions together, and do not
        share them.
      examples: number of answers to print.
      strict: whether the first bad line of the questions ends the run.
      baselines: whether to score the baselines on the same questions.
    """

    questions: str
    model: str | None = None
    output: str | None = None
    limit: int | None = None
    batch_size: int = 16
    max_tokens: int = 256
    max_prompt_tokens: int | None = None
    index: str | None = None
    pages: Literal["together", "each"] = "together"
    samples: int = 1
    few_shot: str | None = None
    shots: int = 3
    temperature: float = 0.0
    top_p: float = 1.0
    constrained: bool = False
    omissions: int = 0
    boundaries: Boundaries = "words"
    claim_in_quote: bool = True
    claims: ClaimRule = "equal"
    seed: int = 0
    choose: Choice | None = None
    reward_model: str | None = None
    nli: str | None = None
    train: Sequence[str] = ()
    model_parallel: int = 1
    examples: int = 5
    strict: bool = False
    baselines: bool = True

    def __post_init__(self) -> None:
        """Refuses impossible settings, before anything is read.

        Raises:
          ValueError: a setting is out of range or needs a model, there is nothing to score, or the
            results would overwrite a file that is read.
        """
        counts = ("limit", "batch_size", "max_tokens", "max_prompt_tokens", "samples")
        for name in (*counts, "model_parallel"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= _LARGEST:
                raise ValueError(f"{name} is {value}: must be from 1 to {_LARGEST}")
        if self.examples < 0:
            raise ValueError(f"examples is {self.examples}: must be at least 0")
        if not 0 <= self.seed <= _LARGEST_SEED:
            raise ValueError(f"seed is {self.seed}: must be from 0 to {_LARGEST_SEED}")
        most = len(SHORT)  # all styles have as many examples
        if self.few_shot is not None and not 0 <= self.shots <= most:
            raise ValueError(f"shots is {self.shots}: must be from 0 to {most}")
        if self.output is not None:
            read_from = [self.questions, *self.train, *filter(None, [self.index])]
            prefix = storage_path(self.output)
            refuse_overwriting((f"{prefix}{ending}" for ending in WRITTEN), read_from)
        if self.model is None:
            self._refuse_what_needs_a_model()
        if self.choose not in (None, *get_args(Choice)):
            raise ValueError(f"choose is {self.choose!r}: must be one of {get_args(Choice)}")
        if self.claims not in get_args(ClaimRule):
            raise ValueError(f"claims is {self.claims!r}: must be one of {get_args(ClaimRule)}")
        if self.choose == "reward" and self.reward_model is None:
            raise ValueError("choose = 'reward' needs a reward_model")
        if self.choose == "rouge" and self.few_shot != Style.LONG.value:
            raise ValueError("choose = 'rouge' needs few_shot = 'long', whose evidence has a score")
        if self.constrained and self.few_shot == Style.CITED.value:
            raise ValueError(
                "constrained can't be combined with few_shot = 'cited', which names its sources "
                "in plain words"
            )
        QuoteSettings(maximum_omissions=self.omissions, boundaries=self.boundaries)
        if self.omissions and not self.constrained:
            raise ValueError(
                "omissions need constrained: without it, the model decides what a quote leaves out"
            )
        if self.boundaries != "words" and not self.constrained:
            raise ValueError(
                "boundaries need constrained: without it, the model decides where quotes begin "
                "and end"
            )
        self.asking(None)

    def _refuse_what_needs_a_model(self) -> None:
        if not self.baselines:
            raise ValueError("there is nothing to score: give a model, or ask for the baselines")
        ignored = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in _OF_BASELINES and value != field.default:
                no = "no-" if value is False else ""
                ignored.append(f"--{no}{field.name.replace('_', '-')}")
        if ignored:
            raise ValueError(
                f"without --model, only baselines are scored: leave {', '.join(ignored)} out"
            )

    @property
    def choice(self) -> Choice:
        """Which of a question's samples counts."""
        return self.choose or ("consensus" if self.reward_model is None else "reward")

    def asking(self, model: Model | None) -> AskingSettings:
        """How the model is prompted.

        Args:
          model: the one that answers; None as long as it has not been read.

        Raises:
          ValueError: a setting is out of range.
        """
        few_shot = FewShotSettings(Style(self.few_shot), self.shots) if self.few_shot else None
        trained_length = positions = None
        if model is not None:
            positions = model.transformer.config.max_positions
            trained_length = None if self.few_shot else model.vocabulary.trained_length
        longest = self.max_prompt_tokens or usual_prompt_tokens(
            trained_length, self.max_tokens, positions
        )
        return AskingSettings(
            SamplingSettings(self.max_tokens, self.temperature, top_p=self.top_p),
            PromptSettings(longest, self.pages, few_shot=few_shot, seed=self.seed),
            self.samples,
            self.constrained,
            self.batch_size,
            self.seed,
            self.omissions,
            self.boundaries,
            self.claim_in_quote,
        )

    def read_questions(self, report: Report) -> list[Question]:
        """The questions with their pages.

        Args:
          report: counts and names the bad lines, and the questions whose pages the index lacks.

        Raises:
          ValueError: there are no questions, two share an id, or one has search results, whose
            pages are in an index, and none was given.
          RecordError: `strict`, and a line is bad or the index lacks a page.
          FileNotFoundError: a file is missing, including those of training questions.
        """
        for file in self.train:
            if not is_remote(file) and not pathlib.Path(file).is_file():
                raise FileNotFoundError(f"{file}: there is no such file of training questions")
        questions = list(read(self.questions, Question, strict=self.strict, report=report))
        if self.limit is not None and self.limit < len(questions):
            spread = (number * len(questions) // self.limit for number in range(self.limit))
            questions = [questions[place] for place in spread]
        questions = list(self._with_pages(questions, report))
        if not questions:
            raise ValueError(f"{self.questions} has no question that can be asked")
        ids: set[str] = set()
        for question in questions:
            if question.id in ids:
                raise ValueError(f"{self.questions}: two questions have the id {question.id!r}")
            ids.add(question.id)
        return questions

    def _with_pages(self, questions: Sequence[Question], report: Report) -> Iterator[Question]:
        if self.index is None:
            for question in questions:
                self._refuse_snippets(question)
            yield from questions
            return
        with DocumentIndex(self.index) as index:
            page = functools.cache(index.document)
            for question in questions:
                try:
                    yield with_pages(question, page)
                except RecordError as error:
                    problem = f"{error.problem} (question {question.id!r})"
                    named = RecordError(problem, error.field, self.questions)
                    if self.strict:
                        raise named from None
                    report.read -= 1
                    report.skip(named)

    def _refuse_snippets(self, question: Question) -> None:
        for source in question.documents:
            if isinstance(source, Hit):
                raise ValueError(
                    f"{self.questions}: question {question.id!r}: page {source.id!r} has a snippet "
                    "but no text; give the --index that holds the page"
                )


gin.external_configurable(Evaluation, module="gophercite")
