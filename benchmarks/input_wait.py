"""The share of a training step that waits for prompts of appendix D.2, in a real run.

    python benchmarks/input_wait.py [--data DATA] [--work FOLDER] [--steps 60]

Makes whole Wikipedia articles with search results for every question, then trains the small model
with gin_configs/sft_long_pages.gin: windows of one to five pages a prompt. Prints the input's wait
and the step's time by the run's own metrics, and how fast the input is when nothing waits for it;
so, too, the prompts of reinforcement learning with the tables of what may be quoted, and how many
sizes these have, for each of which a step would be compiled. What FOLDER holds already is not made
again.
"""

import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from public_data import add_data

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

LENGTH, RESPONSE, ROWS = 1024, 192, 6  # as in gin_configs/sft_long_pages.gin
PROMPTS = 16


def python(*arguments: object) -> None:
    """Runs a command of the repository; its errors end this one."""
    subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, check=True)


def make_records(data: pathlib.Path, work: pathlib.Path) -> None:
    """Writes articles, their index, a file of search results and a vocabulary."""
    made = work / "articles"
    if not (made / "found_train.jsonl").exists():
        python("-m", "data_pipelines.convert", "squad", data / "squad/wikipedia.json.gz", made,
               "--articles", "--validation", 0, "--test", 0)  # fmt: skip
        index = made / "corpus.db"
        python("-m", "gophercite", "index", made / "documents_train.jsonl", "--out", index)
        for kind, out in (("questions", "asked_train"), ("rated-answers", "found_train")):
            records = made / f"{kind.replace('-', '_')}_train.jsonl"
            python("-m", "data_pipelines.search", kind, records, made / f"{out}.jsonl",
                   "--index", index)  # fmt: skip
    if not (work / "vocabulary").exists():
        python("launch/train_vocabulary.py", "--size", 2048, "--output", work / "vocabulary",
               "--input", made / "documents_train.jsonl")  # fmt: skip


def train(work: pathlib.Path, run: pathlib.Path, steps: int) -> list[dict[str, float]]:
    """Trains and returns the metrics of the steps after the first."""
    settings = {
        "DATA_DIR": work / "articles", "INDEX": work / "articles/corpus.db",
        "VOCABULARY": work / "vocabulary", "MODEL_DIR": run, "TRAIN_STEPS": steps,
        "linear_warmup_cosine.warmup_steps": 10, "train.early_stopping": None,
        "Run.evaluations": {}, "Run.answers": None, "split_files.splits": ("train",),
    }  # fmt: skip
    bindings = [f"--gin.{name}={value}" for name, value in settings.items()]
    python("launch/train.py", "--gin_file=gin_configs/sft_long_pages.gin", *bindings)
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["split"] == "train" and line["step"] > 1]


def input_seconds(work: pathlib.Path, batches: int) -> float:
    """Processor time of one batch, nothing else running in the process."""
    from data_pipelines import tasks  # TensorFlow takes seconds to load
    from data_pipelines.inputs import Input
    from gophercite.retrieval.contexts import ContextSettings

    made = work / "articles"
    tasks.add_rated_answers(
        "long_pages", {"train": made / "found_train.jsonl"}, work / "vocabulary",
        contexts=ContextSettings(response_tokens=RESPONSE), index=made / "corpus.db",
    )  # fmt: skip
    source = Input("long_pages", "train", LENGTH, ROWS, seed=0).batches()
    next(source)  # reads the file
    begun = time.process_time()
    list(itertools.islice(source, batches))
    return (time.process_time() - begun) / batches


def rollout_seconds(work: pathlib.Path, batches: int) -> tuple[float, int]:
    """Processor time of a batch of prompts with its tables, and how many shapes batches have."""
    import jax

    from data_pipelines import tasks
    from data_pipelines.rollout_input import RolloutInput
    from gophercite.quoting.quote_settings import QuoteSettings
    from gophercite.retrieval.contexts import ContextSettings

    made = work / "articles"
    tasks.add_questions(
        "long_questions", {"train": made / "asked_train.jsonl"}, work / "vocabulary",
        contexts=ContextSettings(), index=made / "corpus.db",
    )  # fmt: skip
    source = RolloutInput(
        "long_questions", "train", LENGTH, 64, RESPONSE, PROMPTS, seed=0, quotes=QuoteSettings()
    ).batches()
    shapes = {str(jax.tree.map(np.shape, next(source)))}  # compiles, reads, finds the sizes
    begun = time.process_time()
    for batch in itertools.islice(source, batches):
        shapes.add(str(jax.tree.map(np.shape, batch)))
    return (time.process_time() - begun) / batches, len(shapes)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data(parser)
    parser.add_argument("--work", type=pathlib.Path, help="a folder to keep; else a temporary one")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (options.work or pathlib.Path(temporary)).resolve()
        make_records(options.data.resolve(), work)
        with tempfile.TemporaryDirectory() as run:
            lines = train(work, pathlib.Path(run), options.steps)
        shares = [line["time/input_wait_share"] for line in lines]
        step = sum(line["time/step"] for line in lines) / len(lines)
        wait = sum(line["time/input_wait"] for line in lines) / len(lines)
        alone = input_seconds(work, 20)
        rollouts, shapes = rollout_seconds(work, 20)
    print(
        f"a step of {ROWS} x {LENGTH} tokens: {step:.2f} s, of which input is waited for "
        f"{1000 * wait:.2f} ms: {wait / step:.4%} (aim: under 2 %); largest logged share "
        f"{max(shares):.4%}"
    )
    print(f"making a batch: {1000 * alone:.0f} ms of one core, {alone / step:.1%} of a step")
    print(
        f"a batch of {PROMPTS} prompts of up to {LENGTH} tokens with their tables: "
        f"{1000 * rollouts:.0f} ms of one core; shapes among 21: {shapes}"
    )


if __name__ == "__main__":
    main()
