"""What a run that goes on says of settings that differ from before."""

import changed_settings
import pytest
from hypothesis import given
from hypothesis import strategies as st

BEFORE = """
SEED = 0
MODEL_DIR = 'runs/a'

# Parameters for train:
train.optimizer = @adam()
train.every = {'loss': [1,
                        2]}
validation/Input.split = 'validation'
gone.rate = 0.5
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("SEED = 0", "SEED = 1", "SEED = 1 (was 0)"),
        ("@adam()", "@adafactor()", "train.optimizer = @adafactor() (was @adam())"),
        ("@adam()", "%OPTIMIZER", "train.optimizer = %OPTIMIZER (was @adam())"),
        ("2]}", "3]}", "train.every = {'loss': [1, 3]} (was {'loss': [1, 2]})"),
        (
            "Input.split = 'validation'",
            "Input.split = 'test'",
            "validation/Input.split = 'test' (was 'validation')",
        ),
        ("'runs/a'", "'/home/me/runs/a'", None),
        ("SEED = 0", f"SEED = {'7' * 70}", f"SEED = {'7' * 59}… (was 0)"),
        ("gone.rate = 0.5", "new.rate = 0.5", None),
        ("SEED", "SEED", None),
    ],
)
def test_settings_of_both_starts_are_compared(old: str, new: str, said: str | None) -> None:
    assert changed_settings.changes(BEFORE, BEFORE.replace(old, new)) == said


def test_of_many_the_first_are_shown() -> None:
    before, now = ("".join(f"A{n} = {n + more}\n" for n in range(9)) for more in (0, 1))
    said = changed_settings.changes(before, now)
    assert said is not None
    assert said.startswith("A0 = 1 (was 0), A1")
    assert said.endswith("A5 = 6 (was 5), 3 more")


@pytest.mark.parametrize("damaged", ["a.b = ", "\0", "x = {", "= 3", "a.b = __import__('os')"])
def test_what_can_not_be_read_is_no_reason_to_stop(damaged: str) -> None:
    assert changed_settings.changes(damaged, BEFORE) is None


MARKS = st.text("\0\n\t=.@%/'\\\"({[}])#é0x ", max_size=6)


@given(st.integers(0, len(BEFORE)), MARKS, st.integers(0, 9))
def test_damage_never_ends_a_run(at: int, put: str, lost: int) -> None:
    said = changed_settings.changes(BEFORE[:at] + put + BEFORE[at + lost :], BEFORE)
    assert said is None or " (was " in said
