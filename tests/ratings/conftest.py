"""Passwords cost little here: hashing one as for people takes a fifth of a second, each time."""

import functools
from collections.abc import Iterator

import argon2
import pytest

from gophercite.rating_site import security


@pytest.fixture(scope="module", autouse=True)
def _cheap_passwords() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        cheap = functools.partial(argon2.PasswordHasher, time_cost=1, memory_cost=8, parallelism=1)
        patch.setattr(argon2, "PasswordHasher", cheap)
        patch.setattr(security, "_NOBODYS", cheap().hash("nobody's"))
        yield
