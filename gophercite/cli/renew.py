"""`gophercite renew`: accepts a folder that was edited by hand, with new digests."""

import argparse
from typing import Any

from gophercite.cli.arguments import add_command
from gophercite.cli.output import DONE, RefusedError, print_json, print_text


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands,
        "renew",
        run,
        "after editing a model folder by hand: accept its model.json and vocabulary as they are "
        "now, and renew their digests",
        ("models/edited", "runs/quickstart/vocabulary"),
    )
    command.add_argument(
        "folder", metavar="FOLDER", help="folder of a model, a training run or a vocabulary"
    )


def run(options: argparse.Namespace) -> int:
    """Writes new digests, if the files can be used."""
    import pathlib

    from gophercite.model_folders import description
    from gophercite.storage import is_remote
    from gophercite.vocabularies import VocabularyError
    from gophercite.vocabularies.loading import renew_vocabulary

    if is_remote(options.folder):
        raise RefusedError(
            f"{options.folder}: only folders on a disk are renewed: copy it there first"
        )
    folder = pathlib.Path(options.folder)
    is_model = (folder / description.DESCRIPTION).exists() or not folder.is_dir()
    try:
        (description.renew if is_model else renew_vocabulary)(folder)
    except (description.ModelFolderError, VocabularyError, FileNotFoundError) as error:
        raise RefusedError(str(error)) from error
    if options.json:
        print_json({"folder": options.folder, "renewed": True})
    else:
        print_text(f"{options.folder}: the digests now match the files")
    return DONE
