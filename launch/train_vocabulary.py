"""Trains a SentencePiece vocabulary from text files and writes its folder.

    python launch/train_vocabulary.py --input books/*.jsonl.gz --size 8192 --output vocabularies/8k

JSON-lines files give the texts of the fields named by `--fields`, other files their lines; `.gz`
is decompressed. The model spells every text exactly (`docs/vocabularies.md`).
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence

from refusals import local_folder

from gophercite.cli.arguments import seed
from gophercite.documents import normalise_text
from gophercite.storage.json_fields import RecordError, in_one_line
from gophercite.storage.json_lines import read_json_lines
from gophercite.storage.paths import open_bytes
from gophercite.vocabularies import VocabularyError, train_sentencepiece


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags = _parse(arguments)
    try:
        vocabulary = train_sentencepiece(
            _texts(flags.input, flags.fields),
            flags.size,
            flags.model_type,
            reserved_marks=flags.reserved_marks,
            character_coverage=flags.character_coverage,
            sample_lines=flags.sample_lines,
            seed=flags.seed,
            quiet=not sys.stderr.isatty(),
        )
        vocabulary.save(flags.output)
    except (OSError, RecordError, VocabularyError) as error:
        print(f"train_vocabulary: {in_one_line(error)}", file=sys.stderr)
        return 1
    print(f"{flags.output}: {vocabulary.size} pieces")
    for text in ("The lighthouse was built in 1874.", " %<In 1874.>%("):
        ids = vocabulary.encode(text)
        pieces = [(vocabulary.token_bytes(id) or b"").decode("utf-8", "replace") for id in ids]
        print(f"  {text!r} → {' '.join(map(repr, pieces))}")
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="train_vocabulary.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--input", nargs="+", required=True, metavar="FILE", help="text files")
    parser.add_argument("--output", required=True, help="folder to write, on a disk")
    parser.add_argument("--size", type=int, required=True, help="number of pieces")
    parser.add_argument("--model-type", choices=("unigram", "bpe"), default="unigram")
    parser.add_argument(
        "--fields",
        default="title,text",
        type=lambda names: names.split(","),
        help="fields of JSON lines that contain text, separated by commas (default: title,text)",
    )
    parser.add_argument(
        "--reserved-marks",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="one token for each mark of inline evidence",
    )
    parser.add_argument(
        "--character-coverage",
        type=float,
        default=0.9995,
        help="share of the characters that get their own pieces (default: 0.9995)",
    )
    parser.add_argument(
        "--sample-lines", type=int, default=0, help="train on this many random lines (default: all)"
    )
    parser.add_argument(
        "--seed", type=seed, default=0, help="seed for drawing these lines (default: 0)"
    )
    flags = parser.parse_args(arguments)
    if flags.sample_lines < 0:
        parser.error(f"--sample-lines is {flags.sample_lines}: must be at least 0, which is all")
    if not 0 < flags.character_coverage <= 1:
        parser.error(
            f"--character-coverage is {flags.character_coverage}: must be above 0, and at most 1"
        )
    flags.output = local_folder(parser, "--output", flags.output)
    return flags


def _texts(paths: Sequence[str], fields: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if ".jsonl" in pathlib.PurePath(path).suffixes:
            yield from _texts_of_json_lines(path, fields)
        else:
            with open_bytes(path) as lines:
                for line in lines:
                    yield normalise_text(line.decode("utf-8", errors="replace"))


def _texts_of_json_lines(path: str, fields: Sequence[str]) -> Iterator[str]:
    found = False
    for _, value in read_json_lines(path):
        if isinstance(value, RecordError):
            raise value
        values = value if isinstance(value, dict) else {}
        for text in (values[name] for name in fields if isinstance(values.get(name), str)):
            found = True
            yield normalise_text(text)
    if not found:
        raise RecordError(f"no line of {path} has text in a field named {' or '.join(fields)}")


if __name__ == "__main__":
    sys.exit(main())
