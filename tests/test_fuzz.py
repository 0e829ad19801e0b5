"""A short run of the fuzzing of snippets, windows and records (benchmarks/fuzz_text.py)."""

import importlib.util
from pathlib import Path

PATH = Path(__file__).parents[1] / "benchmarks/fuzz_text.py"


def test_no_snippet_window_or_line_breaks_a_promise() -> None:
    spec = importlib.util.spec_from_file_location("fuzz_text", PATH)
    assert spec is not None
    assert spec.loader is not None
    fuzz_text = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fuzz_text)
    found = fuzz_text.fuzz(1000, seed=11)
    assert sum(found["snippets"][name] for name in ("found", "not found")) == 400
    assert sum(found["windows"][name] for name in ("a window", "no room")) == 300
    # Both what is right and what is wrong is among them.
    assert min(found["snippets"]["found"], found["snippets"]["not found"]) > 40
    assert min(found["lines"]["a record"], found["lines"]["refused"]) > 30
