"""Each flag of an answering command is the setting that it names."""

import argparse

import pytest

from gophercite.answering.settings import AnsweringSettings
from gophercite.cli import ask
from gophercite.cli.answering_flags import add_answering, settings_of
from gophercite.decoding.sampling_settings import SamplingSettings
from gophercite.quoting.quote_settings import QuoteSettings

FLAGS = [
    "--samples=3", "--prompt-tokens=99", "--joint", "--choose=sum", "--max-num-seqs=5",
    "--no-claim-in-quote", "--claims=4", "--omissions=2", "--boundaries=sentences",
    "--max-tokens=77", "--temperature=0.5",
]  # fmt: skip
SAMPLING = SamplingSettings(temperature=0.5)
EXPECTED = AnsweringSettings(
    samples=3,
    prompt_tokens=99,
    joint=True,
    few_shot=2,
    choose="sum",
    max_num_seqs=5,
    claim_in_quote=False,
    sampling=SAMPLING,
    quotes=QuoteSettings(maximum_triples=4, maximum_omissions=2, boundaries="sentences"),
    max_tokens=77,
)


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_answering(parser)
    return parser.parse_args(arguments)


def test_every_flag_is_its_setting() -> None:
    assert settings_of(parsed(*FLAGS), SAMPLING, 2) == EXPECTED
    assert settings_of(parsed("--no-joint"), SAMPLING).joint is False


def test_the_defaults_are_the_library_s() -> None:
    """But for claims: a user who asks one thing wants one claim."""
    flags = parsed()
    sampling = SamplingSettings(temperature=flags.temperature)
    assert settings_of(flags, sampling) == AnsweringSettings(
        sampling=sampling, quotes=QuoteSettings(maximum_triples=1)
    )


def test_ask_adds_its_examples() -> None:
    parser = argparse.ArgumentParser()
    ask.add(parser.add_subparsers())
    arguments = ["ask", "When?", "--documents", "notes", "--model", "m", "--few-shot", "2", *FLAGS]
    assert ask._settings(parser.parse_args(arguments)) == EXPECTED


def test_what_cannot_be_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in ("--samples=0", "--claims=0", "--omissions=-1", "--choose=best"):
        with pytest.raises(SystemExit, match="2"):
            parsed(wrong)
        assert wrong.split("=")[0] in capsys.readouterr().err
    with pytest.raises(ValueError, match="--choose reward: also give --reward-model"):
        settings_of(parsed("--choose=reward"), SamplingSettings())
    flags = parsed("--choose=reward", "--reward-model=folder")
    assert settings_of(flags, SamplingSettings()).choose == "reward"
