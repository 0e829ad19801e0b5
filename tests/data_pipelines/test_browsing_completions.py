"""What behaviour cloning and reward models of long answers read, token by token."""

import functools
import pathlib

import numpy as np
import pytest
from sample_webs import SCREEN, web

from data_pipelines import tasks
from data_pipelines.browsing_completions import completions, is_held_out, main
from data_pipelines.inputs import Input
from data_pipelines.sample_web.making import make_split
from gophercite import records
from gophercite.browser.encoding import encode_judged_response, encode_state, encode_written
from gophercite.browser.environment import replay, reset
from gophercite.browser.episodes import Episode, examples, read_episodes
from gophercite.browser.observation import answering_prompt
from gophercite.browser.recorded import RecordedWorld
from gophercite.model_folders.folder import read_vocabulary
from gophercite.records import Comparison, Extract, LongAnswer

MODEL = pathlib.Path(__file__).parents[2] / "data_pipelines/sample_world/model"
VOCABULARY = read_vocabulary(MODEL)
PROMPT_TOKENS = 256


@functools.cache
def demonstrated(folder: pathlib.Path) -> list[Episode]:
    make_split(
        folder, "train", seed=0, pages=60, questions=24, demonstrated=24, steps=(1, 1),
        settings=SCREEN, progress=lambda *_: lambda *_: None,
    )  # fmt: skip
    return list(read_episodes(folder / "demonstrations_train.jsonl.gz", strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("web")


def test_only_what_was_written_is_learnt_behind_just_what_the_browser_shows(
    folder: pathlib.Path,
) -> None:
    episodes = demonstrated(folder)
    arguments = [str(folder / "world_train"), str(folder / "demonstrations_train.jsonl.gz")]
    options = ["--vocabulary", str(MODEL / "vocabulary"), "--prompt-tokens", str(PROMPT_TOKENS)]
    assert main([*arguments, str(folder / "data"), *options]) == 0
    path = folder / "data/completions_train.jsonl"
    name = tasks.add_completions("browsing_test", {"train": path}, VOCABULARY)
    input = Input(name, "train", PROMPT_TOKENS + 128, 1, 0, pack=False, shuffle=False)
    with RecordedWorld(folder / "world_train") as world:
        expected = [each for one in episodes for each in examples(world, one)]
    assert len(expected) > 100
    rows = list(input.one_pass())
    assert len(rows) == len(expected)
    for batch, each in zip(rows, expected, strict=True):
        learnt = batch["weights"][0] > 0
        assert batch["targets"][0][learnt].tolist() == encode_written(VOCABULARY, each.action)
        assert set(batch["weights"][0].tolist()) <= {0.0, 1.0}
        prompt = encode_state(VOCABULARY, each.state, PROMPT_TOKENS)
        assert batch["tokens"][0][: len(prompt)].tolist() == prompt
        assert np.flatnonzero(learnt)[0] == len(prompt) - 1
        assert len(prompt) <= PROMPT_TOKENS
    assert {each.state.phase for each in expected} == {"browsing", "answering"}


def test_only_supported_answers_are_learnt_if_so_wished(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episodes = demonstrated(folder)
    proved = {each.id for each in episodes if each.supported}
    assert 0 < len(proved) < len(episodes)
    arguments = [str(folder / "world_train"), str(folder / "demonstrations_train.jsonl.gz")]
    options = ["--vocabulary", str(MODEL), "--prompt-tokens", str(PROMPT_TOKENS), "--supported"]
    assert main([*arguments, str(folder / "proved"), *options]) == 0
    left = f"{len(episodes) - len(proved)} without a supported answer"
    assert left in capsys.readouterr().out
    learnt = records.read(folder / "proved/completions_train.jsonl", records.Completion)
    assert {each.id.rpartition("/")[0] for each in learnt} == proved


def test_held_out_questions_are_whole_and_as_many_as_asked_for(folder: pathlib.Path) -> None:
    episodes = demonstrated(folder)
    held_out = [one for one in episodes if is_held_out(one, 0.3)]
    assert 0 < len(held_out) < len(episodes)
    assert not any(is_held_out(one, 0.0) for one in episodes)
    arguments = [str(folder / "world_train"), str(folder / "demonstrations_train.jsonl.gz")]
    options = ["--vocabulary", str(MODEL / "vocabulary"), "--held-out", "0.3"]
    assert main([*arguments, str(folder / "split"), *options]) == 0
    ids = {
        split: {
            each.id.split("/")[0]
            for each in records.read(
                folder / f"split/completions_{split}.jsonl", records.Completion
            )
        }
        for split in ("train", "validation")
    }
    assert ids["validation"] == {one.id for one in held_out}
    assert not ids["validation"] & ids["train"]
    # What an earlier run held out, one that holds out nothing learns.
    assert main([*arguments, str(folder / "split"), *options[:2]]) == 0
    assert not (folder / "split/completions_validation.jsonl").exists()


def test_a_share_is_part_of_a_larger_one_and_what_is_held_out_stays(folder: pathlib.Path) -> None:
    demonstrated(folder)
    arguments = [str(folder / "world_train"), str(folder / "demonstrations_train.jsonl.gz")]
    options = ["--vocabulary", str(MODEL / "vocabulary"), "--held-out", "0.3", "--share"]
    learnt, held_out = [], []
    for share in ("0.3", "0.6", "1"):
        assert main([*arguments, str(folder / share), *options, share]) == 0
        for split, into in (("train", learnt), ("validation", held_out)):
            path = folder / share / f"completions_{split}.jsonl"
            into.append({each.id for each in records.read(path, records.Completion)})
    assert set() < learnt[0] < learnt[1] < learnt[2]
    assert held_out[0] == held_out[1] == held_out[2] != set()
    for share in ("0", "1.1", "nan"):
        with pytest.raises(SystemExit):
            main([*arguments, str(folder / "refused"), *options, share])


def test_another_world_is_refused_by_the_episode_s_name(
    folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = demonstrated(folder)[0]
    with web(seed=3, pages=40) as (_, world), pytest.raises(ValueError, match=first.id):
        list(completions(world, first, VOCABULARY, PROMPT_TOKENS))
    gone = tmp_path / "none.jsonl"
    gone.write_text("{}\n")
    arguments = [str(folder / "world_train"), str(gone), str(tmp_path)]
    assert main([*arguments, "--vocabulary", str(MODEL / "vocabulary")]) == 1
    bad, problem = capsys.readouterr().err.splitlines()
    assert f"{gone}:1: " in bad
    assert "has no episode to learn from" in problem


def test_a_judge_reads_the_answering_prompt_and_the_answer(folder: pathlib.Path) -> None:
    """As WebGPT's released comparisons have it: truncated prefix, then the completion."""
    episode = next(one for one in demonstrated(folder) if one.end.answer)
    with RecordedWorld(folder / "world_train") as world:
        before = replay(world, episode.start, [each.action for each in episode.steps[:-1]])
    assert before.phase == "answering"
    answer = LongAnswer(
        str(episode.end.answer),
        tuple(Extract(r.title, r.extract, r.domain, r.url) for r in before.references),
    )
    question = episode.start.question
    read = encode_judged_response(VOCABULARY, question, answer)
    prompt = encode_state(VOCABULARY, before, 4096)
    assert VOCABULARY.decode(prompt) == answering_prompt(before)
    assert read == [*prompt, *encode_written(VOCABULARY, answer.answer)]
    shorter = encode_judged_response(VOCABULARY, question, answer, len(prompt) - 10)
    written = encode_written(VOCABULARY, answer.answer)
    assert shorter[-len(written) :] == written
    assert len(shorter) <= len(read) - 10
    assert "…" in VOCABULARY.decode(shorter)
    comparison = Comparison("c", question, "s", (answer, "No."), 0.0)
    records.write(folder / "comparisons.jsonl", [comparison])
    assert list(records.read(folder / "comparisons.jsonl", Comparison, strict=True)) == [comparison]
    assert encode_written(VOCABULARY, "x") != encode_written(VOCABULARY, "x ")
    assert reset(question).question == question
