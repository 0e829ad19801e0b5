"""Small studies for the tests."""

import functools
import pathlib
import tempfile
from typing import Any

import sqlalchemy as sa

from gophercite.ratings.assignment import Role
from gophercite.ratings.experiments import Experiment, Settings, create_experiment
from gophercite.ratings.schema import items
from gophercite.ratings.store import Store

UNLIMITED = 1 << 30


class Clock:
    """A time that goes on when it is told to."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time


def bare_experiment(store: Store, name: str = "bare", **settings: Any) -> Experiment:
    """An experiment without items."""
    return create_experiment(store, name, "comparison", "super", Settings.of(settings))


def bare_items(
    store: Store, experiment: Experiment, count: int, role: Role = Role.ITEM, prefix: str = "i"
) -> list[int]:
    """Items without content, for what only counts them."""
    with store.writing() as connection:
        before = connection.execute(sa.select(sa.func.count(items.c.id))).scalar_one()
        for number in range(before, before + count):
            row = {
                "experiment_id": experiment.id,
                "name": f"{prefix}{number}",
                "role": role.value,
                "content": {},
                "expected": {"right": "yes"} if role is not Role.ITEM else None,
                "swapped": 0,
                "position": number,
                "wanted": UNLIMITED if role is Role.GOLD else experiment.settings.raters,
            }
            connection.execute(items.insert(), row)
        query = sa.select(items.c.id).where(items.c.name.like(f"{prefix}%")).order_by(items.c.id)
        return list(connection.execute(query).scalars())[-count:]


@functools.cache
def _empty() -> bytes:
    """A file of a data base that was just made: making one takes as long as many a test."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "ratings.db")
        Store(f"sqlite:///{path}").close()
        return path.read_bytes()


def sqlite(folder: pathlib.Path, clock: Clock | None = None) -> Store:
    """A data base of SQLite in a new folder."""
    folder.mkdir(exist_ok=True)
    if not (folder / "ratings.db").exists():
        (folder / "ratings.db").write_bytes(_empty())
    url = f"sqlite:///{folder}/ratings.db"
    return Store(url, clock) if clock is not None else Store(url)
