"""Converts the sample world's questions and answers to the records that all other data use."""

from data_pipelines.sample_world.world import WorldAnswer, WorldComparison, WorldQuestion
from gophercite.evidence import Evidence
from gophercite.records import Comparison, Question, RatedAnswer, Span

SOURCE = "sample_world"


def to_question(question: WorldQuestion) -> Question:
    """Returns a question with its pages, its only answer, and the span of the sentence."""
    fact = question.fact
    return Question(
        id=question.id,
        question=question.text,
        source=SOURCE,
        documents=tuple(page.document for page in question.pages),
        answers=(fact.value,),
        evidence=(Span(question.target.document.id, fact.start, fact.end),),
    )


def to_rated_answer(answer: WorldAnswer) -> RatedAnswer:
    """Returns an answer with the labels that raters would give it."""
    question = answer.question
    return RatedAnswer(
        question_id=question.id,
        question=question.text,
        documents=tuple(page.document for page in question.pages),
        claim=answer.claim,
        title=answer.page.document.title,
        quote=answer.quote,
        document=answer.page.document.id,
        plausible=answer.plausible,
        supported=answer.supported,
        model=SOURCE,
    )


def to_comparison(comparison: WorldComparison) -> Comparison:
    """Returns two answers with the labels that raters would give them."""
    first, second = comparison.answers
    return Comparison(
        id=comparison.id,
        question=comparison.question.text,
        source=SOURCE,
        responses=(_to_response(first), _to_response(second)),
        preferred=comparison.preferred,
        supported_and_plausible=(
            first.supported and first.plausible,
            second.supported and second.plausible,
        ),
    )


def _to_response(answer: WorldAnswer) -> tuple[Evidence, ...]:
    return (Evidence(answer.claim, answer.page.document.title, answer.quote),)
