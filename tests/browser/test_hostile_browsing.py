"""A short run of hostile pages and commands (benchmarks/hostile_browsing.py)."""

import importlib.util
import pathlib

PATH = pathlib.Path(__file__).parents[2] / "benchmarks/hostile_browsing.py"


def test_no_page_and_no_command_breaks_a_promise() -> None:
    spec = importlib.util.spec_from_file_location("hostile_browsing", PATH)
    assert spec is not None
    assert spec.loader is not None
    hostile_browsing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hostile_browsing)
    found = hostile_browsing.fuzz(2500, seed=5)
    # What is right and what is wrong is among them, and all ways to end.
    assert min(found["action"], found["invalid action"]) > 500
    assert min(found["answer"], found["ended by answer"], found["ended by actions"]) > 10
