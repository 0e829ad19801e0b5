"""Literals in the place of parts that gin builds are refused before anything is loaded."""

import pathlib

import gin_files
import pytest
import setting_checks
import setting_names
from setting_kinds import wanted_instead

CONFIGS = gin_files.ROOT / "gin_configs"
FILES = ["gin_configs/sft_sample_world.gin"]


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("Run.input", "None", "@…() that yields TaskInput or @BrowsingInput()"),
        ("Run.transformer", "None", "@Transformer()"),
        ("Run.learner", "'adam'", "@…() that yields Learner"),
        ("Run.settings", "3", "@…() that yields TrainSettings"),
        ("Run.answers", "5", "@Answers() or None"),
        ("Transformer.config", "None", "@TransformerConfig()"),
        ("train.early_stopping", "3", "@EarlyStopping() or None"),
        ("SupervisedLearner.optimizer", "None", "@…() that yields Optimizer"),
        ("SupervisedLearner.schedule", "3", "@…() that yields Schedule"),
        ("SupervisedLearner.frozen_parts", "5", "a tuple"),
        ("SupervisedLearner.frozen_parts", "'bias'", "a tuple"),
        ("Run.evaluations", "3", "a dictionary"),
        ("TransformerConfig.window", "'x'", "a whole number or a tuple or None"),
    ],
)
def test_a_literal_is_no_part(name: str, value: str, wanted: str) -> None:
    """Parts of base classes, too; what is allowed is named as one would type it."""
    bindings = {"MODEL_DIR": "a", name: value}
    with pytest.raises(gin_files.ConfigurationError) as refused:
        setting_checks.check(FILES, bindings)
    assert str(refused.value) == f"--gin.{name} = {value}: must be {wanted} ({name})"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Run.answers", "None"),
        ("Run.evaluations", "{}"),
        ("train.early_stopping", "None"),
        ("SupervisedLearner.frozen_parts", "['bias']"),
        ("TransformerConfig.window", "(4, None)"),
        ("Transformer.config", "@llama()"),
    ],
)
def test_what_a_part_may_be_is_accepted(name: str, value: str) -> None:
    setting_checks.check(FILES, {"MODEL_DIR": "a", name: value})


def test_a_macro_s_line_is_named(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "own.gin"
    file.write_text("include 'gin_configs/sft_sample_world.gin'\nPART = 3\nRun.answers = %PART\n")
    with pytest.raises(gin_files.ConfigurationError) as refused:
        setting_checks.check([str(file)], {"MODEL_DIR": "a"})
    wanted = f"PART in {file}:2 = 3: must be @Answers() or None (Run.answers)"
    assert str(refused.value) == wanted


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("Run.learner", "@adam()", "@…() that yields Learner"),
        ("Run.initialisation", "@partitioner()", "@…() that yields Initialisation"),
        ("Run.input", "@Transformer()", "@…() that yields TaskInput or @BrowsingInput()"),
        ("Run.settings", "@Transformer()", "@…() that yields TrainSettings"),
        ("Run.answers", "@train()", "@Answers() or None"),
        ("Transformer.config", "@LoRA()", "@TransformerConfig()"),
        ("SupervisedLearner.schedule", "@adam()", "@…() that yields Schedule"),
        ("Input.length", "@adam()", "a whole number"),
        ("Run.learner", "@SupervisedLearner", "@SupervisedLearner(), with parentheses"),
        (
            "SupervisedLearner.schedule",
            "@constant_schedule",
            "@constant_schedule(), with parentheses",
        ),
        (
            "Run.evaluations",
            "{'validation': @adam()}",
            "a dictionary, each value @…() that yields TaskInput or @BrowsingInput()",
        ),
        ("train.early_stopping", "[@EarlyStopping()]", "@EarlyStopping() or None"),
        ("EarlyStopping.limits", "{'eval/a/kl': 'ten'}", "a dictionary, each value a number"),
    ],
)
def test_a_part_of_another_kind_is_refused(name: str, value: str, wanted: str) -> None:
    """A class, what inherits from it, or what has its protocol's methods; built, with brackets."""
    with pytest.raises(gin_files.ConfigurationError) as refused:
        setting_checks.check(FILES, {"MODEL_DIR": "a", name: value})
    assert str(refused.value) == f"--gin.{name} = {value}: must be {wanted} ({name})"


def test_the_parts_of_every_run_are_of_the_right_kinds() -> None:
    runs = [file for file in CONFIGS.glob("*.gin") if "launch/train.py" in file.read_text("utf-8")]
    assert len(runs) > 30
    for file in runs:
        with setting_names.names_only() as settings:
            unset: list[str] = []
            gin_files.load([str(file)], {}, unset=unset)
            for typed, name, parameter, value in setting_checks._values():
                wanted = wanted_instead(value, parameter, settings[name], settings)
                assert wanted is None or value is None, (file.name, typed, wanted)
