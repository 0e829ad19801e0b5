"""Gin files as people write and save them: encodings, blocks, several files for one setting."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import gin
import gin_files
import pytest
import setting_checks
from gin_places import where_set

SFT = "include 'gin_configs/sft_sample_world.gin'\n"
GIVEN = {"MODEL_DIR": "a"}


def refusal(file: pathlib.Path) -> str:
    with pytest.raises(gin_files.ConfigurationError) as refused:
        setting_checks.check([str(file)], GIVEN)
    return str(refused.value)


@pytest.mark.parametrize("included", [False, True])
def test_a_file_that_is_not_utf_8_is_named_with_its_line(
    tmp_path: pathlib.Path, included: bool
) -> None:
    file = tmp_path / "own.gin"
    file.write_bytes(SFT.encode() + "# Übung\nINITIAL_CHECKPOINT = 'modèle'\n".encode("latin-1"))
    run = file
    if included:
        run = tmp_path / "run.gin"
        run.write_text(f"\n\ninclude '{file}'\n")
    assert refusal(run) == f"{file}:2: byte 0xdc is not UTF-8: save the file as UTF-8"


@pytest.mark.parametrize("included", [False, True])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("BATCH_SIZE = 4\nx.y = ('a',\n  ('b')\nLENGTH = 4\n", "2: the bracket is never closed"),
        ("x.y = '''a\n\n", "1: the text is never closed"),
        ("include '{file}'\n", "1: includes itself, directly or through other files"),
        ("include ''\n", "1: there is no gin file ''"),
        ("x.y = " + "(" * 3000 + ")" * 3000 + "\n", "1: has too many brackets within brackets"),
        ("TRAIN_STEPS = [4, b]\n", "1: 'b' is no value: text needs quotes"),
        ("TRAIN_STEPS =\n", "1: can't read the value: 'TRAIN_STEPS ='"),
    ],
)
def test_what_gin_cannot_read_is_named_with_its_line(
    tmp_path: pathlib.Path, text: str, said: str, included: bool
) -> None:
    file = tmp_path / "own.gin"
    file.write_text(text.replace("{file}", str(file)))
    run = file
    if included:
        run = tmp_path / "run.gin"
        run.write_text(f"\n\ninclude '{file}'\n")
    assert refusal(run) == f"{file}:{said}"


def test_a_folder_or_a_device_is_no_gin_file(tmp_path: pathlib.Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: is a folder; expected a gin file"
    device = "/dev/null"
    assert (
        refusal(pathlib.Path(device)) == f"{device}: is not an ordinary file; expected a gin file"
    )
    file = tmp_path / "own.gin"
    file.write_text(f"\ninclude '{tmp_path}'\n")
    assert refusal(file) == f"{file}:2: {tmp_path}: is a folder; expected a gin file"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("MODEL_DIR", "[old] run", " = [old] run: gin can't read this value; text that begins like "
         "this needs quotes: '--gin.MODEL_DIR=\"[old] run\"'"),
        ("TRAIN_STEPS", "(", " = (: gin can't read this value"),
        ("TRAIN_STEPS", "@", " = @: gin can't read this value"),
        ("TRAIN_STEPS", "1,000", " = 1,000: gin can't read this value"),
        ("TRAIN_STEPS", "(" * 3000, " = ((((((((((((((((((((((((((((((((((((((((…: gin can't read"),
        ("TRAIN STEPS", "3", ": this can't be the name of a setting"),
        ("SEED = 1\nTRAIN_STEPS", "3", ": this can't be the name of a setting"),
        ("/train.log_every", "3", ": this can't be the name of a setting"),
    ],
)  # fmt: skip
def test_a_flag_that_gin_cannot_read_is_shown_as_it_was_typed(
    name: str, value: str, said: str
) -> None:
    file = "gin_configs/pretrain_sample_world.gin"
    with pytest.raises(gin_files.ConfigurationError) as refused:
        setting_checks.check([file], {**GIVEN, name: value})
    assert str(refused.value).startswith(f"--gin.{name}{said}")


def test_files_that_use_no_macro_are_perhaps_not_all(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "own.gin"
    file.write_text("train.log_every = 3\n")
    said = "--gin.MODEL_DIR: the gin files use no macro, so they describe no run; is one missing?"
    assert refusal(file) == said


@pytest.mark.parametrize("content", ["\ufeff{}", "{}\r\n"])
def test_files_of_other_systems_are_read(tmp_path: pathlib.Path, content: str) -> None:
    file = tmp_path / "own.gin"
    lines = f"{SFT}TRAIN_STEPS = 7\nINITIAL_CHECKPOINT = 'modèle'\n"
    newline = "\r\n" if content.endswith("\r\n") else "\n"
    text = content.format(lines).replace("\r\n", "\n").replace("\n", newline)
    file.write_bytes(text.encode())
    setting_checks.check([str(file)], GIVEN)
    file.write_bytes(text.replace("= 7", "= 'x'").encode())
    assert refusal(file).startswith(f"TRAIN_STEPS in {file}:2 = 'x': must be a whole number")


def test_files_are_utf_8_in_any_locale(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "own.gin"
    file.write_text(f"{SFT}INITIAL_CHECKPOINT = 'modèle'\n", "utf-8")
    code = (
        "import gin, setting_checks, setting_names, gin_files\n"
        f"setting_checks.check([{str(file)!r}], {GIVEN})\n"
        "with setting_names.names_only():\n"
        f"    gin_files.load([{str(file)!r}], {GIVEN})\n"
        "    print(ascii(gin.query_parameter('%INITIAL_CHECKPOINT')))\n"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    path = os.pathsep.join(map(str, (gin_files.ROOT, gin_files.ROOT / "launch")))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | locale | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "'mod\\xe8le'\n", done.stderr


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ("train:\n  log_every = 5\n  # why\n  save_every = 'x'\n", "train.save_every in {}:5"),
        ("validation/Input:\n  limit = 'x'\n", "validation/Input.limit in {}:3"),
        ("gophercite.train.log_every = 'x'\n", "train.log_every in {}:2"),
        ("train.log_every = (\n  'x')\n", "train.log_every in {}:2"),
        ("STEPS = '''\ntrain.log_every = 3\n'''\ntrain.log_every = %STEPS\n", "STEPS in {}:2"),
    ],
)
def test_a_setting_is_found_however_it_is_written(
    tmp_path: pathlib.Path, block: str, place: str
) -> None:
    file = tmp_path / "own.gin"
    file.write_text(SFT + block)
    assert refusal(file).startswith(place.format(file) + " = ")


def test_a_name_that_a_block_mistypes_is_named_with_its_line(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "own.gin"
    file.write_text(f"{SFT}train:\n  log_every = 5\n  sav_every = 3\n")
    assert refusal(file).startswith(f"{file}:4: train has no parameter 'sav_every'; did you mean")
    file.write_text(f"{SFT}vaildation/Input:\n  limit = 3\n")
    assert refusal(file).startswith(f"vaildation/… in {file}:3: nothing is configured in scope")


def test_of_several_places_the_one_that_counts_is_named(tmp_path: pathlib.Path) -> None:
    """Gin's order: a later line, a file that a later line includes, a later file."""
    first, second, inner = (tmp_path / f"{name}.gin" for name in ("first", "second", "inner"))
    inner.write_text("TRAIN_STEPS = 3\n")
    first.write_text(f"{SFT}TRAIN_STEPS = 1\ninclude '{inner}'\n")
    second.write_text("LENGTH = 9\n\nTRAIN_STEPS = 4\n")
    files = setting_checks.check([str(first)], GIVEN)
    assert where_set("TRAIN_STEPS", files, {}) == f"TRAIN_STEPS in {inner}:1"
    files = setting_checks.check([str(first), str(second)], GIVEN)
    assert where_set("TRAIN_STEPS", files, {}) == f"TRAIN_STEPS in {second}:3"
    assert where_set("train.seed", files, {}) == "train.seed in gin_configs/supervised.gin:28"
    assert where_set("TRAIN_STEPS", files, {"TRAIN_STEPS": "2"}) == "--gin.TRAIN_STEPS"


@pytest.fixture
def registered_for_this_test() -> Iterator[None]:
    """Takes away again what the test registers: other tests compare all that gin knows."""
    kept = [(names, dict(names.items())) for names in (gin.config._REGISTRY, gin.config._CONSTANTS)]
    yield
    sys.modules.pop("own_rates", None)
    for names, before in kept:
        for name in dict(names.items()).keys() - before.keys():
            names.pop(name)


@pytest.mark.usefixtures("registered_for_this_test")
@pytest.mark.parametrize("_again", [False, True])  # gin refuses a second one if the first is left
def test_files_may_import_modules_of_one_s_own(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, _again: bool
) -> None:
    """What these register is there afterwards, as Python imports a module only once."""
    module = "import gin\n@gin.configurable\ndef own_rate(scale=1.0):\n    return scale\n"
    module += "gin.constant('own.SCALE', 7)\n"
    module += "from gophercite.text.counting import counted\n"  # and more of the library
    module += "gin.external_configurable(counted)\n"
    (tmp_path / "own_rates.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "own.gin"
    text = f"import own_rates\n{SFT}own_rate.scale = %own.SCALE\n"
    file.write_text(f"{text}SupervisedLearner.schedule = @own_rate()\n")
    for _ in range(2):
        setting_checks.check([str(file)], GIVEN)
    gin.parse_config("own_rate.scale = %own.SCALE")
    assert gin.get_configurable("own_rate")() == 7
    assert gin.get_configurable("counted")(2, "page") == "2 pages"
    file.write_text(f"{text}Run.settings = 3\n")
    assert refusal(file).startswith(f"Run.settings in {file}:4 = 3: must be @…() that yields Train")
    file.write_text(f"{text}own_rate.scal = 3\n")
    assert "own_rate has no parameter 'scal'; did you mean own_rate.scale?" in refusal(file)
