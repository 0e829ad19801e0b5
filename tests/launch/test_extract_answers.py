"""Short answers of browsed ones: from episodes to an extractor, its answers, and table 9."""

import dataclasses
import json
import pathlib

import browse_report
import extract_answers
import pytest
import train
from google_storage import BUCKET, google_storage

from data_pipelines.sample_world.vocabulary import bundled_vocabulary
from data_pipelines.short_answers import browsed_texts, completions, extraction_prompt, main
from gophercite import records
from gophercite.browser.episodes import Episode, write_episodes
from gophercite.model_folders.folder import Model, save_model
from gophercite.models.config import TransformerConfig
from gophercite.models.transformer import Transformer
from gophercite.records import Completion, Question
from gophercite.reports import overlap
from gophercite.reports.extraction import extraction_lines, extraction_section
from tests.data_pipelines.test_browsing_comparisons import episode
from tests.drawn_parameters import drawn_parameters

ASKED = {
    "a": ("Who built the lighthouse?", ("Anna", "Anna Vell"), "Anna Vell built it [1]."),
    "b": ("When did it burn?", ("the year 1901", "1901"), "It burned in 1901 [1]. So they say."),
    "c": ("Where is the town?", ("Bay",), "On a coast [1]."),
}
QUESTIONS = [Question(id, asked, "t", (), answers) for id, (asked, answers, _) in ASKED.items()]

CONFIG = TransformerConfig(
    vocab_size=2048, d_model=32, num_layers=1, num_heads=2, head_dim=16, d_ff=32,
    position="rope", dtype="float32",
)  # fmt: skip


def episodes() -> list[Episode]:
    return [
        dataclasses.replace(episode(browsed, 0), id=id, question_id=id)
        for id, (_, _, browsed) in ASKED.items()
    ]


def test_an_extractor_learns_what_the_browsed_answer_says() -> None:
    silent = dataclasses.replace(episode("[1]", 0), question_id="d")
    texts = browsed_texts([*episodes(), silent])
    assert texts == {
        "a": "Anna Vell built it.", "b": "It burned in 1901. So they say.", "c": "On a coast.",
    }  # fmt: skip
    unknown = Question("a", "Why?", "t", ())
    made = completions([*QUESTIONS, unknown, Question("e", "Why?", "t", (), ("so",))], texts)
    assert [each.completion for each in made] == ["Anna", "1901", "Bay"]
    assert made[0].prompt == (
        "Page: What was found\nAnna Vell built it.\n\nQuestion: Who built the lighthouse?\nAnswer:"
    )
    alone = completions(QUESTIONS, texts, browsing=False)
    assert [each.completion for each in alone] == ["Anna", "1901", "Bay"], "the same is learnt"
    assert alone[0].prompt == "Question: Who built the lighthouse?\nAnswer:"
    assert extraction_prompt("Why?", None) == extraction_prompt("Why?", "")


def test_exact_match_by_what_was_in_the_training_data() -> None:
    predictions = {"a": " the ANNA vell!", "b": "In 1901", "d": "so"}
    seen = [Question("t", "who built the lighthouse", "t", (), ("1901",))]
    lines = extraction_lines([*QUESTIONS, Question("d", "Why?", "t", ())], predictions, seen)
    assert [line["question_id"] for line in lines] == ["a", "b", "c"]
    assert [line["exact_match"] for line in lines] == [True, False, False]
    assert lines[1]["f1"] == pytest.approx(2 / 3)
    assert lines[0]["splits"] == [overlap.TOTAL, overlap.QUESTION]
    assert overlap.ANSWER_ONLY in lines[1]["splits"]
    assert lines[2]["splits"] == [overlap.TOTAL, overlap.NO_QUESTION, overlap.NONE]
    (table,) = extraction_section({"bc": lines, "alone": lines[:1]}).tables
    assert list(table.headings)[2] == "all %"
    assert [cell[:5].strip() for cell in table.rows[0][:4]] == ["bc", "3", "33.3", "100.0"]
    assert table.rows[1][4] == "–", "it was asked nothing of this kind"
    (plain,) = extraction_section({"bc": extraction_lines(QUESTIONS, {})}).tables
    assert list(plain.headings) == ["system", "questions", "all %", "F1 %"]
    assert plain.rows[0][2].startswith("0.0 ("), "what is missing is wrong"


def test_from_episodes_to_an_extractor_and_its_score(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], two_devices: None
) -> None:
    questions, browsed = tmp_path / "questions.jsonl", tmp_path / "episodes.jsonl.gz"
    other = Question("z", "Who wound the clock?", "t", (), ("Tom",))
    records.write(tmp_path / "train.jsonl", [other, *QUESTIONS])
    records.write(questions, QUESTIONS)
    wound = dataclasses.replace(episode("Tom wound it [1].", 0), id="z", question_id="z")
    write_episodes(browsed, [wound, *episodes()])
    data = tmp_path / "data"
    learn = [str(tmp_path / "train.jsonl"), str(browsed), "--out", str(data), "--held-out"]
    assert main([*learn, "4"]) == 1
    assert "--held-out 4 leaves none to learn" in capsys.readouterr().err
    assert main([*learn, "1"]) == 0
    (held_out,) = records.read(data / "completions_validation.jsonl", Completion)
    assert held_out.completion == "Tom"
    assert len(list(records.read(data / "completions_train.jsonl", Completion))) == 3
    transformer = Transformer(CONFIG)
    params = drawn_parameters(transformer)
    save_model(tmp_path / "start", Model(transformer, params, bundled_vocabulary(), {}))
    bindings = {
        "MODEL_DIR": repr(str(tmp_path / "extractor")),
        "INITIAL_CHECKPOINT": repr(str(tmp_path / "start")),
        "DEMONSTRATIONS": repr(str(data)),
        "TRAIN_STEPS": "24", "BATCH_SIZE": "8", "LENGTH": "64",
        "constant_schedule.learning_rate": "2e-2", "SupervisedLearner.ema_decay": "0.5",
        "train.save_every": "24", "train.evaluate_every": "24",
    }  # fmt: skip
    flags = [f"--gin.{name}={value}" for name, value in bindings.items()]
    assert train.main(["--gin_file=gin_configs/extractor_webgpt.gin", *flags]) == 0
    ask = ["--questions", str(questions), "--train", str(questions), "--max-tokens", "8"]
    ask += ["--together", "2"]
    both = {}
    for name, model, read in (
        ("bc", "extractor", ["--episodes", str(browsed)]), ("untrained", "start", [])
    ):  # fmt: skip
        out = tmp_path / f"{name}.jsonl"
        command = [*ask, *read, "--model", str(tmp_path / model), "--output", str(out)]
        assert extract_answers.main(command) == 0
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        both[name] = sum(line["exact_match"] for line in lines)
        assert [line["browsed"] is not None for line in lines] == [bool(read)] * 3
    assert both == {"bc": 3, "untrained": 0}
    capsys.readouterr()
    given = [f"{name}={tmp_path / name}.jsonl" for name in both]
    assert browse_report.main(
        ["--short-answers", *given, "--output", str(tmp_path / "report")]
    ) == 0  # fmt: skip
    printed = " ".join(capsys.readouterr().out.split())
    assert "Short answers (table 9)" in printed
    assert "| bc | 3 | 100.0 (" in printed
    assert "| untrained | 3 | 0.0 (" in printed


def test_episodes_of_other_questions_are_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every question would be answered without a page, and earlier answers would be lost."""
    asked, browsed = tmp_path / "questions.jsonl", tmp_path / "episodes.jsonl"
    records.write(asked, [Question("q", "Who?", "test", (), ("Tom",))])
    browsed.write_text("")
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    command = ["--model", str(tmp_path), "--questions", str(asked), "--output", str(out)]
    assert extract_answers.main([*command, "--episodes", str(browsed)]) == 1
    said = f"{browsed}: no question of {asked} is answered there"
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert out.read_text() == "mine"


def test_all_files_may_be_in_a_bucket(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transformer = Transformer(CONFIG)
    params = drawn_parameters(transformer)
    save_model(tmp_path / "model", Model(transformer, params, bundled_vocabulary(), {}))
    monkeypatch.chdir(tmp_path)
    common = ["--model", "model", "--max-tokens", "8", "--together", "2"]
    with google_storage() as storage:
        records.write(f"{BUCKET}/questions.jsonl", QUESTIONS)
        write_episodes(f"{BUCKET}/episodes.jsonl.gz", episodes())
        command = [*common, "--questions", f"{BUCKET}/questions.jsonl"]
        command += ["--train", f"{BUCKET}/questions.jsonl"]
        command += ["--episodes", f"{BUCKET}/episodes.jsonl.gz"]
        assert extract_answers.main([*command, "--output", f"{BUCKET}/out.jsonl"]) == 0
        lines = [json.loads(line) for line in storage.read("out.jsonl").splitlines()]
        assert all(line["browsed"] is not None for line in lines)
        assert len(lines) == 3
        capsys.readouterr()
        command += ["--output", "https://host.example/out.jsonl"]
        assert extract_answers.main(command) == 1
    said = capsys.readouterr().err
    assert said.startswith("extract_answers: https://host.example/out.jsonl: is neither a path")
    assert said.count("\n") == 1, "before anything was read"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_cannot_be_extracted_is_one_line(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records.write(tmp_path / "q.jsonl", [Question("d", "Why?", "t", ())])
    common = ["--model", str(tmp_path), "--output", str(tmp_path / "out.jsonl")]
    assert extract_answers.main([*common, "--questions", str(tmp_path / "q.jsonl")]) == 1
    assert "no question has accepted answers" in capsys.readouterr().err
    asked = tmp_path / "asked.jsonl"
    records.write(asked, QUESTIONS)
    (tmp_path / "train.jsonl").write_text("{}\n")
    train = ["--train", str(asked), str(tmp_path / "train.jsonl")]
    assert extract_answers.main([*common, "--questions", str(asked), *train]) == 1
    said = capsys.readouterr().err
    assert f"{tmp_path}/train.jsonl:1: " in said
    assert f"extract_answers: {tmp_path}/train.jsonl: has no question that can be used" in said
    (tmp_path / "link").symlink_to(tmp_path)
    others = ["--questions", str(tmp_path / "q.jsonl")]
    for inputs in (["--questions", str(asked)], [*others, "--train", str(asked)]):
        for output in (asked, tmp_path / "link" / "asked.jsonl"):
            command = ["--model", str(tmp_path), *inputs, "--output", str(output)]
            assert extract_answers.main(command) == 1
            assert f"{output} would overwrite {asked}, which is an input" in capsys.readouterr().err
    (tmp_path / "lines.jsonl").write_text('{"question_id": "q"}\n')
    report = ["--output", str(tmp_path / "r"), "--short-answers", f"a={tmp_path / 'lines.jsonl'}"]
    assert browse_report.main(report) == 1
    assert "lines.jsonl:1: field 'exact_match': is missing" in capsys.readouterr().err
