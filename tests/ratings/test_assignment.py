"""Assignment: whatever raters do and in whatever order, every item gets the raters it needs."""

import collections
import pathlib
import random
import shutil
import tempfile
import threading

import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gophercite.ratings import assignment
from gophercite.ratings.assignment import Outcome, Role
from gophercite.ratings.counting import Rules, counted_votes, standing_votes
from gophercite.ratings.experiments import Experiment, add_rater
from gophercite.ratings.schema import drafts, items, leases, ratings
from gophercite.ratings.store import Store
from tests.ratings.databases import postgresql
from tests.ratings.studies import Clock, bare_experiment, bare_items, sqlite

RATERS = 5
LEASE = 60.0  # seconds


class Raters(RuleBasedStateMachine):
    """Five raters who come, go, idle, skip, send twice, change their minds, and are undone."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gophercite-assignment-"))
        self.clock = Clock()
        self.store = sqlite(self.folder, self.clock)
        self.experiment = bare_experiment(self.store, raters=2, lease_minutes=LEASE / 60)
        bare_items(self.store, self.experiment, 3)
        self.raters = [add_rater(self.store, f"r{n}", "super").id for n in range(RATERS)]
        self.at_work: dict[int, tuple[int, float, float]] = {}  # rater: item, given, expires
        self.had: dict[int, set[int]] = collections.defaultdict(set)  # rated or skipped
        self.voted: dict[tuple[int, int], list[str]] = {}  # all values, oldest first
        self.order: list[tuple[int, int]] = []  # (item, rater) of first votes
        self.excluded: set[int] = set()

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(rater=st.integers(0, RATERS - 1))
    def come(self, rater: int) -> None:
        rater = self.raters[rater]
        with self.store.writing() as connection:
            lease = assignment.next_item(connection, self.clock(), self.experiment, rater)
        mine = self.at_work.get(rater)
        if lease is None:
            assert mine is None or mine[2] <= self.clock()
            return
        assert rater not in self.excluded
        if mine is not None and mine[2] > self.clock():
            assert lease == mine, "who comes back finds what they were at work on"
        else:
            assert lease.item_id not in self.had[rater], "nobody gets an item twice"
        self.at_work[rater] = tuple(lease)

    @rule(rater=st.integers(0, RATERS - 1), value=st.sampled_from("ab"))
    def send(self, rater: int, value: str) -> None:
        """A vote on the last item that the rater was given, in time or not."""
        rater = self.raters[rater]
        if rater not in self.at_work:
            return
        item, given, _ = self.at_work[rater]
        self.clock.time += 0.001  # no two votes come at the same time
        with self.store.writing() as connection:
            outcome = assignment.vote(
                connection, self.clock(), self.experiment, item, rater, {"right": value}, given
            )
        before = self.voted.get((item, rater), [])
        if not before:
            assert outcome is Outcome.NEW
            self.order.append((item, rater))
        else:
            assert outcome is (Outcome.SAME if before[-1] == value else Outcome.REVISED)
        if not before or before[-1] != value:
            self.voted[item, rater] = [*before, value]
        self.had[rater].add(item)
        self.at_work[rater] = item, given, 0.0  # no lease any more, but the form is still there

    @rule(rater=st.integers(0, RATERS - 1))
    def skip(self, rater: int) -> None:
        rater = self.raters[rater]
        if rater in self.at_work:
            item, given, expires = self.at_work[rater]
            with self.store.writing() as connection:
                assignment.skip(connection, self.clock(), item, rater)
                mine = leases.c.item_id == item, leases.c.rater_id == rater
                row = connection.execute(sa.select(leases).where(*mine)).one_or_none()
            if row is not None:
                assert row.state == "skipped"
                self.had[rater].add(item)
            if expires > 0:
                self.at_work[rater] = item, given, 0.0

    @rule(rater=st.integers(0, RATERS - 1))
    def type(self, rater: int) -> None:
        """Keeps the lease; it is given again when it had expired and the item is still open."""
        rater = self.raters[rater]
        if rater in self.at_work:
            item, given, _ = self.at_work[rater]
            with self.store.writing() as connection:
                held = assignment.renew(connection, self.clock(), self.experiment, item, rater)
                query = sa.select(leases).where(leases.c.item_id == item, leases.c.state == "open")
                row = connection.execute(query.where(leases.c.rater_id == rater)).one_or_none()
            if row is not None:  # also of what was skipped: they have come back to it
                self.at_work[rater] = item, row.given_at, row.expires_at
                self.had[rater].discard(item)
            elif not held:
                self.at_work[rater] = item, given, 0.0

    @rule(seconds=st.sampled_from([1.0, LEASE / 2, LEASE]))
    def wait(self, seconds: float) -> None:
        self.clock.time += seconds

    @rule()
    def more_items(self) -> None:
        if len(self.order) < 30:
            bare_items(self.store, self.experiment, 1)

    @rule(rater=st.integers(0, RATERS - 1))
    def undo_or_readmit(self, rater: int) -> None:
        rater = self.raters[rater]
        with self.store.writing() as connection:
            if rater in self.excluded:
                assignment.readmit(connection, self.clock(), rater, None, "command")
                self.excluded.remove(rater)
            else:
                assignment.exclude(connection, self.clock(), rater, None, "a test", "command")
                self.excluded.add(rater)
                if rater in self.at_work:
                    item, given, _ = self.at_work[rater]
                    self.at_work[rater] = item, given, 0.0

    @invariant()
    def the_load_is_what_it_counts(self) -> None:
        with self.store.reading() as connection:
            rows = connection.execute(sa.select(items.c.id, items.c.load)).all()
            open_ = connection.execute(sa.select(leases).where(leases.c.state == "open")).all()
        loads = {row.id: row.load for row in rows}
        expected = collections.Counter(row.item_id for row in open_)
        expected.update(i for i, rater in self.voted if rater not in self.excluded)
        assert loads == {item: expected[item] for item in loads}
        assert len({row.rater_id for row in open_}) == len(open_), "one item at a time"

    @invariant()
    def what_counts_is_right(self) -> None:
        with self.store.reading() as connection:
            counted = counted_votes(connection, self.experiment, Rules())
            surplus = counted_votes(connection, self.experiment, Rules(surplus=True))
            rows = connection.execute(sa.select(sa.func.count(ratings.c.id))).scalar_one()
        assert rows == sum(map(len, self.voted.values())), "no vote is lost, none is there twice"
        by_item = collections.Counter(vote.item_id for vote in counted)
        assert all(count <= 2 for count in by_item.values())
        assert len({(vote.item_id, vote.rater_id) for vote in counted}) == len(counted)
        standing = [each for each in self.order if each[1] not in self.excluded]
        assert {(v.item_id, v.rater_id) for v in surplus} == set(standing)
        for vote in surplus:
            assert vote.values == {"right": self.voted[vote.item_id, vote.rater_id][-1]}
        first = collections.defaultdict(set)
        for item, rater in standing:
            if len(first[item]) < 2:
                first[item].add(rater)
        got = collections.defaultdict(set)
        for vote in counted:
            got[vote.item_id].add(vote.rater_id)
        assert got == first, "the first votes count"


TestRaters = Raters.TestCase
TestRaters.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: pathlib.Path, clock: Clock) -> Store:
    return sqlite(tmp_path, clock)


def lease_of(store: Store, experiment: Experiment, rater: int) -> int | None:
    with store.writing() as connection:
        lease = assignment.next_item(connection, store.now(), experiment, rater)
    return None if lease is None else lease.item_id


def cast(
    store: Store, experiment: Experiment, item: int, rater: int, value: str = "yes"
) -> Outcome:
    with store.writing() as connection:
        now = store.now()
        values = {"right": value}
        return assignment.vote(connection, now, experiment, item, rater, values, now - 10)


def test_the_least_rated_item_is_next(store: Store) -> None:
    experiment = bare_experiment(store, raters=3)
    first, second = bare_items(store, experiment, 2)
    ada, bob, eve, joe = (add_rater(store, name, "super").id for name in ("a", "b", "c", "d"))
    assert lease_of(store, experiment, ada) == first
    assert lease_of(store, experiment, bob) == second, "the first is leased"
    cast(store, experiment, first, ada)
    assert lease_of(store, experiment, eve) == first, "both have one: the order decides"
    (third,) = bare_items(store, experiment, 1)
    assert lease_of(store, experiment, joe) == third, "new items join, and have none"


def test_an_expired_lease_comes_back_and_its_form_still_counts(store: Store, clock: Clock) -> None:
    experiment = bare_experiment(store, raters=1, lease_minutes=1)
    (item,) = bare_items(store, experiment, 1)
    ada, bob = (add_rater(store, name, "super").id for name in "ab")
    assert lease_of(store, experiment, ada) == item
    clock.time += 59
    assert lease_of(store, experiment, bob) is None
    clock.time += 1
    assert lease_of(store, experiment, bob) == item
    with store.writing() as connection:
        assert not assignment.renew(connection, clock(), experiment, item, ada), "bob has it"
    assert loads(store) == [1]
    cast(store, experiment, item, bob)
    assert cast(store, experiment, item, ada) is Outcome.NEW, "kept, though nobody needs it"
    with store.reading() as connection:
        assert [v.rater_id for v in counted_votes(connection, experiment, Rules())] == [bob]
        assert len(standing_votes(connection, experiment)) == 2
    with store.writing() as connection:  # bob's ratings turn out to be worthless
        assignment.exclude(connection, clock(), bob, experiment.id, "a test", "command")
    with store.reading() as connection:
        assert [v.rater_id for v in counted_votes(connection, experiment, Rules())] == [ada]


def test_who_is_active_keeps_an_item_for_another_whole_lease(store: Store, clock: Clock) -> None:
    experiment = bare_experiment(store, raters=1, lease_minutes=1)
    (item,) = bare_items(store, experiment, 1)
    ada, bob = (add_rater(store, name, "super").id for name in "ab")
    assert lease_of(store, experiment, ada) == item
    clock.time += 50
    with store.writing() as connection:
        assert assignment.renew(connection, clock(), experiment, item, ada)
    clock.time += 59
    assert lease_of(store, experiment, bob) is None
    clock.time += 1
    assert lease_of(store, experiment, bob) == item


def test_who_skips_an_item_is_not_asked_again_and_another_one_is(store: Store) -> None:
    experiment = bare_experiment(store, raters=1)
    first, second = bare_items(store, experiment, 2)
    ada, bob = (add_rater(store, name, "super").id for name in "ab")
    assert lease_of(store, experiment, ada) == first
    with store.writing() as connection:
        assignment.skip(connection, store.now(), first, ada)
    assert loads(store) == [0, 0]
    assert lease_of(store, experiment, ada) == second
    assert lease_of(store, experiment, bob) == first
    cast(store, experiment, second, ada)
    assert lease_of(store, experiment, ada) is None


def test_gold_is_for_everybody_and_in_its_turn(store: Store) -> None:
    experiment = bare_experiment(store, raters=1, gold_every=3)
    bare_items(store, experiment, 5)
    gold = bare_items(store, experiment, 2, Role.GOLD, "g")
    ada, bob = (add_rater(store, name, "super").id for name in "ab")
    seen = []
    while (item := lease_of(store, experiment, ada)) is not None and len(seen) < 10:
        seen.append(item)
        cast(store, experiment, item, ada)
    assert [item in gold for item in seen] == [False, False, True, False, False, True, False]
    assert lease_of(store, experiment, bob) is None, "his turn for gold has not come"


def test_no_votes_of_the_excluded(store: Store) -> None:
    experiment = bare_experiment(store, raters=1)
    (item,) = bare_items(store, experiment, 1)
    ada = add_rater(store, "ada", "super").id
    lease_of(store, experiment, ada)
    with store.writing() as connection:
        written = {"item_id": item, "rater_id": ada, "form": {}, "saved_at": 1.0}
        connection.execute(drafts.insert(), written)
        assignment.exclude(connection, store.now(), ada, experiment.id, "too fast", "command")
    assert lease_of(store, experiment, ada) is None
    cast(store, experiment, item, ada)
    with store.reading() as connection:
        assert counted_votes(connection, experiment, Rules()) == []
        assert connection.execute(sa.select(items.c.load)).scalar_one() == 0
        assert connection.execute(sa.select(drafts)).all() == [], "the draft is done with"


def test_rules_of_seconds_and_gold(store: Store) -> None:
    experiment = bare_experiment(store, raters=2, gold_every=2)
    (item,) = bare_items(store, experiment, 1)
    (gold,) = bare_items(store, experiment, 1, Role.GOLD, "g")
    ada, bob = (add_rater(store, name, "super").id for name in "ab")
    for rater, value in ((ada, "yes"), (bob, "no")):
        cast(store, experiment, gold, rater, value)
        cast(store, experiment, item, rater)

    def counted(rules: Rules) -> list[int]:
        with store.reading() as connection:
            votes = counted_votes(connection, experiment, rules)
            return sorted(vote.rater_id for vote in votes if vote.item_id == item)

    assert counted(Rules()) == [ada, bob]
    assert counted(Rules(gold_right=0.5)) == [ada]
    assert counted(Rules(minimum_seconds=11)) == []


def crowd(store: Store, again: Store, count: int, tasks: int) -> None:
    """Threads of raters who vote, skip and drop out; every item ends with just its raters."""
    experiment = bare_experiment(store, raters=3)
    bare_items(store, experiment, tasks)
    raters = [add_rater(store, f"r{n}", "super").id for n in range(count)]
    failures: list[BaseException] = []

    def work(rater: int, mine: Store) -> None:
        draw = random.Random(rater)
        try:
            for _ in range(tasks + 1):
                item = lease_of(mine, experiment, rater)
                if item is None:
                    return
                if draw.random() < 0.1:
                    with mine.writing() as connection:
                        assignment.skip(connection, mine.now(), item, rater)
                    continue
                for _ in range(draw.randint(1, 2)):  # some send twice
                    cast(mine, experiment, item, rater)
            raise AssertionError(f"rater {rater} got more items than there are")
        except BaseException as error:
            failures.append(error)

    stores = (store, again)
    threads = [
        threading.Thread(target=work, args=(rater, stores[place % 2]))
        for place, rater in enumerate(raters)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for rater in raters:  # what was given back when all others had gone
        work(rater, store)
    assert failures == []
    with store.reading() as connection:
        counted = counted_votes(connection, experiment, Rules())
        rows = connection.execute(sa.select(sa.func.count(ratings.c.id))).scalar_one()
        loads = connection.execute(sa.select(items.c.load)).scalars().all()
    assert len(counted) == rows == 3 * tasks
    assert set(collections.Counter(vote.item_id for vote in counted).values()) == {3}
    assert set(loads) == {3}


def test_a_crowd_of_threads(store: Store) -> None:
    """Two stores on one file, as with two servers."""
    other = Store(store.url.render_as_string(), store.now)
    crowd(store, other, count=16, tasks=30)


def test_a_crowd_of_threads_on_postgresql(clock: Clock) -> None:
    with postgresql() as url:
        store, other = Store(url, clock), Store(url, clock)
        crowd(store, other, count=12, tasks=15)
        store.close()
        other.close()


def loads(store: Store) -> list[int]:
    with store.reading() as connection:
        query = sa.select(items.c.load).order_by(items.c.id)
        return list(connection.execute(query).scalars())


def test_leases_of_one_item_that_expire_together_all_come_back(store: Store, clock: Clock) -> None:
    experiment = bare_experiment(store, raters=2, lease_minutes=1)
    bare_items(store, experiment, 1)
    ada, bob, eve = (add_rater(store, name, "super").id for name in ("a", "b", "e"))
    lease_of(store, experiment, ada)
    lease_of(store, experiment, bob)
    assert loads(store) == [2]
    clock.time += 60
    assert lease_of(store, experiment, eve) is not None
    assert loads(store) == [1]


def test_who_types_keeps_the_item_unless_others_have_taken_it(store: Store, clock: Clock) -> None:
    experiment = bare_experiment(store, raters=1, lease_minutes=1)
    (item,) = bare_items(store, experiment, 1)
    ada, bob = (add_rater(store, name, "super").id for name in "ab")

    def renew(rater: int) -> bool:
        with store.writing() as connection:
            return assignment.renew(connection, clock(), experiment, item, rater)

    lease_of(store, experiment, ada)
    clock.time += 59
    assert renew(ada)
    clock.time += 59
    assert lease_of(store, experiment, bob) is None, "the lease was renewed"
    clock.time += 60
    assert lease_of(store, experiment, bob) == item
    assert not renew(ada)
    assert loads(store) == [1]
    with store.writing() as connection:
        assignment.exclude(connection, clock(), bob, None, "a test", "command")
        assignment.exclude(connection, clock(), ada, None, "a test", "command")
    assert not renew(ada), "the item is free, but not for who is excluded"
    assert loads(store) == [0]


def test_undo_hands_items_out_again_and_redo_takes_that_back(store: Store) -> None:
    experiment = bare_experiment(store, raters=1)
    (item,) = bare_items(store, experiment, 1)
    ada, bob = (add_rater(store, name, "super").id for name in "ab")
    cast(store, experiment, item, ada)
    assert loads(store) == [1]
    with store.writing() as connection:
        assignment.exclude(connection, 1.0, ada, experiment.id, "a test", "command")
    assert loads(store) == [0]
    assert lease_of(store, experiment, bob) == item
    with store.writing() as connection:
        assert assignment.readmit(connection, 2.0, ada, None, "command") == 0, "not in all"
        assert assignment.readmit(connection, 2.0, ada, experiment.id, "command") == 1
    assert loads(store) == [2]
    with store.reading() as connection:
        assert [v.rater_id for v in counted_votes(connection, experiment, Rules())] == [ada]
