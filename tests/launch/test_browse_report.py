"""Reports on policies that browsed: what each figure shows, from the files that runs leave."""

import io
import itertools
import json
import math
import pathlib

import browse_report
import numpy as np
import pytest
from google_storage import BUCKET, google_storage
from PIL import Image
from test_compare import Tags

from data_pipelines.sample_world.vocabulary import VOCABULARY_FOLDER, bundled_vocabulary
from gophercite import records
from gophercite.evaluation.browsed_results import (
    Interval,
    effect_of_doubling,
    frontier,
    preferred,
    read_policy,
)
from gophercite.model_folders.description import Description, describe_model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.records import Comparison
from gophercite.reports.browsing_figures import stacked_figure
from gophercite.reports.browsing_sections import Scaled, cloning_scaling_section
from gophercite.reports.figures import png

HOSTILE = "<img src> $x_1$ | &"


def episodes(
    folder: pathlib.Path, rewards: list[list[float]], ids: str = "012", **summary: object
) -> str:
    """A folder as browse_questions.py leaves it: episodes whose reward is `rewards`.

    The validation reward is the same; those with a reward above 1 are supported.
    """
    folder.mkdir(parents=True)
    lines = [
        {
            "question_id": f"q{question}",
            "reward": reward,
            "validation_reward": reward,
            "right": reward > 0,
            "supported": reward > 1,
        }
        for question, of in zip(ids, rewards, strict=False)
        for reward in of
    ]
    records.write_json(folder / "scores.jsonl", lines)
    said = {"actions": 5.25, "invalid": 0.125, "parameters": 1_000_000, "operations": 2e9}
    (folder / "summary.json").write_text(json.dumps(said | summary))
    return str(folder)


BC = [[0.0, 2.0, 1.0, -1.0], [0.5, 0.0, -2.0, 3.0], [1.5, 1.5, 1.5, 1.5]]
RL = [[2.0, 2.0, 0.5, 1.0], [0.0, 2.5, 1.0, 0.0], [1.5, 2.5, 3.5, -0.5]]


def best(of: list[float], n: int, judged: list[float]) -> float:
    """By brute force: the mean, over all subsets, of how its best is judged."""
    found = []
    for subset in itertools.combinations(range(len(of)), n):
        top = max(of[i] for i in subset)
        found.append(np.mean([judged[i] for i in subset if of[i] == top]))
    return float(np.mean(found))


def test_preference_is_the_sigmoid_of_mean_scores_or_what_is_true(tmp_path: pathlib.Path) -> None:
    bc = read_policy("bc", pathlib.Path(episodes(tmp_path / "bc", BC)))
    # The other's questions stand in another order, and it has one more.
    others = [[9.0] * 4, *RL[::-1]]
    rl = read_policy("rl", pathlib.Path(episodes(tmp_path / "rl", others, "9210")))
    for n, m in ((1, 1), (4, 4), (2, 1)):
        difference = np.mean([best(a, n, a) - best(b, m, b) for a, b in zip(RL, BC, strict=True)])
        found = preferred(rl, n, bc, m, "validation_reward")
        assert found is not None
        assert found.mean == pytest.approx(1 / (1 + math.exp(-difference)))
        assert found.low <= found.mean <= found.high
        supported = [[float(r > 1) for r in of] for of in (*RL, *BC)]
        shares = [
            best(of, size, good)
            for of, size, good in zip([*RL, *BC], [n] * 3 + [m] * 3, supported, strict=True)
        ]
        true = preferred(rl, n, bc, m, "supported")
        assert true is not None
        # One alone is good, or half a tie.
        wanted = np.mean(
            [a * (1 - b) + (a * b + (1 - a) * (1 - b)) / 2
             for a, b in zip(shares[:3], shares[3:], strict=True)]
        )  # fmt: skip
        assert true.mean == pytest.approx(wanted)
    assert preferred(bc, 1, bc, 1, "supported") == Interval(0.5, 0.5, 0.5)
    assert preferred(rl, 1, bc, 1, "unknown") is None
    far = [
        read_policy("far", pathlib.Path(episodes(tmp_path / str(reward), [[reward]] * 3)))
        for reward in (-900.0, 900.0)
    ]
    assert preferred(far[0], 1, far[1], 1, "validation_reward") == Interval(0, 0, 0)


def test_doubling_and_the_frontier() -> None:
    worth = {(s, p): 1 + 0.25 * math.log2(s) + 0.5 * math.log2(p)
             for s in (0.25, 0.5, 1) for p in (8, 64)}  # fmt: skip
    assert effect_of_doubling(list(worth.items())) == pytest.approx([0.25, 0.5])
    one_size = [(key, value) for key, value in worth.items() if key[1] == 8]
    slope, none = effect_of_doubling(one_size)
    assert slope == pytest.approx(0.25)
    assert none is None
    assert effect_of_doubling([((1, 8), 1.0)]) == [None, None]
    assert effect_of_doubling([((1, 8), 1.0), ((2, 16), 2.0)]) == [None, None], "one or the other?"
    points = [(4.0, 2.0), (1.0, 1.0), (2.0, 0.5), (4.0, 3.0), (8.0, 3.0)]
    assert frontier(points) == [(1.0, 1.0), (4.0, 3.0)]


@pytest.fixture
def reward_model(tmp_path: pathlib.Path) -> pathlib.Path:
    """A run's folder, as far as the report reads it."""
    config = TransformerConfig(
        vocab_size=4096, d_model=8, num_layers=1, num_heads=1, head_dim=8, d_ff=16
    )
    folder = tmp_path / "rm"
    folder.mkdir()
    describe_model(folder, Description(config, {}, None), bundled_vocabulary())
    lines = [
        {"step": 1, "split": "train", "reward/accuracy": 1.0},
        {"step": 1, "split": "validation", "eval/validation/preference_accuracy": 0.75},
        {"step": 2, "split": "validation", "eval/validation/preference_accuracy": 0.625},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_all_figures_are_in_one_report(
    tmp_path: pathlib.Path, reward_model: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bc = episodes(tmp_path / "bc", BC)
    rl = episodes(tmp_path / "rl", RL, parameters=4_000_000, operations=8e9)
    rated = tmp_path / "rated.jsonl"
    votes = [{"overall": 2, "coherence": 0, "accuracy": -1}, {"overall": -1, "coherence": 1}]
    records.write(
        rated,
        [Comparison(str(n), "Why?", "t", ("a", "b"), None, ratings=({"rater": "ada", **v},))
         for n, v in enumerate(votes)],
    )  # fmt: skip
    command = [
        f"bc={bc}", f"{HOSTILE}={rl}", "--output", str(tmp_path / "out" / "report.md"),
        "--over-demonstrations", f"bc={rated}", "--over-references", f"{HOSTILE}={rated}",
        "--people-best-of", f"4={rated}", "--demonstrations", f"0.5={bc}", f"1={rl}",
        "--comparisons", f"1={reward_model}", f"0.25={reward_model}",
    ]  # fmt: skip
    assert browse_report.main(command) == 0
    capsys.readouterr()
    names = ("methods", "best_of_n", "compute", "demonstrations_scaling", "comparisons_scaling")
    names += ("over_demonstrations", "over_references")
    for name in names:
        image = Image.open(io.BytesIO((tmp_path / "out" / f"report_{name}.png").read_bytes()))
        assert len(image.convert("RGB").getcolors(1 << 24) or ()) > 20, "something is drawn"
    page = (tmp_path / "out" / "report.html").read_text()
    tags = Tags(page)
    assert tags.found.isdisjoint({"script", "b"})
    assert len(tags.links) == len(names)
    assert all(link.startswith("data:image/png;base64,") for link in tags.links)
    markdown = (tmp_path / "out" / "report.md").read_text()
    assert "<img" not in markdown
    for number in range(2, 9):
        assert number == 3 or f"(figure {number})" in markdown
    plain = " ".join(markdown.split())
    assert "| bc | 3 × 4 | 50.0 (" in plain
    assert "| 5.2 | 12.5 |" in plain
    assert "| bc | 4 | 8.00e+09 | 2.17 (" in plain, "the best of four, at four times the cost"
    assert "| 33,384 | 75.0 |" in plain
    assert "over bc, validation reward model | best of 1 | 63.2 (" in plain
    size = sum(leaf.size for leaf in _leaves(reward_model))
    assert size == 33_384
    assert "people, over its single answer | best of 4 | 50.0" in plain


def test_episodes_are_read_from_a_bucket_and_reported_there(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episodes(tmp_path / "bc", BC)
    policy = f"{BUCKET}/answers/bc"
    arguments = [f"bc={policy}", "--demonstrations", f"0.5={policy}"]
    with google_storage() as storage:
        assert browse_report.main([*arguments, "--output", f"{BUCKET}/reports/one"]) == 1
        said = f"browse_report: {policy}/summary.json: there is no such file"
        assert said in capsys.readouterr().err
        storage.upload(tmp_path / "bc", "answers/bc")
        assert browse_report.main([*arguments, "--output", f"{BUCKET}/reports/one"]) == 0
        assert {"reports/one.md", "reports/one.html"} <= storage.names()


def _leaves(folder: pathlib.Path) -> list[object]:
    import jax

    from gophercite.model_folders.folder import read_description

    return jax.tree.leaves(Transformer(read_description(folder).config).abstract())


def test_what_cannot_be_reported_is_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bc, out = episodes(tmp_path / "bc", BC), ["--output", str(tmp_path / "report")]
    (tmp_path / "rm").mkdir()
    uneven = tmp_path / "uneven"
    episodes(uneven, [[1.0], [1.0, 2.0]])
    broken = tmp_path / "broken"
    episodes(broken, BC)
    (broken / "scores.jsonl").write_text('{"id": 3}\n')
    empty, votes = tmp_path / "empty.jsonl", tmp_path / "votes.jsonl"
    empty.write_text("")
    votes.write_text('{"item": "Why?", "truthful_0": "unsure", "accurate_0": "yes"}\n')
    typo, true = tmp_path / "typo.jsonl", tmp_path / "true.jsonl"
    typo.write_text(votes.read_text() + '{"item": "Why?", "truthful_0": "Yes"}\n')
    true.write_text('{"item": "Why?", "truthful_0": "yes", "stance_0": true}\n')
    undecided = Comparison("c", "When?", "test", ("a", "b"), None)
    records.write(tmp_path / "undecided.jsonl", [undecided])
    for arguments, problem in (
        ([f"a={tmp_path / 'absent'}"], "absent"),
        ([f"a={uneven}"], "scores.jsonl: questions have from 1 to 2 episodes"),
        ([f"a={broken}"], "scores.jsonl:1: field 'question_id': is missing"),
        (["--comparisons", f"1={tmp_path / 'rm'}"], f"{tmp_path / 'rm'}: not a model folder"),
        (
            ["--comparisons", f"1={VOCABULARY_FOLDER.parent}"],
            "its metrics have no accuracy on held-out comparisons",
        ),
        (
            [f"a={bc}", "--people-best-of", f"4={tmp_path / 'undecided.jsonl'}"],
            "none of its comparisons was decided",
        ),
        ([f"a={bc}", "--people-best-of", f"4={empty}"], "empty.jsonl: holds no records"),
        (["--over-demonstrations", f"a={empty}"], "empty.jsonl: holds no records"),
        (["--over-references", f"a={empty}"], "empty.jsonl: holds no records"),
        (["--short-answers", f"a={empty}"], "empty.jsonl: holds no answers"),
        (["--truthfulqa", f"a={empty}"], "empty.jsonl: holds no votes"),
        (["--stance", f"a={empty}", f"a={empty}"], f"{empty}, {empty}: holds no votes"),
        (
            ["--truthfulqa", f"a={votes}"],
            "a: no vote has 'truthful_0' or 'informative_0', yes or no",
        ),
        (
            ["--truthfulqa", f"a={typo}"],
            f"{typo}:2: field 'truthful_0': expected one of no, yes, unsure, got the string",
        ),
        (["--stance", f"a={true}"], f"{true}:1: field 'stance_0': expected one of neither, "),
        (["--stance", f"a={votes}"], "a: no vote has 'accurate_0' or 'stance_0' on one of the"),
    ):
        status = browse_report.main([*arguments, *out])
        printed = capsys.readouterr().err
        assert status == 1
        assert problem in printed
        assert printed.count("\n") == 1
    two = [f"a={bc}", f"a={bc}"]
    for arguments, problem in (
        ([], "nothing to report"),
        (two, "NAME=FOLDER: the name 'a' is given twice"),
        (["--over-demonstrations", *two], "--over-demonstrations: the name 'a' is given twice"),
        (["--over-references", *two], "--over-references: the name 'a' is given twice"),
        (["--short-answers", *two], "--short-answers: the name 'a' is given twice"),
        ([*two[:1], "--people-best-of", "4=x", "4=y"], "--people-best-of: the name 4 is given"),
        (["--people-best-of", "4=x"], "--people-best-of needs the policy's episodes"),
        (["--people-best-of", f"x={bc}"], "'x' is not a number"),
        (["--demonstrations", f"0={bc}"], "'0' is not a share above 0"),
        (["bc"], "must be NAME=PATH"),
    ):
        with pytest.raises(SystemExit) as stopped:
            browse_report.main([*arguments, *out])
        assert stopped.value.code == 2
        assert problem in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"f1": None, "splits": None}, "field 'exact_match': is missing: expected a number"),
        ({"exact_match": True, "f1": 7, "splits": []}, "field 'f1': expected a number from 0 to 1"),
        ({"exact_match": True, "f1": 1}, "field 'splits': is missing: expected a list"),
        ({"exact_match": 0, "f1": 1, "splits": [5]}, "field 'splits[0]': expected some text"),
        ([], "expected an object"),
    ],
)
def test_short_answers_that_are_none_are_refused_by_file_and_field(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], line: object, said: str
) -> None:
    file = tmp_path / "short.jsonl"
    good = {"exact_match": True, "f1": 0.5, "splits": ["total"]}
    out = ["--output", str(tmp_path / "report")]
    for flag in ("--short-answers", "--truthfulqa"):
        file.write_text("[" * 100_000)
        assert browse_report.main([flag, f"a={file}", *out]) == 1
        assert f"{file}:1: is nested too deeply" in capsys.readouterr().err
    file.write_text(f"{json.dumps(good)}\n{json.dumps(line)}\n")
    assert browse_report.main(["--short-answers", f"a={file}", *out]) == 1
    assert capsys.readouterr().err.startswith(f"browse_report: {file}:2: {said}")


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("summary.json", "[]", "expected an object, got the list []"),
        ("summary.json", "{}", "field 'actions': is missing: expected a number"),
        ("summary.json", '{"actions": 5, "invalid": "x"}', "field 'invalid': expected a number"),
        (
            "summary.json",
            '{"actions": 5, "invalid": 0, "operations": []}',
            "field 'operations': expected a number",
        ),
        ("summary.json", '{"actions": 5,', "is not JSON"),
        ("scores.jsonl", '\n{"question_id": ["q"]}\n', "field 'question_id': expected a string"),
        ("scores.jsonl", '\n{"question_id": "q", "reward": "x"}', "field 'reward': expected a num"),
        ("scores.jsonl", '\n{"question_id": "q", "rew', "is not JSON"),
        ("scores.jsonl", "\n[]", "expected an object, got the list []"),
    ],
)
def test_results_that_are_none_are_refused_by_file_and_field(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], file: str, text: str, said: str
) -> None:
    folder = episodes(tmp_path / "bc", BC)
    (tmp_path / "bc" / file).write_text(text)
    for policy in ([f"bc={folder}"], ["--demonstrations", f"1={folder}"]):
        assert browse_report.main([*policy, "--output", str(tmp_path / "report")]) == 1
        place = f"{folder}/{file}" + ":2" * (file == "scores.jsonl")
        printed = capsys.readouterr().err
        assert printed.startswith(f"browse_report: {place}: {said}")
        assert printed.count("\n") == 1


def test_policies_without_rewards_have_no_best_of_n(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bc"
    episodes(folder, BC)
    lines = [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]
    for line in lines:
        line["reward"] = line["validation_reward"] = None
    records.write_json(folder / "scores.jsonl", lines)
    assert browse_report.main([f"bc={folder}", "--output", str(tmp_path / "report")]) == 0
    assert "Best of n" not in capsys.readouterr().out
    policy = read_policy("bc", folder)
    assert policy.sizes == [1]
    with pytest.raises(ValueError, match="have no rewards, so the best"):
        policy.best_of("supported", [2])


def test_scaling_says_what_doubling_does() -> None:
    runs = [
        Scaled(share, size, Interval(worth, worth - 0.1, worth + 0.1))
        for (share, size), worth in {
            (0.5, 10**6): 1.0, (1.0, 10**6): 1.5, (0.5, 2 * 10**6): 1.25, (1.0, 2 * 10**6): 1.75,
        }.items()
    ]  # fmt: skip
    section = cloning_scaling_section(runs)
    assert section.text == [
        "Doubling the data changes it by +0.50 (least squares).",
        "Doubling the parameters changes it by +0.25 (least squares).",
    ]
    assert [row[0] for row in section.tables[0].rows] == ["0.5", "1", "0.5", "1"]


def test_parts_of_a_whole_are_stacked() -> None:
    halves = {"neutral": {"refutes": 0.5, "affirms": 0.5}, "skeptical": {"refutes": 1.0}}
    image = np.asarray(Image.open(io.BytesIO(png(stacked_figure(halves, "answers")))))
    swapped = {name: dict(reversed(of.items())) for name, of in halves.items()}
    other = np.asarray(Image.open(io.BytesIO(png(stacked_figure(swapped, "answers")))))
    assert image.shape == other.shape
    assert (image != other).any()
