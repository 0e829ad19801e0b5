"""Kills training runs at random moments and compares what comes of them with a run left alone.

    python benchmarks/kills.py --chains 6            # supervised
    python benchmarks/kills.py --chains 3 --a2c      # actor-critic
    python benchmarks/kills.py --chains 3 --ppo      # PPO, with the environments of its browser
    GOPHERCITE_SEED=7 python benchmarks/kills.py …   # the same moments again

Runs are `launch/train.py` with a tiny model and seqio's input of the sample world, or with
questions about a small sample web. Each chain is one folder whose run is killed (SIGKILL) while it
starts, compiles, evaluates, saves (asynchronously, by Orbax) and steps, started again after each,
and in the end left to finish. Its parameters must be those of the run that nobody touched, bit for
bit, and so must its metrics but for times. Prints the seed and a table: moment × kills × bit-equal.
The moment is what the process was found at, by what it had said and written, not what was aimed at.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from gophercite.model_folders.checkpoint_files import read_parameters, saved_steps
from gophercite.monitoring.metrics import read_metrics

ROOT = pathlib.Path(__file__).resolve().parents[1]
MOMENTS = ("start", "compile", "evaluation", "save", "steps")
EVALUATE_EVERY = 12
PATIENCE = 1800  # seconds, on the slowest of machines
# Nearly all of the time would go into compiling programs that run for milliseconds.
QUICK = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false"
)
TINY = {
    "TRAIN_STEPS": "40",
    "BATCH_SIZE": "8",
    "linear_warmup_cosine.warmup_steps": "2",
    "TransformerConfig.d_model": "16",
    "TransformerConfig.num_layers": "2",
    "TransformerConfig.d_ff": "16",
    "TransformerConfig.num_heads": "2",
    "TransformerConfig.head_dim": "8",
    "train.log_every": "1",
    "train.evaluate_every": str(EVALUATE_EVERY),
    "train.save_every": "5",
    "Run.answers": "None",
}
SUPERVISED = {"INITIAL_CHECKPOINT": "None", "validation/Input.batch_size": "64"}
A2C = {
    "A2CLearner.microbatches": "1",
    "A2CLearner.value_width": "8",
    "rollout_plan.samples_per_prompt": "2",
    "EarlyStopping.limits": "{}",
    "EarlyStopping.patience": "100",
    "train.profile_step": "None",
    "validation/RolloutInput.batch_size": "64",
}
PPO = {
    "BATCH_SIZE": "4",
    "Rollout.environments": "4",
    "Rollout.steps": "5",
    "Rollout.chunk": "8",
    "Rollout.extra_answers": "1",
    "PPOLearner.trained_rows": "24",
    "PPOLearner.minibatches": "2",
    "PPOLearner.microbatches": "1",
    "PPOLearner.value_width": "8",
    "PPOLearner.widths": "2",
    "constant_schedule.learning_rate": "1e-2",
    "SamplingSettings.max_tokens": "16",
    "BrowsingSettings.constrained": "True",  # or random weights would do nothing that is valid
    "BrowsingSettings.prompt_tokens": "160",
    "browser.actions": "(2, 3)",
    "browsing_collector.prefix_tokens": "96",
    "validation/BrowsingInput.limit": "3",
    "KL_BUDGET": "1e9",
    "EarlyStopping.patience": "100",
}


def seed_of_draws() -> int:
    """The seed in GOPHERCITE_SEED, else a new one; it is printed, so that it can be set."""
    text = os.environ.get("GOPHERCITE_SEED")
    seed = int(text) if text else int.from_bytes(os.urandom(4))
    print(f"GOPHERCITE_SEED={seed}", file=sys.stderr, flush=True)
    return seed


@dataclasses.dataclass(frozen=True)
class Command:
    """A run of `launch/train.py` but for its folder.

    Attributes:
      gin_file: of `gin_configs`.
      settings: bindings.
      cache: of compiled programs; a process that is to be met while it compiles gets another.
    """

    gin_file: str
    settings: Mapping[str, str]
    cache: pathlib.Path

    def flags(self, folder: pathlib.Path, cache: pathlib.Path | None = None) -> list[str]:
        """Those of `launch/train.py` for a run in a folder."""
        return [
            f"--gin_file=gin_configs/{self.gin_file}",
            f"--gin.MODEL_DIR={folder}",
            f"--compilation_cache={cache or self.cache}",
            *(f"--gin.{name}={value}" for name, value in self.settings.items()),
        ]

    def start(
        self,
        folder: pathlib.Path,
        cache: pathlib.Path | None = None,
        more: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> "Process":
        """Starts it in a folder, with more flags and environment variables."""
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_LOG_COMPILES": "1",  # says on stderr what is compiled, and when that is done
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "XLA_FLAGS": QUICK,
            **(variables or {}),
        }
        return Process(
            [
                sys.executable,
                str(ROOT / "launch" / "train.py"),
                *self.flags(folder, cache),
                *more,
            ],
            environment,
            folder,
        )


class Process:
    """A running command: what it has said, and what it is at."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: pathlib.Path
    ) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.DEVNULL,  # gloo's lines
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def wait(self) -> int:
        """The exit status, when all that was said has been read."""
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def wait_for(self, reached: Callable[[], bool]) -> bool:
        """Waits until something holds; False when the process is over first."""
        deadline = time.monotonic() + PATIENCE
        while not reached():
            if self.process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                raise TimeoutError("the run came to nothing:\n" + "".join(self.lines[-20:]))
            time.sleep(0.001)
        return True

    def moment(self) -> str:
        """What it is at, or was when it ended."""
        lines = list(self.lines)
        text = "".join(lines)
        if "parameters, " not in text:
            return "start"
        if self.is_saving():
            return "save"
        if text.count("Compiling jit(") > text.count("Finished XLA compilation of jit("):
            return "compile"
        shown = [line for line in lines if re.match(r"step \d+", line)]
        if not any("/" in line.split("·")[0] for line in shown):
            return "evaluation"  # before the first step
        last = shown[-1]
        found = re.match(r"step (\d+)/", last)
        return "evaluation" if found and int(found[1]) % EVALUATE_EVERY == 0 else "steps"

    def is_saving(self) -> bool:
        """Whether a checkpoint is being written."""
        checkpoints = self.folder / "checkpoints"
        return any("tmp" in path.name for path in checkpoints.glob("*"))

    def is_compiling(self) -> bool:
        """Whether a program is being compiled, after the start."""
        text = "".join(self.lines)
        compiling = text.count("Compiling jit(") > text.count("Finished XLA compilation of jit(")
        return "parameters, " in text and compiling

    def has_begun_to_evaluate(self) -> bool:
        """Whether it is at an evaluation after the first."""
        return self.moment() == "evaluation" and "step 0" in "".join(self.lines)

    def steps_shown(self) -> int:
        """How many lines of steps there are."""
        return sum(bool(re.match(r"step \d+/", line)) for line in self.lines)


def meet(process: Process, moment: str, draw: random.Random) -> bool:
    """Waits until a process is at a moment, and a little longer; False when it ended first."""
    if moment == "start":
        time.sleep(draw.uniform(0, 8))
        return process.process.poll() is None
    reached, longest = {
        "compile": (process.is_compiling, 0.5),
        "evaluation": (process.has_begun_to_evaluate, 0.3),
        "save": (process.is_saving, 0.03),
        "steps": (lambda: process.steps_shown() >= draw.randrange(1, 20), 0.1),
    }[moment]
    if not process.wait_for(reached):
        return False
    time.sleep(draw.uniform(0, longest))
    return True


def kill(
    command: Command,
    folder: pathlib.Path,
    moment: str,
    draw: random.Random,
    number: int = signal.SIGKILL,
    variables: Mapping[str, str] | None = None,
) -> tuple[str | None, Process]:
    """Starts a run, with more environment variables, and sends it a signal at a moment.

    Returns:
      What it was at; None when it had ended. And the process, which is over if it was killed.
    """
    fresh = None
    if moment == "compile":
        fresh = pathlib.Path(tempfile.mkdtemp(dir=command.cache.parent))
    process = command.start(folder, fresh, variables=variables)
    if not meet(process, moment, draw):
        process.wait()
        return None, process
    at = process.moment()
    process.process.send_signal(number)
    status = process.wait()
    if number == signal.SIGKILL:
        if status != -signal.SIGKILL:
            return None, process
        at = process.moment()
    return at, process


def bits(folder: pathlib.Path) -> dict[str, bytes]:
    """Each of the last checkpoint's parameters by its path."""
    params = read_parameters(folder, max(saved_steps(folder)))
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {jax.tree_util.keystr(path): np.asarray(leaf).tobytes() for path, leaf in leaves}


def lines(folder: pathlib.Path) -> list[dict[str, object]]:
    """A run's metrics but for times."""
    return [
        {name: value for name, value in line.items() if not name.startswith(("time/", "memory/"))}
        for line in read_metrics(folder)
    ]


def finish(command: Command, folder: pathlib.Path) -> Process:
    """Lets a run end by itself.

    Raises:
      RuntimeError: it failed.
    """
    process = command.start(folder)
    if process.wait() != 0:
        raise RuntimeError("the run failed:\n" + "".join(process.lines[-20:]))
    return process


def make_models(folder: pathlib.Path) -> dict[str, str]:
    """A tiny policy and reward model of random weights, as settings of a run."""
    from data_pipelines.sample_world.vocabulary import bundled_vocabulary
    from gophercite.model_folders.folder import Model, save_model
    from gophercite.models.config import TransformerConfig
    from gophercite.models.parameters import HEADS
    from gophercite.models.reward_model import RewardModel
    from gophercite.models.transformer import Transformer

    vocabulary = bundled_vocabulary()
    transformer = Transformer(
        TransformerConfig(
            vocab_size=2048, d_model=16, num_layers=2, num_heads=2, head_dim=8, d_ff=16,
            activation="silu", gated_mlp=True, position="rope", scale_embeddings=True,
            dtype="float32", attention_block=64, attention_remat=False,
        )
    )  # fmt: skip
    params = transformer.init(jax.random.key(3))
    heads = RewardModel(transformer).init_heads(jax.random.key(4))
    save_model(folder / "policy", Model(transformer, params, vocabulary, {}))
    save_model(folder / "judge", Model(transformer, {**params, HEADS: heads}, vocabulary, {}))
    return {
        "INITIAL_CHECKPOINT": str(folder / "policy"),
        "REWARD_MODEL": str(folder / "judge"),
    }


def make_web(folder: pathlib.Path) -> dict[str, str]:
    """A sample web with questions about it, as settings of a run."""
    from data_pipelines.sample_web.making import make_split
    from gophercite.browser.settings import Settings

    make_split(
        folder, "train", seed=0, pages=40, questions=12, demonstrated=4, steps=(1,),
        settings=Settings(view_lines=8), progress=lambda *_: lambda *_: None,
    )  # fmt: skip
    questions = str(folder / "questions_train.jsonl")
    return {
        "WORLD": str(folder / "world_train"),
        "QUESTIONS": questions,
        "HELD_OUT_QUESTIONS": questions,
        "WITHOUT": str(folder / "demonstrations_train.jsonl.gz"),
    }


def command_of(learner: str, scratch: pathlib.Path) -> Command:
    """A run of a learner ("supervised", "a2c" or "ppo"), with the models and data that it needs."""
    if learner == "supervised":
        return Command("sft_sample_world.gin", TINY | SUPERVISED, scratch / "cache")
    settings = TINY | make_models(scratch) | {"TRAIN_STEPS": "24"}
    if learner == "a2c":
        return Command("a2c_sample_world.gin", settings | A2C, scratch / "cache")
    settings = {name: value for name, value in settings.items() if not name.startswith("linear")}
    settings |= PPO | make_web(scratch)
    return Command("ppo_sample_web.gin", settings, scratch / "cache")


def add_learner(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that choose the `learner` of `command_of`."""
    learner = parser.add_mutually_exclusive_group()
    for name, what in (("a2c", "actor-critic"), ("ppo", "PPO over browsing")):
        learner.add_argument(
            f"--{name}", dest="learner", action="store_const", const=name, help=what
        )
    parser.set_defaults(learner="supervised")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chains", type=int, default=4, help="folders (default: 4)")
    add_learner(parser)
    flags = parser.parse_args()
    draw = random.Random(seed_of_draws())
    killed: collections.Counter[str] = collections.Counter()
    equal: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as text:
        scratch = pathlib.Path(text)
        command = command_of(flags.learner, scratch)
        finish(command, scratch / "whole")
        for chain in range(flags.chains):
            folder = scratch / f"chain_{chain}"
            met = []
            for moment in [*MOMENTS, *draw.sample(MOMENTS[1:], 2)]:
                at, _ = kill(command, folder, moment, draw)
                if at is not None:
                    met.append(at)
            finish(command, folder)
            same = bits(folder) == bits(scratch / "whole")
            same = same and lines(folder) == lines(scratch / "whole")
            killed.update(met)
            if same:
                equal.update(met)
            verdict = "equal" if same else "DIFFERS"
            print(f"chain {chain}: {', '.join(met)}: {verdict}", file=sys.stderr, flush=True)
    print("| Killed while at | kills | bit-equal in the end |\n|---|---:|---:|")
    for moment in MOMENTS:
        print(f"| {moment} | {killed[moment]} | {equal[moment]} |")
    return 0 if killed == equal else 1


if __name__ == "__main__":
    sys.exit(main())
