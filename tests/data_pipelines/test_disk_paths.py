"""Commands that work on a disk: an address of a bucket is no folder `gs:` here."""

import importlib
import pathlib

import pytest

from data_pipelines.disk_paths import path_on_disk


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("bootstrap", "URL q o --style short"),
        ("browsed_claims", "URL --out o --questions q"),
        ("browsed_pairs", "URL --out o --demonstrations d"),
        ("browsing_comparisons", "URL e --out o"),
        ("browsing_completions", "w URL o --vocabulary v"),
        ("convert", "squad q.json URL"),
        ("demonstrators.__main__", "w q URL"),
        ("filter_questions", "eli5 URL o"),
        ("measure_prompts", "URL --vocabulary v"),
        ("question_sets", "URL o --share a=1"),
        ("rated_rounds", "URL r"),
        ("rating_items", "s q URL"),
        ("sample_comparisons", "s URL"),
        ("sample_web.__main__", "--out URL"),
        ("sample_world.__main__", "--out URL"),
        ("search", "questions q URL --index i"),
        ("short_answers", "q URL --out o"),
        ("stance_questions", "URL"),
    ],
)
def test_an_address_is_refused(
    module: str,
    arguments: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    main = importlib.import_module(f"data_pipelines.{module}").main
    with pytest.raises(SystemExit) as ended:
        main(arguments.replace("URL", "gs://b/x").split())
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "gs://b/x: must be on a disk; copy files of a bucket there first" in said
    assert not list(tmp_path.iterdir())


def test_a_path_is_a_path() -> None:
    assert path_on_disk("a/b") == pathlib.Path("a/b")
