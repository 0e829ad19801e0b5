"""Many demonstrators at once on a real server, which is killed in between: speed, and what is kept.

    python benchmarks/demonstration_load.py --raters 20 --kills 10

Raters do in the web app, page by page and without reading, what scripted demonstrators did in a
sample web. A form that the server was killed on is sent again, as a person would. In the end each
episode must have just the steps that were answered, and be played again to the same states. The
server is the command, in a process of its own; raters are threads of this one, on the same machine.
"""

import argparse
import dataclasses
import html
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

import httpx
import numpy as np
from rating_load import Server

from data_pipelines.demonstrators.styles import STYLES, Noise
from data_pipelines.sample_web.making import make_split
from gophercite.browser.episodes import Episode, episode_to_json, read_episodes, replayed
from gophercite.browser.recorded import RecordedWorld
from gophercite.rating_site.security import Signer
from gophercite.ratings.experiments import add_rater
from gophercite.ratings.study import Study

_HIDDEN = re.compile(r'name="(form|ticket|version)" value="([^"]+)"')
_ASKED = re.compile(r'class="asked long" dir="auto">([^<]*)<')
_OUTAGE = 60.0  # seconds that a rater waits for a server that was killed


@dataclasses.dataclass
class Load:
    """What happened.

    Attributes:
      done: commands that were answered, by rater and question.
      seconds: of each step with the page that follows it.
      errors: answers that no rater should see.
      resent: forms whose connection broke.
    """

    done: dict[tuple[str, str], list[str]] = dataclasses.field(default_factory=dict)
    seconds: list[float] = dataclasses.field(default_factory=list)
    errors: list[str] = dataclasses.field(default_factory=list)
    resent: int = 0


def run(folder: pathlib.Path, raters: int, questions: int, kills: int) -> Load:
    """Lets raters demonstrate all questions each, and kills the server as often meanwhile."""
    perfect = [dataclasses.replace(each, noise=Noise().times(0)) for each in STYLES.values()]
    make_split(folder, "train", questions=questions, demonstrated=questions, styles=perfect)
    scripted = {
        each.start.question: each
        for each in read_episodes(folder / "demonstrations_train.jsonl.gz", strict=True)
    }
    command = [sys.executable, "-m", "gophercite", "rate", "new", str(folder / "study")]
    command += [str(folder / "questions_train.jsonl"), "--form", "demonstration"]
    command += ["--world", str(folder / "world_train"), "--set", f"raters={raters}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    study, load, lock = Study(folder / "study"), Load(), threading.Lock()
    server, signer = Server(study.folder), Signer(study.secret)

    def asked(client: httpx.Client, method: str, path: str, form: dict[str, str]) -> httpx.Response:
        until, broken = time.monotonic() + _OUTAGE, False
        while True:
            try:
                return client.request(method, path, data=form or None)
            except httpx.TransportError:
                if time.monotonic() > until:
                    raise
                with lock:
                    load.resent += bool(form) and not broken
                broken = True
                time.sleep(0.05)

    def demonstrate(name: str) -> None:
        rater = add_rater(study.store, name, "super")
        link = signer.link(rater.id, rater.link_version, study.store.now() + 86400)
        with httpx.Client(base_url=server.url, timeout=_OUTAGE, trust_env=False) as client:
            asked(client, "GET", f"/r/{link}", {})
            page = asked(client, "GET", "/e/1", {})
            while "Nothing is left" not in page.text:
                (question,) = map(html.unescape, _ASKED.findall(page.text))
                steps = [step.action for step in scripted[question].steps]
                done = load.done.setdefault((name, question), [])
                for text in steps:
                    hidden = dict(_HIDDEN.findall(page.text))
                    begun = time.perf_counter()
                    answer = asked(client, "POST", "/e/1", hidden | _form(text, page.text))
                    page = asked(client, "GET", "/e/1", {})
                    with lock:
                        load.seconds.append(time.perf_counter() - begun)
                    if answer.status_code != 303 or page.status_code != 200:
                        load.errors.append(f"{answer.status_code} {text} {answer.text[:2000]}")
                        return
                    done.append(text)

    def guarded(name: str) -> None:
        try:
            demonstrate(name)
        except Exception as error:
            load.errors.append(repr(error))

    threads = [threading.Thread(target=guarded, args=(f"rater {n}",)) for n in range(raters)]
    try:
        for thread in threads:
            thread.start()
        total = raters * sum(len(each.steps) for each in scripted.values())
        for number in range(1, kills + 1):
            while len(load.seconds) < number * total // (kills + 1) and _any(threads):
                time.sleep(0.001)
            server.kill()
            server.start()
        for thread in threads:
            thread.join()
    finally:
        server.kill()
        study.store.close()
    return load


def faults(folder: pathlib.Path, load: Load) -> list[str]:
    """What is wrong with the records: steps lost, doubled or other ones, states that differ."""
    out = folder / "episodes.jsonl.gz"
    command = [sys.executable, "-m", "gophercite", "rate", "export", str(folder / "study")]
    subprocess.run([*command, "demonstration", "episodes", str(out)], check=True)
    found, kept = list(load.errors), list(read_episodes(out, strict=True))
    if len(kept) != len(load.done):
        found.append(f"{len(kept)} episodes, {len(load.done)} were finished")
    expected = {question: _merged(done) for (_, question), done in load.done.items()}
    with RecordedWorld(folder / "world_train") as world:
        for each in kept:
            if _merged([step.action for step in each.steps]) != expected[each.start.question]:
                found.append(f"other steps: {each.id}")
            if not _is_same(replayed(world, each), each):
                found.append(f"other states: {each.id}")
    return found


def _is_same(one: Episode, other: Episode) -> bool:
    return episode_to_json(one) == episode_to_json(other)


def _any(threads: list[threading.Thread]) -> bool:
    return any(thread.is_alive() for thread in threads)


def _form(text: str, page: str) -> dict[str, str]:
    """What a person sends for a command; scrolls are sent whole, which saves forms."""
    if "Write your answer" in page:
        return {"answer": text}
    for name, do in (("Search ", "search"), ("Find in page: ", "find"), ("Quote: ", "quote")):
        if text.startswith(name):
            start, _, end = text.removeprefix(name).partition("━")
            return {"do": do, "text": start, "until": end}
    return {"do": text}


def _merged(steps: list[str]) -> list[str]:
    """Steps with scrolls in one direction as their number of screens, and quotes as that."""
    merged: list[str] = []
    for step in steps:
        name, _, screens = step.rpartition(" ")
        if name.startswith("Scrolled") and merged and merged[-1].startswith(name):
            merged[-1] = f"{name} {int(merged[-1].rpartition(' ')[2]) + int(screens)}"
        else:
            merged.append("Quote" if step.startswith("Quote: ") else step)
    return merged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--raters", type=int, default=20)
    parser.add_argument("--questions", type=int, default=6)
    parser.add_argument("--kills", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, begun = pathlib.Path(name), time.perf_counter()
        load = run(folder, options.raters, options.questions, options.kills)
        seconds = time.perf_counter() - begun
        found = faults(folder, load)
        quick, slow = np.percentile(load.seconds, [50, 99])
        print(
            f"{len(load.done)} episodes, {len(load.seconds)} steps, {seconds:.0f} s; a step with "
            f"its page p50 {quick:.2f} s, p99 {slow:.2f} s; {load.resent} forms sent again"
        )
        print(f"{len(found)} faults", *found[:10], sep="\n")


if __name__ == "__main__":
    main()
