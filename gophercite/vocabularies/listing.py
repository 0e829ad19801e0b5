"""The list of a vocabulary's files with their SHA-256: one changed bit changes the tokens.

`sha256sum -c vocabulary.sha256` reads the list. Published tokenizers, and folders saved by older
versions, have no list; those are read without a check.
"""

import hashlib
import pathlib
import re

from gophercite.vocabularies.errors import VocabularyError

LISTING = "vocabulary.sha256"
MODEL_NAMES = ("vocabulary.model", "tokenizer.model", "spiece.model")  # SentencePiece's

# All files that may be part of a vocabulary.
_READ = (
    *MODEL_NAMES,
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "prompt.json",
    "generation_config.json",
    "config.json",
)
_LINE = re.compile(r"([0-9a-f]{64})  ([^/\\\x00-\x1f]+)")


def write_listing(folder: pathlib.Path) -> None:
    """Lists the files of a vocabulary with their current digests."""
    lines = [f"{_digest(folder / name)}  {name}\n" for name in _READ if (folder / name).exists()]
    (folder / LISTING).write_text("".join(lines), "ascii")


def check_listing(folder: pathlib.Path) -> None:
    """Compares a vocabulary's files with their list, if the folder has one.

    Raises:
      VocabularyError: a file is missing, altered or not on the list, or the list is damaged; the
        message names the file.
    """
    path = folder / LISTING
    if not path.exists():
        return
    listed = _read_listing(path)
    for name in _READ:
        if name not in listed and (folder / name).exists():
            raise VocabularyError(
                f"{folder / name}: is not on the list of the vocabulary's files ({LISTING}), but "
                "would be read: remove it, or accept it with `gophercite renew`"
            )
    for name, expected in listed.items():
        if not (folder / name).is_file():
            raise VocabularyError(f"{folder / name}: the file is missing, but {LISTING} lists it")
        found = _digest(folder / name)
        if found != expected:
            raise VocabularyError(
                f"{folder / name}: is damaged or was edited: its bytes hash to {found[:12]}…, not "
                f"{expected[:12]}… as in {LISTING}; copy it again, or, if you edited it, accept "
                "it with `gophercite renew`"
            )


def _read_listing(path: pathlib.Path) -> dict[str, str]:
    try:
        lines = path.read_text("ascii").split("\n")
    except UnicodeDecodeError:
        lines = []
    found = [_LINE.fullmatch(line) for line in lines[:-1]]
    if not found or lines[-1] or not all(found):
        raise VocabularyError(
            f"{path}: is damaged: it is not a list of SHA-256 digests and file names"
        )
    return {match[2]: match[1] for match in found if match}


def _digest(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
