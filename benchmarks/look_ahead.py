"""What making the next questions ready saves while the device answers one.

    python benchmarks/look_ahead.py [--data DATA] [--questions 24] [--rounds 3]
    PJRT_NPROC=1 XLA_FLAGS=--xla_cpu_multi_thread_eigen=false python benchmarks/look_ahead.py

Questions of SQuAD are asked of its whole articles, five pages each by the embedded index, with the
bundled model and its constraint: one after the other, and with the next two made ready by a thread,
turn by turn in one run. Beside both stand what the host and the device take by themselves. With a
model on the CPU they share its cores; the second command leaves the device one of them, which is
nearer to an accelerator that leaves the host alone. The answers must be the same.
"""

import argparse
import functools
import gzip
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from public_data import add_data

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gophercite.answering.answerer import Answerer, Batch  # noqa: E402
from gophercite.answering.many_questions import Asked, answer_each  # noqa: E402
from gophercite.answering.pages import IndexedPages, index_in_memory  # noqa: E402
from gophercite.answering.settings import AnsweringSettings  # noqa: E402
from gophercite.decoding.sampling_settings import SamplingSettings  # noqa: E402
from gophercite.documents import Document  # noqa: E402
from gophercite.model_folders.folder import load_model  # noqa: E402
from gophercite.records.answers import Answer  # noqa: E402

BUNDLED = ROOT / "data_pipelines" / "sample_world" / "model"
PAGES = 5
AHEAD = 2


def articles(data: pathlib.Path) -> tuple[list[Document], list[str]]:
    """Whole articles, and a question of each paragraph of theirs."""
    with gzip.open(data / "squad/wikipedia.json.gz") as file:
        read = json.load(file)["data"]
    documents, questions = [], []
    for article in read:
        text = "\n".join(paragraph["context"] for paragraph in article["paragraphs"])
        documents.append(Document(article["title"], article["title"].replace("_", " "), text))
        questions += [p["qas"][0]["question"] for p in article["paragraphs"] if p["qas"]]
    return documents, questions


def prepare_all(answerer: Answerer, asked: list[Asked]) -> list[Batch]:
    """What the host does."""
    return [answerer.batch([answerer.prepare(each.question, each.find())]) for each in asked]


def answer_all(answerer: Answerer, asked: list[Asked], ready: list[Batch]) -> list[Answer]:
    """What the device does."""
    return [
        answer
        for each, batch in zip(asked, ready, strict=True)
        for answer in answerer.answer_batch(batch, [each.seed])
    ]


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a run takes, and what it returns."""
    begun = time.perf_counter()
    made = run()
    return time.perf_counter() - begun, made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data(parser)
    parser.add_argument("--model", default=BUNDLED, help="default: the sample world's")
    parser.add_argument("--questions", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prompt-tokens", type=int, default=1024)
    parser.add_argument("--max-tokens", type=int, default=64)
    flags = parser.parse_args()
    documents, questions = articles(flags.data)
    step = max(1, len(questions) // flags.questions)
    settings = AnsweringSettings(
        prompt_tokens=flags.prompt_tokens, sampling=SamplingSettings(flags.max_tokens)
    )
    answerer = Answerer(load_model(flags.model), settings)
    with index_in_memory(documents) as index:
        source = IndexedPages(index)
        asked = [
            Asked(question, functools.partial(source.find, question, PAGES), seed=number)
            for number, question in enumerate(questions[::step][: flags.questions])
        ]
        measure(answerer, asked, flags.rounds)


def measure(answerer: Answerer, asked: list[Asked], rounds: int) -> None:
    """Prints the times of all questions, by turns, after one turn that compiles."""
    in_turn = functools.partial(answer_each, answerer, asked, ahead=0)
    overlapped = functools.partial(answer_each, answerer, asked, ahead=AHEAD)
    expected = list(in_turn())
    ratios, host, device = [], [], []
    for _ in range(rounds):
        one, first = timed(lambda: list(in_turn()))
        both, second = timed(lambda: list(overlapped()))
        assert first == second == expected, "answers differ"
        made_ready, ready = timed(functools.partial(prepare_all, answerer, asked))
        answered, _ = timed(functools.partial(answer_all, answerer, asked, ready))
        ratios.append(both / one)
        host.append(made_ready / one)
        device.append(answered / one)
        print(
            f"{len(asked)} questions: one after the other {one:.2f} s, with {AHEAD} made ready "
            f"{both:.2f} s; host {made_ready:.2f} s, device {answered:.2f} s"
        )
    ratio, host_share, device_share = map(statistics.median, (ratios, host, device))
    print(
        f"with / without: {ratio:.2f}; of the time without, host {host_share:.2f}, device "
        f"{device_share:.2f}; the same answers: {len(expected)}"
    )


if __name__ == "__main__":
    main()
