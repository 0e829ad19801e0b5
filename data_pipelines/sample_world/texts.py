"""Text of the sample world for pretraining a language model, before it has seen inline evidence.

There are two forms: pages followed by excerpts from them, and pages followed by questions, each
with its answer and the sentence that states it, in a plain citation style. A model that has read
both can look up facts and copy text. The form `%<claim>%(title)%[quote]%` is left for supervised
fine-tuning to teach, as in the paper. With several excerpts or questions per page, most of a text
can be predicted from the text before it, which is what such a small model has to learn.
"""

import random

from data_pipelines import citations
from data_pipelines.citations import Part
from data_pipelines.sample_world.world import Fact, Page, World
from gophercite import prompts

_EXCERPTS = ('"{sentence}" ({title})', "{title}: {sentence}", "From {title}:\n{sentence}")

# No more parts are added to a text of this length, about 180 tokens of the bundled vocabulary.
_MOST_CHARACTERS = 600


def excerpts(world: World, index: int) -> list[Part]:
    """Returns one or two pages of the world and sentences copied from them, chosen by `index`."""
    draw = random.Random(f"{world.seed}/{world.split}/excerpts/{index}")
    pages = [world.page(draw.randrange(world.size)) for _ in range(draw.randint(1, 2))]
    parts = [Part("\n\n".join(f"{p.document.title}\n{p.document.text}" for p in pages), False)]
    stated = [(page, fact) for page in pages for fact in page.facts]
    style = draw.choice(_EXCERPTS)
    for page, fact in draw.sample(stated, len(stated)):
        text = "\n\n" + style.format(sentence=page.sentence(fact), title=page.document.title)
        if len(parts) > 1 and _length(parts) + len(text) > _MOST_CHARACTERS:
            break
        parts.append(Part(text, True))
    return parts


def cited(world: World, index: int) -> list[Part]:
    """Returns the pages of question `index`, then that question and others with cited answers.

    The parts before the first answer are the prompt of supervised fine-tuning, up to `Answer:`.
    """
    question = world.question(index)
    draw = random.Random(f"{world.seed}/{world.split}/cited/{index}")
    style = draw.choice(citations.STYLES)
    pages = [page.document for page in question.pages]
    parts = [
        Part(prompts.prompt(question.text, pages), False),
        _answer(style, question.target, question.fact),
    ]
    other_facts = [(p, f) for p in question.pages for f in p.facts if f is not question.fact]
    for page, fact in draw.sample(other_facts, len(other_facts)):
        question_text = draw.choice(fact.attribute.questions).format(name=page.document.title)
        prompt, answer = (
            Part("\n\n" + prompts.prompt(question_text, []), False),
            _answer(style, page, fact),
        )
        if _length([*parts, prompt, answer]) > _MOST_CHARACTERS:
            break
        parts += [prompt, answer]
    return parts


def _answer(style: str, page: Page, fact: Fact) -> Part:
    title, sentence = page.document.title, page.sentence(fact)
    return Part(style.format(answer=fact.value, title=title, sentence=sentence), True)


def _length(parts: list[Part]) -> int:
    return sum(len(part.text) for part in parts)
