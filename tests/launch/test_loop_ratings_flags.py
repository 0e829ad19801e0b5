"""What launch/loop_ratings.py refuses before it opens a study."""

import loop_ratings
import pytest


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--poll", "-1"], "--poll is -1.0: must be from 0 to 3600 seconds"),
        (["--poll", "nan"], "--poll is nan: must be from 0 to 3600 seconds"),
        (["--poll", "inf"], "--poll is inf: must be from 0 to 3600 seconds"),
        (["--simulated", "-2"], "--simulated is -2: must be at least 0"),
        (["--accuracy", "nan"], "--accuracy is nan: must be from 0 to 1"),
    ],
)
def test_numbers_that_can_t_be_are_wrong_usage(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        loop_ratings._parse(["study", "round 0", "items", *flags])
    assert refused.value.code == 2
    assert message in capsys.readouterr().err
