"""Presses Ctrl-C at random moments of commands that load, compile and sample.

    python benchmarks/interrupts.py --tries 30
    GOPHERCITE_SEED=7 python benchmarks/interrupts.py …    # the same moments again

Each command must end with status 130 and nothing on stderr but what it says anyway, whatever it was
at: imports, loading, compiling, sampling. Moments are drawn over the time that a command takes when
it is left alone, from when it hears signals on. Before that, for a tenth of a second on a quiet
machine, the interpreter itself starts, and has a message of its own. Prints a table: command ×
tries × 130 and silent × the longest it took.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import jax

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.kills import PATIENCE, QUICK, ROOT, seed_of_draws
from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from gophercite.model_folders.folder import Model, save_model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer

PAGES = 400


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
      status: the exit status.
      said: what it said on stderr.
      after: when Ctrl-C was pressed, in seconds after the command first heard signals; None if it
        had ended before, or was done and only took itself down.
      took: seconds from then to the end.
    """

    status: int
    said: str
    after: float | None
    took: float

    @property
    def at_once(self) -> bool:
        """Whether it ended as it should, or had ended by itself."""
        if self.after is None:
            return self.status == 0
        said = [line for line in self.said.splitlines() if not line.startswith(EXPECTED)]
        return self.status == 130 and not said


# What infer and eval say while they are at work.
EXPECTED = ("question", "8 questions", "0 questions", "questions")


def make_commands(folder: pathlib.Path) -> dict[str, list[str]]:
    """Commands that take some seconds each, by name, and the files that they need."""
    transformer = Transformer(
        TransformerConfig(
            vocab_size=2048, d_model=16, num_layers=1, num_heads=2, head_dim=8,
            position="rope", dtype="float32",
        )
    )  # fmt: skip
    params = transformer.init(jax.random.key(0))
    save_model(folder / "tiny", Model(transformer, params, bundled_vocabulary(), {"id": "tiny"}))
    notes = folder / "notes"
    notes.mkdir()
    for number in range(PAGES):
        text = f"The mill number {number} burned in 18{number % 100:02}. It had 14 wheels.\n"
        (notes / f"mill_{number}.txt").write_text(text * 20)
    with (folder / "questions.jsonl").open("w") as file:
        for number in range(8):
            text = f"The mill number {number} burned in 18{number:02}. It had 14 wheels."
            page = {"id": f"p{number}", "title": f"Mill {number}", "text": text}
            question = f"When did mill {number} burn?"
            line = {"id": f"q{number}", "question": question, "source": "t", "documents": [page]}
            file.write(json.dumps(line) + "\n")
    model = ["--model", str(folder / "tiny")]
    questions = ["--questions", str(folder / "questions.jsonl")]
    sizes = ["--samples", "2", "--max-tokens", "60"]
    gophercite = [sys.executable, "-m", "gophercite"]
    return {
        "ask": [*gophercite, "ask", "When did mill 7 burn?", "--documents", str(notes), *model],
        "infer": [
            sys.executable, str(ROOT / "launch" / "infer.py"), *model, *questions, *sizes,
            "--prompt-tokens", "200", "--output", str(folder / "answers.jsonl"),
        ],
        "eval": [
            sys.executable, str(ROOT / "launch" / "eval.py"), *model, *questions, *sizes,
            "--max-prompt-tokens", "200", "--constrained", "--output", str(folder / "report"),
        ],
        "index": [*gophercite, "index", str(notes), "--out", str(folder / "corpus.db")],
    }  # fmt: skip


def ignores_interrupts(pid: int) -> bool:
    """Whether a process has said that Ctrl-C changes nothing more; of one that is gone, too."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) >> (signal.SIGINT - 1) & 1)


def interrupt(command: Sequence[str], after: float | None) -> Ending:
    """Runs a command and presses Ctrl-C.

    Args:
      command: with its arguments.
      after: so many seconds after it hears signals; None leaves it alone.

    Returns:
      How it ended.
    """
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": QUICK}
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )
    pressed: float | None = None
    if after is not None:
        # Its second thread is the one that hears them. Only Linux tells.
        while process.poll() is None and len(os.listdir(f"/proc/{process.pid}/task")) < 2:
            time.sleep(0.005)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            if not ignores_interrupts(process.pid):
                process.send_signal(signal.SIGINT)
                pressed = after
    start = time.monotonic()
    _, said = process.communicate(timeout=PATIENCE)
    return Ending(process.returncode, said, pressed, time.monotonic() - start)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=30, help="of each command (default: 30)")
    parser.add_argument("--only", help="one of the commands")
    flags = parser.parse_args()
    draw = random.Random(seed_of_draws())
    print("| command | left alone, s | tries | 130, silent | longest to end, s |")
    print("|---|---:|---:|---:|---:|", flush=True)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, command in make_commands(pathlib.Path(folder)).items():
            if flags.only and name != flags.only:
                continue
            alone = interrupt(command, None)
            if alone.status:
                print(f"{name} failed: {alone.said}", file=sys.stderr)
                return 1
            endings: list[Ending] = []
            while len(endings) < flags.tries:
                ending = interrupt(command, draw.uniform(0, alone.took))
                if ending.after is not None:
                    endings.append(ending)
                if not ending.at_once:
                    print(f"{name}: {ending}", file=sys.stderr, flush=True)
            good = sum(ending.at_once for ending in endings)
            failed |= good < len(endings)
            longest = max(ending.took for ending in endings)
            row = f"| {name} | {alone.took:.1f} | {len(endings)} | {good} | {longest:.2f} |"
            print(row, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
