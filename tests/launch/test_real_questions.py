"""The commands on public files say which of them are missing before they do anything."""

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """The scripts in a folder of their own, with an environment whose Python only fails."""
    (tmp_path / "launch").mkdir()
    for name in ("real_questions.sh", "browse_real_pages.sh"):
        shutil.copy(ROOT / "launch" / name, tmp_path / "launch")
    (tmp_path / "launch" / "environment.sh").write_text(
        f'cd "{tmp_path}"; echo begun >&2; python() {{ exit 7; }}\n'
    )
    return tmp_path


def start(
    checkout: pathlib.Path, *arguments: str, name: str = "real_questions.sh"
) -> tuple[int, str]:
    script = checkout / "launch" / name
    run = subprocess.run(
        ["bash", str(script), *arguments], cwd=checkout, capture_output=True, text=True
    )
    return run.returncode, run.stderr


FILES = [
    "squad/wikipedia.json.gz",
    "squad/shifts_new_wiki.json.gz",
    "squad/shifts_reddit.json.gz",
    "squad/shifts_amazon_reviews.json.gz",
    "squad/policyqa_dev.json.gz",
    "natural_questions/gold_passages.jsonl.gz",
    "fairytaleqa/train.jsonl.gz",
    "fairytaleqa/val.jsonl.gz",
    "text/openstax_history.jsonl.gz",
]


def test_missing_files_are_named_before_anything_slow(checkout: pathlib.Path) -> None:
    advice = "docs/public_data.md says where each file comes from"
    status, said = start(checkout)
    assert status == 2
    assert said == f"usage: launch/real_questions.sh DATA (a folder; {advice})\n"
    status, said = start(checkout, "nowhere")
    assert status == 1
    assert said == f"nowhere: there is no such folder; {advice}\n"
    for name in FILES:
        (checkout / "public" / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / "public" / name).touch()
    for name in FILES:
        (checkout / "public" / name).unlink()
        missing = name.replace("history", "*")
        status, said = start(checkout, "public")
        assert status == 1
        assert said == f"public/{missing}: there is no such file; {advice}\n"
        (checkout / "public" / name).touch()
    # With all of them it begins, and so it does for a set that has been made before.
    assert start(checkout, "public") == (7, "begun\nwikipedia\n")
    (checkout / "public" / FILES[0]).unlink()
    (checkout / "runs" / "real_questions" / "data" / "wikipedia").mkdir(parents=True)
    assert start(checkout, "public") == (7, "begun\nnew_wiki\n")


def test_real_pages_are_browsed_only_if_their_files_are_there(checkout: pathlib.Path) -> None:
    name = "browse_real_pages.sh"
    status, said = start(checkout, name=name)
    assert (status, said.split(" (")[0]) == (2, "usage: launch/browse_real_pages.sh DATA")
    needed = [FILES[0], FILES[1], FILES[5]]
    for number, missing in enumerate(needed):
        status, said = start(checkout, ".", name=name)
        assert status == 1
        assert said.startswith(f"./{missing}: there is no such file; docs/public_data.md")
        assert number == 0 or not (checkout / "runs").exists()
        (checkout / missing).parent.mkdir(exist_ok=True)
        (checkout / missing).touch()
    assert start(checkout, ".", name=name) == (7, "begun\n")
    # What was begun is not taken for done.
    assert list((checkout / "runs/real_pages/data").iterdir()) == []


def test_the_page_names_the_files_that_the_script_reads() -> None:
    page = (ROOT / "docs" / "public_data.md").read_text()
    for name in FILES:
        named = name.replace("history", "*")
        for split in ("train", "val"):
            named = named.replace(f"fairytaleqa/{split}.", "fairytaleqa/{train,val}.")
        assert f"`{named}`" in page


def test_a_benchmark_without_its_files_is_refused_in_one_line(tmp_path: pathlib.Path) -> None:
    """In a repository that has no folder of public files next to it."""
    (tmp_path / "mine" / "benchmarks").mkdir(parents=True)
    shutil.copy(ROOT / "benchmarks" / "public_data.py", tmp_path / "mine" / "benchmarks")
    program = (
        "import argparse, public_data\n"
        "parser = argparse.ArgumentParser('it')\n"
        "public_data.add_data(parser, 'html')\n"
        "print(parser.parse_args().data)"
    )
    at = {"cwd": tmp_path / "mine" / "benchmarks", "capture_output": True, "text": True}
    run = subprocess.run([sys.executable, "-c", program], **at)
    assert run.returncode == 2
    said = run.stderr.splitlines()[-1]
    assert said.startswith("it: error: argument --data: ")
    assert "shared/data/html: there is no such folder; docs/public_data.md says" in said
    run = subprocess.run([sys.executable, "-c", program, "--data", str(tmp_path)], **at)
    assert run.stdout == f"{tmp_path}\n"
