"""What plans of rows depend on, as text."""

import copy
import importlib.util
import itertools

from data_pipelines.description import describe
from data_pipelines.features import SeqioVocabulary
from data_pipelines.sample_world.vocabulary import bundled_vocabulary

CODE = '''"""A module."""
LIMIT = 7
def step(value):
    """Does something."""
    return value[:LIMIT]  # at most
'''


def test_code_counts_and_what_is_said_of_it_does_not(tmp_path):
    numbers = itertools.count()

    def described(code):
        path = tmp_path / str(next(numbers)) / "steps.py"
        path.parent.mkdir()
        path.write_text(code)
        spec = importlib.util.spec_from_file_location("steps", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return describe(module.step)

    before = described(CODE)
    assert before == described(CODE)
    for old, new in (("at most", "no more"), ("Does", "Cuts"), ("A mod", "The mod"), ("  #", " #")):
        assert described(CODE.replace(old, new)) == before
    for old, new in (("= 7", "= 8"), ("[:LIMIT]", "[LIMIT:]"), ("step(value)", "step(value, *_)")):
        assert described(CODE.replace(old, new)) != before


def test_the_form_of_prompts_counts():
    plain = copy.copy(bundled_vocabulary())
    before = describe(SeqioVocabulary(plain))
    assert before == describe(SeqioVocabulary(bundled_vocabulary()))
    plain.question_first = True
    assert before != describe(SeqioVocabulary(plain))
