"""Quality control: checks, screening, and simulated raters against what theory says of them."""

import math
import pathlib
import random
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from gophercite.evaluation.human import majority
from gophercite.ratings import assignment, quality
from gophercite.ratings.assignment import Role
from gophercite.ratings.counting import Rules, counted_votes
from gophercite.ratings.experiments import Experiment, add_rater, rater_of
from gophercite.ratings.schema import audit, items
from gophercite.ratings.simulated import SimulatedRater
from gophercite.ratings.store import Store
from tests.ratings.studies import Clock, bare_experiment, bare_items, sqlite


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[Store]:
    store = sqlite(tmp_path, Clock())
    yield store
    store.close()


def answer(store: Store, experiment: Experiment, item: int, rater: int, right: bool) -> bool:
    with store.writing() as connection:
        values = {"right": "yes" if right else "no"}
        return quality.answer_check(connection, store.now(), experiment, item, rater, values)


def state(store: Store, experiment: Experiment, rater: int) -> quality.CheckState:
    with store.reading() as connection:
        return quality.check_state(connection, experiment, rater)


@pytest.mark.parametrize("right", range(5))
def test_three_of_four_checks_pass(store: Store, right: int) -> None:
    experiment = bare_experiment(store)
    (item,) = bare_items(store, experiment, 1)
    checks = bare_items(store, experiment, 4, Role.CHECK, "c")
    ada = add_rater(store, "ada", "super").id
    with store.writing() as connection:  # as if checks had been added later
        now = store.now()
        assignment.vote(connection, now, experiment, item, ada, {"right": "yes"}, now)
    for number, check in enumerate(checks):
        here = state(store, experiment, ada)
        assert (here.next, here.number, here.count, here.passed) == (check, number + 1, 4, None)
        assert answer(store, experiment, check, ada, number < right) is (number < right)
        assert answer(store, experiment, check, ada, True) is (number < right), "sent again"
    assert state(store, experiment, ada).passed is (right >= 3)
    with store.reading() as connection:
        counted = counted_votes(connection, experiment, Rules())
        assert len(counted) == (right >= 3), "what was there is discarded"
        actions = connection.execute(sa.select(audit.c.action)).scalars().all()
        assert ("excluded" in actions) is (right < 3)
        (work,) = quality.work(connection, experiment)
        assert (work.votes, work.excluded, work.checks.right) == (1, right < 3, right)


def test_a_second_try(store: Store) -> None:
    experiment = bare_experiment(store, check_tries=2)
    checks = bare_items(store, experiment, 4, Role.CHECK, "c")
    ada = add_rater(store, "ada", "super").id
    for check in checks:
        answer(store, experiment, check, ada, right=False)
    here = state(store, experiment, ada)
    assert (here.next, here.number, here.right, here.attempt) == (checks[0], 1, 0, 1)
    for check in checks:
        answer(store, experiment, check, ada, right=True)
    assert state(store, experiment, ada).passed
    assert not state(store, bare_experiment(store, "none"), ada).next


def screening(store: Store, truths: list[dict[str, str]], **settings: Any) -> Experiment:
    experiment = bare_experiment(store, "screening", gold_every=1, **settings)
    for truth, item in zip(
        truths, bare_items(store, experiment, len(truths), Role.GOLD, "g"), strict=True
    ):
        with store.writing() as connection:
            change = items.update().where(items.c.id == item)
            connection.execute(change, {"expected": truth})
    return experiment


def rate_all(store: Store, experiment: Experiment, rater: int, votes: list[dict[str, str]]) -> None:
    with store.writing() as connection:
        for values in votes:
            lease = assignment.next_item(connection, store.now(), experiment, rater)
            assert lease is not None
            assignment.vote(
                connection, store.now(), experiment, lease.item_id, rater, values, store.now()
            )


def test_screening_is_by_the_papers_rules(store: Store) -> None:
    """Of 20 items: 85 % on supported, plausible and preferred each, ties left out."""
    truth = {"plausible_0": "yes", "supported_0": "yes", "supported_1": "no", "preferred": "0"}
    truths = [truth] * 16 + [truth | {"preferred": "both_good", "plausible_0": "unsure"}] * 4
    experiment = screening(store, truths)
    wrong = {"plausible_0": "no", "supported_0": "no", "supported_1": "yes", "preferred": "1"}

    def passes(name: str, changes: dict[int, dict[str, str]], count: int = 20) -> bool:
        rater = add_rater(store, name, "super").id
        votes = [each | changes.get(n, {}) for n, each in enumerate(truths)][:count]
        rate_all(store, experiment, rater, votes)
        with store.reading() as connection:
            found = {each.rater_id: each for each in quality.screen(connection, experiment)}
        return found[rater].passed

    preferred, plausible = ({name: wrong[name]} for name in ("preferred", "plausible_0"))
    supported = {"supported_0": "no"}
    assert passes("all right", {})
    assert not passes("not done", {}, count=19)
    assert passes("2 of 16 wrong", dict.fromkeys(range(2), preferred)), "14 of 16 is 87.5 %"
    assert not passes("3 of 16 wrong", dict.fromkeys(range(3), preferred)), "81 %"
    assert passes("wrong where researchers have a tie", dict.fromkeys(range(16, 20), preferred))
    assert not passes("plausible", dict.fromkeys(range(3), plausible))
    assert passes("supported, 6 of 40", dict.fromkeys(range(6), supported)), "85 % exactly"
    assert not passes("supported, 7 of 40", dict.fromkeys(range(7), supported))
    half = {n: {"preferred": "both_bad"} for n in range(8)}
    assert passes("half undecided", half)
    assert not passes("undecided", {n: {"preferred": "unsure"} for n in range(9)}), "too little"


def binomial_at_least(count: int, least: int, share: float) -> float:
    return sum(
        math.comb(count, k) * share**k * (1 - share) ** (count - k) for k in range(least, count + 1)
    )


def test_who_is_promoted_is_as_theory_has_it(store: Store) -> None:
    """One kind of question, 20 items: 17 must be right; 30 raters of each accuracy."""
    experiment = screening(store, [{"truthful_0": "yes"}] * 20)
    with store.reading() as connection:
        gold = connection.execute(sa.select(items.c.id)).scalars().all()
    draw = random.Random(1)
    raters: dict[float, list[int]] = {}
    for accuracy in (0.7, 0.85, 0.97):
        for number in range(30):
            rater = add_rater(store, f"{accuracy} {number}", "super").id
            raters.setdefault(accuracy, []).append(rater)
            simulated = SimulatedRater(accuracy)
            with store.writing() as connection:
                for item in gold:
                    values = simulated.vote({"truthful_0": "yes"}, draw)
                    now = store.now()
                    assignment.vote(connection, now, experiment, item, rater, values, now)
    with store.writing() as connection:
        quality.promote(connection, store.now(), experiment, pool="best")
        pools = {id: rater_of(connection, id).pool for ids in raters.values() for id in ids}
    for accuracy, ids in raters.items():
        expected = binomial_at_least(20, 17, accuracy)
        share = sum(pools[id] == "best" for id in ids) / len(ids)
        error = math.sqrt(expected * (1 - expected) / len(ids))
        assert abs(share - expected) <= 3 * error + 1e-9, (accuracy, share, expected)


@pytest.mark.parametrize(("count", "accuracy"), [(3, 0.8), (6, 0.7)])
def test_labels_after_majority_vote_are_as_theory_has_it(count: int, accuracy: float) -> None:
    """Right are more than half; of six raters, a tie is the lower label: wrong for what is true."""
    draw, simulated, tries = random.Random(2), SimulatedRater(accuracy), 4000
    for truth in ("yes", "no"):
        right = 0
        for _ in range(tries):
            votes = [simulated.vote({"x": truth}, draw)["x"] == "yes" for _ in range(count)]
            right += majority(votes) is (truth == "yes")
        least = count // 2 + 1 if truth == "yes" else math.ceil(count / 2)
        expected = binomial_at_least(count, least, accuracy)
        assert abs(right / tries - expected) < 3 * math.sqrt(expected * (1 - expected) / tries)


def test_the_unsure_say_so() -> None:
    draw, simulated = random.Random(3), SimulatedRater(1.0, unsure=0.25)
    said = [simulated.vote({"x": "yes", "preferred": "both_good"}, draw) for _ in range(2000)]
    assert {vote["preferred"] for vote in said} == {"both_good"}
    assert 0.22 < sum(vote["x"] == "unsure" for vote in said) / 2000 < 0.28
