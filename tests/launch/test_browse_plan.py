"""The stages of learning to browse: what they run exists, and was made before."""

import pathlib
from collections.abc import Iterator

import browse_miniature
import browse_questions
import browse_report
import pytest
import setting_checks
from browse_plan import Plan
from browse_scaling import SHARES, report_flags, scaling_stages
from stages import Stage
from test_miniature import bindings

from data_pipelines import browsing_comparisons, browsing_completions
from data_pipelines.sample_web import __main__ as sample_web

# Those whose flags can be read without running them.
_PROGRAMS = {
    "launch/browse_questions.py": browse_questions,
    "launch/browse_report.py": browse_report,
    "data_pipelines.sample_web": sample_web,
    "data_pipelines.browsing_completions": browsing_completions,
    "data_pipelines.browsing_comparisons": browsing_comparisons,
}


def stages(folder: pathlib.Path) -> tuple[Plan, list[Stage]]:
    plan = Plan(folder, seed=3, scale=0.01)
    return plan, [*plan.stages(), *scaling_stages(plan)]


def own_paths(command: list[str], root: pathlib.Path) -> Iterator[pathlib.Path]:
    """The paths under a folder that a command names."""
    for word in command:
        if (at := word.find(str(root))) >= 0:
            yield pathlib.Path(word[at:].strip('"'))


def test_every_stage_s_commands_are_accepted(tmp_path: pathlib.Path) -> None:
    plan, found = stages(tmp_path)
    report = [*plan.report_command(), *report_flags(plan)]
    commands = [list(command) for stage in found for command in stage.commands] + [report]
    trained, parsed = 0, set()
    for program, *flags in commands:
        if program == "launch/train.py":
            files, settings = bindings(flags)
            setting_checks.check(files, settings)
            assert settings["SEED"] == "3"
            trained += 1
        else:
            name, *options = flags if program == "-m" else (program, *flags)
            if name in _PROGRAMS:
                _PROGRAMS[name]._parse(options)
                parsed.add(name)
    assert parsed == _PROGRAMS.keys()
    assert trained == 4 + 1 + 2 * (2 * len(SHARES) - 1)


def test_every_stage_uses_what_it_needs_and_nothing_else(tmp_path: pathlib.Path) -> None:
    plan, found = stages(tmp_path)
    of_stages: dict[pathlib.Path, set[pathlib.Path]] = {}
    for stage in found:
        assert stage.folder not in of_stages, "two stages share a folder"
        assert of_stages.keys() >= set(stage.needs), f"{stage.title} comes before what it needs"
        of_stages[stage.folder] = set(stage.needs).union(*(of_stages[each] for each in stage.needs))
        for command in stage.commands:
            for path in own_paths(list(command), tmp_path):
                known = {stage.folder, *of_stages[stage.folder]}
                assert known & {path, *path.parents}, f"{stage.title} does not say it uses {path}"
    for path in own_paths([*plan.report_command()[:-1], *report_flags(plan)], tmp_path):
        assert of_stages.keys() & {path, *path.parents}


def test_a_size_s_models_have_its_settings_and_start_from_its_own(tmp_path: pathlib.Path) -> None:
    _, found = stages(tmp_path)
    for stage in found:
        command = stage.commands[0]
        if command[0] != "launch/train.py":
            continue
        settings = bindings(command)[1]
        small = "small" in stage.folder.name
        assert (settings.get("TransformerConfig.d_model") == "64") == small
        assert ("small" in settings.get("INITIAL_CHECKPOINT", "")) == (
            small and stage.folder.name != "pretrained_small"
        )


@pytest.mark.parametrize("scale", ["inf", "nan", "0", "-1"])
def test_a_scale_that_is_none_is_refused(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        browse_miniature.main(["--scale", scale])
    assert ended.value.code == 2
    assert f"--scale is {float(scale)}: must be a number above 0" in capsys.readouterr().err


def test_a_folder_in_a_bucket_is_refused(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        browse_miniature.main(["gs://bucket/run"])
    assert ended.value.code == 2
    assert "MODEL_DIR is gs://bucket/run: must be a folder on a disk" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
