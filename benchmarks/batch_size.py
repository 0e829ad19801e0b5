"""What answering several questions at a time saves.

    launch/quickstart.sh
    python benchmarks/batch_size.py [--model runs/quickstart] [--questions FILE] [--rounds 3]

Questions are asked of their own first page under the quote constraint, 1, 4 and 16 answers to each,
in batches of several sizes, turn by turn in one run after a turn that compiles. Times are of those
of batches of one. The answers must be the same.
"""

import argparse
import functools
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gophercite.answering.answerer import Answerer  # noqa: E402
from gophercite.answering.many_questions import Asked, answer_each  # noqa: E402
from gophercite.answering.pages import FoundPages  # noqa: E402
from gophercite.answering.settings import AnsweringSettings  # noqa: E402
from gophercite.decoding.sampling_settings import SamplingSettings  # noqa: E402
from gophercite.documents import Document  # noqa: E402
from gophercite.model_folders.folder import load_model  # noqa: E402
from gophercite.records import Question, read  # noqa: E402
from gophercite.retrieval.contexts import SearchResult  # noqa: E402


def asked(question: Question, seed: int) -> Asked:
    """A question with its first page."""
    page = question.documents[0]
    assert isinstance(page, Document)
    return Asked(question.question, lambda: FoundPages((SearchResult(page),)), seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="runs/quickstart", metavar="FOLDER")
    parser.add_argument(
        "--questions",
        type=pathlib.Path,
        default="runs/quickstart/sample_world/questions_test.jsonl",
        metavar="FILE",
    )
    parser.add_argument("--limit", type=int, default=64, help="questions (default: 64)")
    parser.add_argument("--samples", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--sizes", type=int, nargs="*", default=[1, 4, 16])
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=3)
    flags = parser.parse_args()
    model = load_model(flags.model)
    questions = list(read(flags.questions, Question))[: flags.limit]
    asks = [asked(question, seed) for seed, question in enumerate(questions)]
    print(f"{len(asks)} questions; time / one at a time, and answers that are the same")
    print(f"| answers to each | {' | '.join(f'{size} at a time' for size in flags.sizes)} |")
    print(f"|---|{'---|' * len(flags.sizes)}")
    for samples in flags.samples:
        settings = AnsweringSettings(samples=samples, sampling=SamplingSettings(flags.max_tokens))
        answer = functools.partial(answer_each, Answerer(model, settings), asks)
        seconds: dict[int, list[float]] = {size: [] for size in flags.sizes}
        texts: dict[int, list[str | None]] = {}
        for turn in range(flags.rounds + 1):
            for size in flags.sizes:
                begun = time.perf_counter()
                texts[size] = [each.text for each in answer(batch_size=size)]
                if turn:
                    seconds[size].append(time.perf_counter() - begun)
        first = flags.sizes[0]
        cells = []
        for size in flags.sizes:
            ratio = statistics.median(
                this / base for this, base in zip(seconds[size], seconds[first], strict=True)
            )
            same = sum(a == b for a, b in zip(texts[size], texts[first], strict=True))
            cells.append(f"{ratio:.2f}, {same}")
        print(f"| {samples} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
