"""What browsing is worth: the same model without a browser, and with the first result only.

    launch/browse_miniature.sh runs/browse_miniature
    python benchmarks/browsing_baselines.py --model runs/browse_miniature/bc \\
      --world runs/browse_miniature/web/made/world_test \\
      --questions runs/browse_miniature/web/made/questions_test.jsonl --limit 64

*Nothing*: the model answers at once, with no reference. *First result*: it writes a search, the
first result is opened for it, all that the browser shows of this page is its one reference, and it
answers. Without a browser an answer may be right, but nothing supports it.
Intervals are 90 % bootstrap intervals over questions.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from data_pipelines.demonstrators.truth import judge
from gophercite import records
from gophercite.browser.environment import page_of, reset, step
from gophercite.browser.recorded import RecordedWorld
from gophercite.browser.settings import Settings
from gophercite.browser.state import Reference, State
from gophercite.browsing.writer import BrowsingSettings, Writer
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.evaluation.browsed_results import resampled
from gophercite.model_folders.folder import load_model


def shown_as_reference(world: RecordedWorld, state: State) -> State:
    """The state of answering, from all that is shown of a page as its only reference."""
    page = page_of(world, state)
    references: tuple[Reference, ...] = ()
    if page.source_problem is None and state.place is not None:
        shown, document = page.shown(state.settings), page.document
        start = shown.place_of_line(state.place.first)
        last = state.place.first + state.settings.view_lines
        end = shown.place_of_line(last) if last < len(shown) else len(document.text)
        references = (
            Reference(
                document.title,
                page.host,
                document.url or "",
                document.text[start:end].rstrip(),
                document.id,
                start,
                end,
                document.sha256,
            ),
        )
    return dataclasses.replace(state, phase="answering", references=references)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--model", required=True, help="the model's folder, or its training run's")
    add("--world", required=True, help="the recorded world")
    add("--questions", required=True, help="questions with evidence, JSON lines")
    add("--limit", type=int, default=64, help="number of questions (default: 64)")
    add("--answers", type=int, default=4, help="answers of each question (default: 4)")
    add("--view-lines", type=int, default=6, help="lines that are shown (default: 6)")
    add("--results", type=int, default=3, help="results of a search (default: 3)")
    add("--prompt-tokens", type=int, default=320, help="longest prompt (default: 320)")
    add("--seed", type=int, default=0, help="seed of the sampling (default: 0)")
    flags = parser.parse_args()

    questions = list(records.read(flags.questions, records.Question))[: flags.limit]
    model = load_model(flags.model)
    sampling = SamplingSettings(max_tokens=64, free_log_probs=False)
    settings = BrowsingSettings(False, flags.prompt_tokens, sampling)
    writer = Writer(model.transformer, model.vocabulary, settings, states=16)
    rules = Settings(view_lines=flags.view_lines, results=flags.results)
    calls = iter(range(1_000_000))

    def write(world: RecordedWorld, states: Sequence[State]) -> list[str]:
        texts: list[str] = []
        for start in range(0, len(states), writer.states):
            some = states[start : start + writer.states]
            key = jax.random.fold_in(jax.random.key(flags.seed), next(calls))
            asked = writer.ask(model.params, world, some, jax.random.split(key, writer.states))
            texts += [written.text for (written,) in writer.take(asked)]
        return texts

    def nothing(world: RecordedWorld, states: Sequence[State]) -> list[State]:
        return [dataclasses.replace(state, phase="answering") for state in states]

    def first_result(world: RecordedWorld, states: Sequence[State]) -> list[State]:
        opened = []
        for state, text in zip(states, write(world, states), strict=True):
            query = text if text.startswith("Search ") else f"Search {state.question}"
            found = step(world, state, query).state
            opened.append(step(world, found, "Clicked on link 0").state)
        return [shown_as_reference(world, state) for state in opened]

    ways: dict[str, Callable[[RecordedWorld, Sequence[State]], list[State]]] = {
        "nothing": nothing,
        "first result": first_result,
    }
    print("| Reads | right, % | supported, % |\n|---|---|---|")
    with RecordedWorld(flags.world) as world:
        for name, prepare in ways.items():
            asked = [each for each in questions for _ in range(flags.answers)]
            states = [reset(each.question, rules, seed=i) for i, each in enumerate(asked)]
            states = prepare(world, states)
            ends = [
                step(world, state, text).state
                for state, text in zip(states, write(world, states), strict=True)
            ]
            verdicts = [judge(each, end) for each, end in zip(asked, ends, strict=True)]
            shares = []
            for kind in ("right", "supported"):
                values = [float(getattr(verdict, kind)) for verdict in verdicts]
                by_question = np.reshape(values, (len(questions), flags.answers)).mean(axis=1)
                shares.append(resampled(by_question).percent)
            print(f"| {name} | {' | '.join(shares)} |", flush=True)


if __name__ == "__main__":
    main()
