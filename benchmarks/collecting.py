"""Collecting experience in the browser against sampling alone.

    launch/browse_miniature.sh runs/browse_miniature
    python benchmarks/collecting.py runs/browse_miniature [--rollouts 5]

Its cloned policy plays rollouts in its training web, as PPO collects them: prompts are written and
encoded, commands are executed, and answers are scored. Each rollout is followed by sampling alone:
the same batches again, of the same prompts and keys, whose texts have the same lengths, with no
environment, and by scoring alone: the same answers again. What collecting takes beyond them is the
environments' and the host's.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gophercite import records
from gophercite.browser.recorded import RecordedWorld
from gophercite.browser.settings import Settings
from gophercite.browsing import writer
from gophercite.browsing.collecting import Asked, BrowsingCollector, Judge, Rollout
from gophercite.browsing.playing import Player
from gophercite.browsing.writer import BrowsingSettings
from gophercite.decoding.decoded import Decoded
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.model_folders.folder import load_model, load_reward_model
from gophercite.models.parameters import REWARD_MODEL

ENVIRONMENTS, STEPS, EXTRA_ANSWERS = 16, 24, 1  # as in gin_configs/ppo_sample_web.gin


class RecordedSampler:
    """Samples as the original does, and remembers with what."""

    def __init__(self) -> None:
        self.original = writer.decode
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any) -> Decoded:
        self.calls.append(arguments)
        return self.original(*arguments)

    def again(self) -> None:
        """Samples everything once more, and waits for it."""
        made = [self.original(*arguments) for arguments in self.calls]
        jax.block_until_ready(made)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="MODEL_DIR of launch/browse_miniature.sh")
    parser.add_argument("--rollouts", type=int, default=5, help="rollouts to measure (default: 5)")
    parser.add_argument("--constrained", action="store_true", help="only valid actions")
    parser.add_argument("--environments", type=int, default=ENVIRONMENTS)
    parser.add_argument("--prompt-tokens", type=int, default=320)
    parser.add_argument("--view-lines", type=int, default=6)
    parser.add_argument("--results", type=int, default=3)
    flags = parser.parse_args()

    policy = load_model(str(flags.folder / "bc"))
    reward = load_reward_model(str(flags.folder / "rm"))
    settings = BrowsingSettings(
        flags.constrained,
        flags.prompt_tokens,
        SamplingSettings(max_tokens=64, free_log_probs=False),
    )
    rollout = Rollout(flags.environments, STEPS, extra_answers=EXTRA_ANSWERS)
    player = Player(
        policy.transformer,
        policy.vocabulary,
        settings,
        together=max(1, rollout.environments // 2),
        answers=1 + rollout.extra_answers,
        keep_allowed=flags.constrained,
    )
    asked = [
        Asked(each.id, each.question)
        for each in records.read(str(flags.folder / "sets/questions_rl.jsonl"), records.Question)
    ]
    judge = Judge(reward.transformer, reward.vocabulary, 248)
    collector = BrowsingCollector(
        RecordedWorld(str(flags.folder / "web/made/world_train")),
        asked,
        Settings(actions=(8, 16), view_lines=flags.view_lines, results=flags.results),
        player,
        rollout,
        judge,
    )
    params = {**policy.params, REWARD_MODEL: reward.params}
    sampler = RecordedSampler()
    writer.decode = sampler  # type: ignore[assignment]
    judged: list[Any] = []
    scores = Judge.scores

    def remembered(self: Judge, params: Any, states: Any) -> list[float]:
        judged[:] = states
        return scores(self, params, states)

    Judge.scores = remembered  # type: ignore[method-assign]

    table = []
    for number in range(flags.rollouts + 2):  # two to compile everything
        sampler.calls.clear()
        begun = time.perf_counter()
        made = collector.collect(params, None, jax.random.key(number), lambda: False)
        collected = time.perf_counter() - begun
        assert made is not None
        begun = time.perf_counter()
        sampler.again()
        sampled = time.perf_counter() - begun
        begun = time.perf_counter()
        scores(judge, params[REWARD_MODEL], judged)
        scored = time.perf_counter() - begun
        tokens = int(np.sum(made.experience["response_lengths"]))
        if number >= 2:
            table.append((collected, sampled, scored, tokens))
            print(
                f"rollout {number - 1}: {tokens} tokens; collecting {collected:.2f} s, sampling "
                f"alone {sampled:.2f} s, scoring alone {scored:.2f} s",
                flush=True,
            )
    speeds = [tokens / sampled for _, sampled, _, tokens in table]
    beyond = [collected / (sampled + scored) for collected, sampled, scored, _ in table]
    print(f"\nsampling alone: {statistics.median(speeds):.0f} tokens/s")
    print(f"collecting: {statistics.median(t / c for c, _, _, t in table):.0f} tokens/s")
    print(f"collecting / (sampling + scoring): {statistics.median(beyond):.3f}")


if __name__ == "__main__":
    main()
