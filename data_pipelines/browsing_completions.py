"""Turns demonstrations into data for behaviour cloning: prompts with a command, or the answer.

    python -m data_pipelines.browsing_completions WORLD EPISODES.jsonl.gz OUT --vocabulary FOLDER
    python -m data_pipelines.browsing_completions webs/small/world_train demonstrations.jsonl.gz \\
        data --vocabulary runs/model --prompt-tokens 2048 --held-out 0.04

OUT gets `completions_train.jsonl` and, with --held-out, `completions_validation.jsonl` with that
share of the questions (4 % in WebGPT, section 3.2). Each episode is replayed in WORLD, and its
prompts are as long as --prompt-tokens allows: use the value with which the model will be run.
Unless --faults is given, invalid actions and the mistakes that demonstrators marked are left out.
With --supported, episodes whose answer is not supported by what it cites are left out, too.

--share trains only on the demonstrations of that share of the questions, as in WebGPT's scaling of
behaviour cloning (section 5.2). A larger share includes all smaller ones. The held-out questions
stay the same.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterator, Sequence

from data_pipelines.disk_paths import path_on_disk
from data_pipelines.question_sets import in_share
from gophercite import records
from gophercite.browser.encoding import text_of_state
from gophercite.browser.episodes import Episode, examples, read_episodes
from gophercite.browser.recorded import RecordedWorld
from gophercite.browser.worlds import World
from gophercite.records import Completion
from gophercite.storage.json_fields import in_one_line
from gophercite.storage.overwriting import refuse_overwriting
from gophercite.text.counting import counted
from gophercite.vocabularies import Vocabulary, load_vocabulary


def completions(
    world: World,
    episode: Episode,
    vocabulary: Vocabulary,
    prompt_tokens: int,
    *,
    faults: bool = False,
) -> Iterator[Completion]:
    """Yields the prompts and completions of an episode, step by step.

    Args:
      world: the world in which it was recorded.
      episode: the recorded episode.
      vocabulary: vocabulary of the model that will be trained.
      prompt_tokens: maximum tokens of a prompt.
      faults: whether to include invalid actions and marked mistakes.

    Raises:
      ValueError: the world is a different one, or no prompt fits.
    """
    for number, each in enumerate(examples(world, episode, faults=faults)):
        prompt = text_of_state(vocabulary, each.state, prompt_tokens)
        if each.action.strip():
            yield Completion(f"{episode.id}/{number}", prompt, each.action)


def is_held_out(episode: Episode, share: float) -> bool:
    """Whether an episode is held out.

    This depends only on the question, so all demonstrations of a question are on the same side,
    whatever else the file contains.

    Args:
      episode: any episode.
      share: share of the questions that are held out.
    """
    digest = hashlib.sha256(episode.question_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status."""
    options = _parse(arguments)
    report = records.Report()
    learnt: dict[str, list[Completion]] = {"train": [], "validation": []}
    episodes = refused = unsupported = 0
    written = {split: options.out / f"completions_{split}.jsonl" for split in learnt}
    try:
        refuse_overwriting(written.values(), [options.episodes])
        vocabulary = load_vocabulary(options.vocabulary)
        with RecordedWorld(options.world) as world:
            for episode in read_episodes(options.episodes, report=report):
                if options.supported and not episode.supported:
                    unsupported += 1
                    continue
                split = "validation" if is_held_out(episode, options.held_out) else "train"
                if split == "train" and not in_share(episode.question_id, options.share):
                    continue
                try:
                    of_split = list(
                        completions(
                            world, episode, vocabulary, options.prompt_tokens, faults=options.faults
                        )
                    )
                except ValueError as error:
                    refused += 1
                    print(f"browsing_completions: {error}", file=sys.stderr)
                    continue
                learnt[split] += of_split
                episodes += 1
        for problem in report.errors:
            print(problem, file=sys.stderr)
        if not learnt["train"]:
            raise ValueError(f"{options.episodes}: has no episode to learn from")
        options.out.mkdir(parents=True, exist_ok=True)
        for split, of_split in learnt.items():
            if of_split or (split == "validation" and options.held_out):
                records.write(written[split], of_split)
            else:  # one of an earlier run may have what is learnt from now
                written[split].unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        print(f"browsing_completions: {in_one_line(error)}", file=sys.stderr)
        return 1
    print(
        f"{counted(episodes, 'episode')}; "
        f"{counted(len(learnt['train']), 'completion')} to learn and "
        f"{len(learnt['validation'])} held out; {counted(report.skipped, 'bad line')}, "
        f"{counted(refused, 'episode')} of "
        "another world" + (f", {unsupported} without a supported answer" if unsupported else "")
    )
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m data_pipelines.browsing_completions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("world", metavar="WORLD", help="folder of the recorded world")
    add("episodes", type=path_on_disk, metavar="EPISODES", help="episodes, .jsonl or .jsonl.gz")
    add("out", type=path_on_disk, metavar="OUT", help="folder to write to")
    add("--vocabulary", required=True, metavar="DIR", help="folder of a model or vocabulary")
    add("--prompt-tokens", type=int, default=2048, help="maximum tokens of a prompt (default 2048)")
    add(
        "--held-out",
        type=float,
        default=0.0,
        help="share of the questions to hold out for validation (default 0)",
    )
    add(
        "--share",
        type=float,
        default=1.0,
        help="share of the remaining questions to learn from (default 1)",
    )
    add("--faults", action="store_true", help="also learn invalid actions and mistakes")
    add("--supported", action="store_true", help="leave out episodes whose answer is not supported")
    options = parser.parse_args(arguments)
    if options.prompt_tokens < 1:
        parser.error(f"--prompt-tokens is {options.prompt_tokens}: must be at least 1")
    if not 0 <= options.held_out < 1:
        parser.error(f"--held-out is {options.held_out}: must be at least 0 and below 1")
    if not 0 < options.share <= 1:
        parser.error(f"--share is {options.share}: must be above 0 and at most 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
