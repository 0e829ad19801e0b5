"""Where benchmarks find the public data sets (docs/public_data.md)."""

import argparse
import pathlib

DATA = pathlib.Path(__file__).resolve().parents[1] / "../shared/data"


def add_data(parser: argparse.ArgumentParser, below: str = "") -> None:
    """Adds `--data`; a folder that is not there is refused in one line.

    Args:
      parser: a benchmark's parser.
      below: the folder within the public data that the benchmark reads.
    """
    # argparse checks a default only if it is a string.
    parser.add_argument(
        "--data", metavar="DATA", type=_folder, default=str(DATA / below), help="the public files"
    )


def _folder(path: str) -> pathlib.Path:
    if not pathlib.Path(path).is_dir():
        raise argparse.ArgumentTypeError(
            f"{path}: there is no such folder; docs/public_data.md says where its files come from"
        )
    return pathlib.Path(path)
