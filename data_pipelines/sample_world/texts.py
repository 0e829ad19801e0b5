"""Text of the sample world for pretraining a language model, before it has seen inline evidence.

Two forms: pages as they are, and pages followed by a question, its answer and the sentence that
says so, in a plain citation style. A model that has read both can look up and copy; that answers
come as `%<claim>%(title)%[quote]%` is left for supervised fine-tuning to teach, as in the paper.
"""

import random

from data_pipelines.sample_world.world import World
from gophercite import prompts

# Answer, page, sentence: names occur after a space, a bracket and a quotation mark, since a
# tokenizer spells "Kesh" after each of them differently.
_CITATIONS = (
    ' {answer} ({title}: "{sentence}")',
    ' "{answer}" (see {title}) "{sentence}"',
    " {answer}. Page: {title}. Quote: {sentence}",
    "\n{answer}\n({title})\n{sentence}",
)


def plain(world: World, index: int) -> str:
    """Returns one to three pages of the world with their titles, drawn by `index`."""
    draw = random.Random(f"{world.seed}/{world.split}/plain/{index}")
    pages = [world.page(draw.randrange(world.size)) for _ in range(draw.randint(1, 3))]
    return "\n\n".join(f"{p.document.title}\n{p.document.text}" for p in pages) + "\n"


def cited(world: World, index: int) -> tuple[str, str]:
    """Returns question `index` with its pages, and its answer with the sentence that says so.

    The first string is the prompt that supervised fine-tuning uses too, up to `Answer:`.
    """
    question = world.question(index)
    style = random.Random(f"{world.seed}/{world.split}/style/{index}").choice(_CITATIONS)
    prompt = prompts.prompt(question.text, [page.document for page in question.pages])
    response = style.format(
        answer=question.fact.value,
        title=question.target.document.title,
        sentence=question.target.sentence(question.fact),
    )
    return prompt, response
