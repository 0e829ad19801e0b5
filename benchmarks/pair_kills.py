"""Kills, stops, ends and breaks one of two processes that train together, at random moments.

    python benchmarks/pair_kills.py --rounds 3                  # of each kind
    python benchmarks/pair_kills.py --kinds kill,term --rounds 5
    python benchmarks/pair_kills.py --a2c                       # actor-critic
    python benchmarks/pair_kills.py --ppo                       # PPO, half of the environments each
    GOPHERCITE_SEED=7 python benchmarks/pair_kills.py …         # the same moments again

Two processes of `launch/train.py` train a tiny model on loopback, with seqio's input of the sample
world, or with questions about a small sample web. A folder has five rounds: in each, one process,
drawn anew, is met at a moment and

* kill: is killed (SIGKILL): the other has to end with status 69 and, last, a line that names it
  or, where they have not met yet, the time in which they have to join (--join_timeout);
* stop: is stopped (SIGSTOP): likewise, or by the other's watchdog;
* term: is asked to stop (SIGTERM): both have to save the same step and end with status 75;
* error: meets an error of the program: it has to end with status 70, and the other not with 75.

Both are started again after each. In the end they finish; the parameters must be those of two
processes that nobody touched, bit for bit, and so must the metrics but for times. Prints the seed
and a table: kind × moment × number × as it should be × the longest time until both had ended.
"""

import argparse
import collections
import dataclasses
import pathlib
import random
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.kills import (
    MOMENTS,
    Command,
    add_learner,
    bits,
    command_of,
    lines,
    meet,
    seed_of_draws,
)

KINDS = ("kill", "stop", "term", "error")
STALLED_AFTER = 20.0  # seconds; a busy machine takes breaths, too
# The first of the moments for a kind: at the start Python may not have begun.
BEGINS = {"error": 1, "term": 2}
JOINED_AFTER = 60  # seconds; half an hour by default, as hosts of a large run start apart
ROUNDS_IN_A_RUN = 5
LONGEST = 300.0  # seconds until both processes have ended
# Put in a process's way, it lets a signal be an error of the program.
BREAKS = """
import signal
def broken(number, frame):
    raise RuntimeError("broken on purpose")
signal.signal(signal.SIGUSR1, broken)
"""


class Pair:
    """Two processes of one run."""

    def __init__(self, command: Command, folder: pathlib.Path, broken: pathlib.Path) -> None:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        place = [f"--coordinator_address=localhost:{port}", "--num_processes=2"]
        place.append(f"--join_timeout={JOINED_AFTER}")
        variables = {"PYTHONPATH": str(broken)}
        self.processes = [
            command.start(folder, more=[*place, f"--process_id={number}"], variables=variables)
            for number in (0, 1)
        ]

    def wait(self, seconds: float) -> list[int | None]:
        """The exit statuses; None of one that has not ended after so many seconds."""
        deadline = time.monotonic() + seconds
        while any(each.process.poll() is None for each in self.processes):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return [each.process.poll() for each in self.processes]

    def close(self) -> None:
        """Kills what is left."""
        for each in self.processes:
            each.process.kill()
            each.wait()


def is_as_it_should_be(
    kind: str, statuses: Sequence[int | None], said: Sequence[str], which: int
) -> bool:
    """Whether two processes ended as they have to after what befell one of them.

    Args:
      kind: what befell it.
      statuses: the exit statuses.
      said: what each wrote to stderr.
      which: whom it befell.
    """
    other = statuses[1 - which]
    if other is None or (kind != "stop" and None in statuses):
        return False
    if kind in ("kill", "stop"):
        lines = [f"process {which} of 2 is gone", "not all processes have joined"]
        lines += ["the training is stuck"] if kind == "stop" else []
        last = said[1 - which].strip().splitlines()[-1:]
        return other == 69 and any(line in text for line in lines for text in last)
    if kind == "term":
        saved = {tuple(re.findall(r"step (\d+) is saved", text)[-1:]) for text in said}
        return list(statuses) == [75, 75] and len(saved) == 1
    return statuses[which] == 70 and other not in (0, 75) and "broken on purpose" in said[which]


SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "term": signal.SIGTERM,
    "error": signal.SIGUSR1,
}


def strike(
    pair: Pair, kind: str, moment: str, which: int, draw: random.Random
) -> tuple[str, bool, float] | None:
    """Lets something befall one of two processes at a moment.

    Args:
      pair: that runs.
      kind: one of KINDS.
      moment: one of `kills.MOMENTS`.
      which: whom it befalls.
      draw: how much later than the moment's begin.

    Returns:
      What the run was at; whether both ended as they should; the seconds until they had. None when
      the run was over before.
    """
    if not meet(pair.processes[0], moment, draw):
        pair.wait(LONGEST)
        return None
    at = pair.processes[0].moment()
    begun = time.monotonic()
    pair.processes[which].process.send_signal(SIGNALS[kind])
    if kind == "stop":  # it would never end
        while pair.processes[1 - which].process.poll() is None:
            if time.monotonic() - begun > LONGEST:
                break
            time.sleep(0.05)
        statuses = [each.process.poll() for each in pair.processes]
    else:
        statuses = pair.wait(LONGEST)
    took = time.monotonic() - begun
    if statuses == [0, 0]:
        return None
    pair.close()
    said = ["".join(each.lines) for each in pair.processes]
    good = is_as_it_should_be(kind, statuses, said, which)
    last = [(text.splitlines() or [""])[-1][:150] for text in said]
    note = "" if good else f" NOT AS IT SHOULD BE: {last}"
    print(f"{kind} process {which} at {at}: {statuses}, {took:.0f} s{note}", file=sys.stderr)
    if not good:
        print("\n".join(text[-3000:] for text in said), file=sys.stderr, flush=True)
    return at, good, took


def finish(command: Command, folder: pathlib.Path, broken: pathlib.Path) -> None:
    """Lets two processes end by themselves.

    Raises:
      RuntimeError: they failed.
    """
    pair = Pair(command, folder, broken)
    statuses = pair.wait(3 * LONGEST)
    pair.close()
    if statuses != [0, 0]:
        said = ["".join(each.lines[-20:]) for each in pair.processes]
        raise RuntimeError(f"the run ended with {statuses}:\n" + "\n".join(said))


def main() -> int:
    """Prints the tables; 1 where something is not as it should be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each kind (default: 3)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="default: all")
    add_learner(parser)
    flags = parser.parse_args()
    draw = random.Random(seed_of_draws())
    equal: list[bool] = []
    struck: dict[tuple[str, str], list[tuple[bool, float]]] = collections.defaultdict(list)
    with tempfile.TemporaryDirectory() as text:
        scratch = pathlib.Path(text)
        broken = scratch / "broken"
        broken.mkdir()
        (broken / "sitecustomize.py").write_text(BREAKS)
        command = command_of(flags.learner, scratch)
        settings = {**command.settings, "train.stalled_after": str(STALLED_AFTER)}
        command = dataclasses.replace(command, settings=settings)
        finish(command, scratch / "whole", broken)
        rounds = [kind for kind in flags.kinds.split(",") for _ in range(flags.rounds)]
        draw.shuffle(rounds)
        for number, kind in enumerate(rounds):
            # A run that is over is not begun again: another folder is.
            folder = scratch / f"run_{number // ROUNDS_IN_A_RUN}"
            pair = Pair(command, folder, broken)
            try:
                # An error needs Python's own thread to come by, and a save needs a step.
                moment = draw.choice(MOMENTS[BEGINS.get(kind, 0) :])
                found = strike(pair, kind, moment, draw.randrange(2), draw)
            finally:
                pair.close()
            if found is not None:
                struck[kind, found[0]].append(found[1:])
            if (number + 1) % ROUNDS_IN_A_RUN == 0 or number + 1 == len(rounds):
                finish(command, folder, broken)
                same = bits(folder) == bits(scratch / "whole")
                same = same and lines(folder) == lines(scratch / "whole")
                equal.append(same)
                print(f"{folder.name}: {'equal' if same else 'DIFFERS'}", file=sys.stderr)
    print("| kind | at | number | as it should be | longest, s |\n|---|---|---:|---:|---:|")
    for (kind, at), ends in sorted(struck.items()):
        good, longest = sum(each for each, _ in ends), max(took for _, took in ends)
        print(f"| {kind} | {at} | {len(ends)} | {good} | {longest:.0f} |")
    print(f"{sum(equal)} of {len(equal)} runs bit-equal in the end")
    as_it_should_be = all(good for ends in struck.values() for good, _ in ends)
    return 0 if as_it_should_be and all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
