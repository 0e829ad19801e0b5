"""Quality control: checks, screening, and simulated raters against what theory says of them."""

import collections
import dataclasses
import itertools
import math
import pathlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from gophercite.ratings import assignment, quality, reports
from gophercite.ratings.assignment import Role
from gophercite.ratings.counting import Rules, counted_votes
from gophercite.ratings.experiments import (
    Experiment,
    Settings,
    add_rater,
    create_experiment,
    rater_of,
)
from gophercite.ratings.forms import FORMS, read_values
from gophercite.ratings.items import Answer, Claim, Item, NewItem, add_items, items_of
from gophercite.ratings.schema import audit, items
from gophercite.ratings.simulated import SimulatedRater, simulate
from gophercite.ratings.store import Store
from gophercite.reports.human import majority
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


@pytest.mark.parametrize(
    ("name", "votes", "percent", "alpha"),
    [
        # On a scale the side counts, and its middle agrees with a side by half.
        ("overall", [("1", "2"), ("-2", "-1"), ("0", "0")], 100, 0.83),
        ("overall", [("0", "1"), ("2", "0"), ("-2", "2")], 33.3, -0.52),
        ("accuracy_0", [("1", "2"), ("-2", "0"), ("-1", "1")], 50, 0.31),
        # No tie is better than another, and who can't pick one has no better answer either.
        ("preferred", [("both_good", "both_bad"), ("unsure", "both_good"), ("0", "0")], 100, 1.0),
        ("preferred", [("0", "unsure"), ("both_bad", "1"), ("0", "1")], 33.3, -0.25),
        ("accurate_0", [("yes", "unsure"), ("no", "yes"), ("yes", "yes")], 50, -0.11),
        ("supported_1", [("yes", "unsure"), ("no", "yes"), ("unsure", "unsure")], 50, 0.09),
        ("stance_0", [("neither", "affirms"), ("affirms", "affirms")], 50, 0.0),
    ],
)
def test_agreement_by_kind_of_question(
    store: Store, name: str, votes: list[tuple[str, str]], percent: float, alpha: float
) -> None:
    experiment = bare_experiment(store, raters=2)
    places = bare_items(store, experiment, len(votes))
    with store.writing() as connection:
        for number, rater in enumerate(("ada", "bob")):
            id = add_rater(store, rater, "super").id
            for item, pair in zip(places, votes, strict=True):
                values = {name: pair[number], "comment": rater}
                assignment.vote(connection, 0.0, experiment, item, id, values, 0.0)
        (row,) = reports.report(connection, experiment).agreement
    assert row.name == name.removesuffix("_0").removesuffix("_1")
    assert row.percent.startswith(f"{percent:.1f} ")
    assert float(row.alpha.split()[0]) == pytest.approx(alpha, abs=0.006)  # as nltk has it


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
    right: collections.Counter[int] = collections.Counter()
    with store.writing() as connection:
        for accuracy, number in itertools.product((0.7, 0.85, 0.97), range(30)):
            rater = add_rater(store, f"{accuracy} {number}", "super").id
            raters.setdefault(accuracy, []).append(rater)
            simulated = SimulatedRater(accuracy)
            for item in gold:
                values = simulated.vote({"truthful_0": "yes"}, draw)
                right[rater] += values == {"truthful_0": "yes"}
                now = store.now()
                assignment.vote(connection, now, experiment, item, rater, values, now)
        quality.promote(connection, store.now(), experiment, pool="best")
        pools = {id: rater_of(connection, id).pool for ids in raters.values() for id in ids}
    assert {16, 17} <= set(right.values())
    assert {id for id, pool in pools.items() if pool == "best"} == {
        id for id in pools if right[id] >= 17
    }
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


# --- Simulated raters who rate a whole experiment ---


def pairs(store: Store, names: list[str], raters: int) -> Experiment:
    answers = tuple(Answer((Claim(claim, "Mill", "It burned."),)) for claim in ("a", "b"))
    new = [NewItem(name, Item(name, "When?", "s", answers)) for name in names]
    experiment = create_experiment(
        store, "round", "comparison", "super", Settings(raters=raters, comment_words=0)
    )
    add_items(store, experiment, new)
    return experiment


GOOD_AND_BAD = {
    "plausible_0": "yes",
    "supported_0": "yes",
    "plausible_1": "yes",
    "supported_1": "no",
}


def votes_of(store: Store, experiment: Experiment) -> dict[tuple[int, int], Mapping[str, str]]:
    with store.reading() as connection:
        votes = counted_votes(connection, experiment, Rules())
    found = {(vote.item_id, vote.rater_id): vote.values for vote in votes}
    assert len(found) == len(votes)  # none twice
    return found


def test_simulated_raters_rate_all_and_keep_the_form_s_rule(store: Store) -> None:
    names = [str(number) for number in range(120)]
    experiment = pairs(store, names, raters=2)
    raters = {name: SimulatedRater(0.8) for name in ("ada", "bob", "eve")}
    votes = simulate(store, experiment, dict.fromkeys(names, GOOD_AND_BAD), raters, seed=4)
    assert votes == 240
    form = FORMS["comparison"]
    with store.reading() as connection:
        (item,) = items_of(connection, experiment, Role.ITEM)[:1]
    fields = form.fields(item.item, experiment.settings)
    right = preferred = 0
    for values in votes_of(store, experiment).values():
        assert read_values(fields, values)[1] == {}
        assert form.rule(values) == {}
        right += sum(values[name] == GOOD_AND_BAD[name] for name in GOOD_AND_BAD)
        preferred += values["preferred"] == "0"
    assert abs(right / 960 - 0.8) < 0.05
    # The first is found good, and the second is not.
    expected = 0.8**2 * (1 - 0.8 * 0.2)
    assert abs(preferred / 240 - expected) < 3 * math.sqrt(expected * (1 - expected) / 240)


@dataclasses.dataclass(frozen=True)
class Tired(SimulatedRater):
    """One who is interrupted on some items."""

    on: tuple[str, ...] = ()

    def vote(self, truth: Mapping[str, str], draw: random.Random) -> dict[str, str]:
        if truth["name"] in self.on:
            raise KeyboardInterrupt
        return super().vote(truth, draw)


def test_a_rating_that_was_interrupted_goes_on_as_if_it_had_not_been(
    store: Store, tmp_path: pathlib.Path
) -> None:
    names = [str(number) for number in range(10)]
    truth = {name: GOOD_AND_BAD | {"name": name} for name in names}
    experiment = pairs(store, names, raters=2)
    interrupted = {"ada": SimulatedRater(0.7), "bob": Tired(0.7, on=tuple(names[::3]))}
    with pytest.raises(KeyboardInterrupt):
        simulate(store, experiment, truth, interrupted, seed=1)
    assert 0 < len(votes_of(store, experiment)) < 20
    raters = {name: SimulatedRater(0.7) for name in interrupted}
    simulate(store, experiment, truth, raters, seed=1)
    whole = Store(f"sqlite:///{tmp_path / 'whole.db'}", Clock())
    assert simulate(whole, pairs(whole, names, raters=2), truth, raters, seed=1) == 20
    assert votes_of(store, experiment) == votes_of(whole, experiment)
    assert simulate(whole, experiment, truth, raters, seed=1) == 0
    whole.close()


def test_items_of_which_nothing_is_known_are_skipped(store: Store) -> None:
    experiment = pairs(store, ["known", "unknown"], raters=2)
    raters = {name: SimulatedRater(1.0) for name in ("ada", "bob", "eve")}
    assert simulate(store, experiment, {"known": GOOD_AND_BAD}, raters) == 2
    assert {values["preferred"] for values in votes_of(store, experiment).values()} == {"0"}
