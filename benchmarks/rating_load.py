"""Many raters at once on a real server, which is killed in between: speed, and whether votes hold.

    python benchmarks/rating_load.py --raters 50 --seconds 600 --kills 20
    python benchmarks/rating_load.py --database postgresql+pg8000://me@127.0.0.1:5432/empty

Raters click without reading. A vote that the server was killed on is sent again, as a person would.
The server is the command, in a process of its own; raters are threads of this one, on the same
machine.
"""

import argparse
import collections
import dataclasses
import pathlib
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

import httpx
import numpy as np
import sqlalchemy as sa

from gophercite.rating_site.security import Signer
from gophercite.ratings.counting import Rules, counted_votes
from gophercite.ratings.experiments import (
    Settings,
    add_rater,
    create_experiment,
    experiment_named,
)
from gophercite.ratings.items import Answer, Claim, Item, NewItem, add_items
from gophercite.ratings.schema import items, ratings
from gophercite.ratings.study import Study

_HIDDEN = re.compile(r'name="(form|ticket)" value="([^"]+)"')
_OUTAGE = 60.0  # seconds that a rater waits for a server that was killed


@dataclasses.dataclass
class Load:
    """What happened.

    Attributes:
      acknowledged: (item's question, rater) of each vote that was answered.
      votes, pages: seconds of each vote and of each page.
      errors: answers that no rater should see.
      resent: votes whose connection broke.
      kills: of the server.
      seconds: it took.
    """

    acknowledged: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    votes: list[float] = dataclasses.field(default_factory=list)
    pages: list[float] = dataclasses.field(default_factory=list)
    errors: list[str] = dataclasses.field(default_factory=list)
    resent: int = 0
    kills: int = 0
    seconds: float = 0.0


class Server:
    """`gophercite rate serve`, which can be killed and started again on its port."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "gophercite", "rate", "serve", str(self._folder)]
        command += ["--port", str(self.port), "--requests-a-minute", "1000000"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert b"serving" in self._process.stdout.readline()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def make_study(folder: pathlib.Path, count: int, wanted: int, database: str | None = None) -> Study:
    """A study of one experiment with bare items, each with a question of its own."""
    study = Study.create(folder, database)
    settings = Settings(raters=wanted, comment_words=0, minimum_seconds=0.0)
    experiment = create_experiment(study.store, "load", "comparison", "super", settings)
    pair = tuple(Answer((Claim(f"Claim {n}.", "A page", "A quote."),)) for n in (0, 1))
    new = (NewItem(f"i{n}", Item(f"i{n}", f"Question {n}?", "load", pair)) for n in range(count))
    add_items(study.store, experiment, new)
    return study


def run(
    study: Study, raters: int, seconds: float, kills: int, votes_between: int | None = None
) -> Load:
    """Lets raters vote until nothing is left or the time is over; kills the server in between.

    Args:
      votes_between: kills come after so many more votes; None for moments drawn over the time.
    """
    load, lock, over = Load(), threading.Lock(), threading.Event()
    server = Server(study.folder)
    signer = Signer(study.secret)

    def rate(name: str) -> None:
        rater = add_rater(study.store, name, "super")
        link = signer.link(rater.id, rater.link_version, study.store.now() + 86400)
        with httpx.Client(base_url=server.url, timeout=_OUTAGE, trust_env=False) as client:
            answer = asked(client, "GET", f"/r/{link}")
            while not over.is_set():
                begun = time.perf_counter()
                answer = asked(client, "GET", "/e/1")
                took = time.perf_counter() - begun
                hidden = dict(_HIDDEN.findall(answer.text))
                if answer.status_code != 200 or "ticket" not in hidden:
                    if "Nothing is left" not in answer.text:
                        load.errors.append(f"{answer.status_code} {answer.text[:300]}")
                    return
                question = re.search(r"Question \d+\?", answer.text)
                assert question is not None
                vote = {f"{n}_{a}": "yes" for n in ("plausible", "supported") for a in (0, 1)}
                begun = time.perf_counter()
                answer = asked(client, "POST", "/e/1", hidden | vote | {"preferred": "both_good"})
                with lock:
                    load.pages.append(took)
                    load.votes.append(time.perf_counter() - begun)
                    if answer.status_code == 303:
                        load.acknowledged.add((question[0], name))
                    else:
                        load.errors.append(f"{answer.status_code} {answer.text[:300]}")

    def asked(
        client: httpx.Client, method: str, path: str, form: dict[str, str] | None = None
    ) -> httpx.Response:
        """Asks until there is an answer: servers that were killed come back."""
        until = time.monotonic() + _OUTAGE
        while True:
            try:
                return client.request(method, path, data=form)
            except httpx.TransportError:
                if time.monotonic() > until:
                    raise
                with lock:
                    load.resent += form is not None
                time.sleep(0.05)

    def guarded(name: str) -> None:
        try:
            rate(name)
        except Exception as error:
            load.errors.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(f"rater {n}",)) for n in range(raters)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    draw = random.Random(0)
    try:
        for number in range(1, kills + 1):
            if votes_between is None:
                over.wait(seconds / (kills + 1) * draw.uniform(0.5, 1.5))
            while votes_between and len(load.acknowledged) < number * votes_between:
                if not any(thread.is_alive() for thread in threads):
                    break
                over.wait(0.001)
            if not any(thread.is_alive() for thread in threads):
                break
            server.kill()
            load.kills += 1
            server.start()
        while any(thread.is_alive() for thread in threads):
            if time.monotonic() - begun > seconds:
                over.set()
            time.sleep(0.05)
        load.seconds = time.monotonic() - begun
    finally:
        over.set()
        for thread in threads:
            thread.join()
        server.kill()
    return load


def faults(study: Study, load: Load) -> list[str]:
    """What is wrong with what the data base holds in the end: votes lost, doubled, or too many."""
    found = list(load.errors)
    with study.store.reading() as connection:
        query = sa.select(items.c.id, items.c.content, items.c.wanted, items.c.load)
        stored = {row.id: row for row in connection.execute(query)}
        rows = connection.execute(sa.select(ratings)).all()
        names = {
            row.id: row.name for row in connection.execute(sa.text("SELECT id, name FROM raters"))
        }
        counted = counted_votes(connection, experiment_named(connection, "load"), Rules())
    kept = collections.Counter(
        (stored[row.item_id].content["question"], names[row.rater_id]) for row in rows
    )
    found += [f"lost: {vote}" for vote in load.acknowledged if vote not in kept]
    found += [f"twice: {vote}" for vote, count in kept.items() if count > 1]
    votes = collections.Counter(vote.item_id for vote in counted)
    found += [f"too many: {id}" for id, count in votes.items() if count > stored[id].wanted]
    found += [
        f"load of {id}: {stored[id].load}, votes {count}"
        for id, count in votes.items()
        if stored[id].load < count
    ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raters", type=int, default=50)
    parser.add_argument("--items", type=int, default=20000)
    parser.add_argument("--wanted", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--database")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "study")
        study = make_study(path, options.items, options.wanted, options.database)
        load = run(study, options.raters, options.seconds, options.kills)
        wrong = faults(study, load)
        complete = 0
        with study.store.reading() as connection:
            done = sa.select(sa.func.count(items.c.id)).where(items.c.load >= items.c.wanted)
            complete = connection.execute(done).scalar_one()
    votes, pages = np.array(load.votes), np.array(load.pages)
    print(f"{options.raters} raters, {load.seconds:.0f} s, {load.kills} kills")
    print(
        f"votes: {len(votes)}, {len(votes) / load.seconds:.1f} a second, {load.resent} sent again"
    )
    for name, times in (("a vote", votes), ("a page", pages)):
        p50, p99 = np.percentile(times, [50, 99])
        print(f"{name}: p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms, max {times.max():.1f} s")
    print(f"items complete: {complete} of {options.items}")
    print(f"faults: {len(wrong)}", *wrong[:10], sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
