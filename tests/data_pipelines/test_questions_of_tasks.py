"""The questions of a mixture, and the evidence of those that come from answers."""

import dataclasses

import pytest

from data_pipelines import tasks
from data_pipelines.inputs import Input
from data_pipelines.rollout_input import RolloutInput
from data_pipelines.sample_world.convert import to_question, to_rated_answer
from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER
from data_pipelines.sample_world.world import World
from gophercite import records

WORLD = World(good_fraction=1.0)


def test_questions_of_several_tasks_with_one_id_are_all_there(tmp_path):
    questions = [to_question(WORLD.question(n)) for n in range(6)]
    of_tasks = {"one": questions[:3], "two": [*questions[3:], questions[0]]}
    for name, some in of_tasks.items():
        named = [dataclasses.replace(q, id=f"{n % 3}") for n, q in enumerate(some)]
        records.write(tmp_path / f"{name}.jsonl", named)
        tasks.add_questions(name, {"train": tmp_path / f"{name}.jsonl"}, VOCABULARY_FOLDER)
    tasks.add_mixture("both", {"one": 1, "two": 1})
    found = RolloutInput("both", "train", 512, 64, 64, 2, 0).questions(100)
    assert [q.id for q in found] == ["0", "1", "2", "two/0", "two/1", "two/2"]
    assert [q.question for q in found] == [q.question for q in questions]


def test_a_quote_in_another_case_is_evidence(tmp_path):
    answer = to_rated_answer(WORLD.rated_answer(0))
    loud = dataclasses.replace(answer, quote=answer.quote.upper(), question_id="loud")
    records.write(tmp_path / "a.jsonl", [answer, loud])
    tasks.add_rated_answers("loud", {"train": tmp_path / "a.jsonl"}, VOCABULARY_FOLDER)
    first, second = Input("loud", "train", 512, 2, seed=0).questions(5)
    assert second.evidence == first.evidence != ()


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_rates_of_a_mixture_are_numbers_over_0(rate):
    with pytest.raises(ValueError, match=r"the rate of 'sample_world' in 'mixed' is .*above 0"):
        tasks.add_mixture("mixed", {"sample_world_excerpts": 1, "sample_world": rate})
