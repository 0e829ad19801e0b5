"""`gophercite info`: describes a model folder or a training run's folder."""

import argparse
import json
from typing import Any

from gophercite.cli.arguments import add_command
from gophercite.cli.output import DONE, RefusedError, print_json, print_text
from gophercite.storage.json_fields import printable


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands,
        "info",
        run,
        "describe a model folder or a training run's folder",
        ("runs/quickstart", "models/qwen3 --json"),
    )
    command.add_argument("folder", metavar="FOLDER")


def run(options: argparse.Namespace) -> int:
    """Prints what a model is; reads only its description."""
    from gophercite.model_folders import checkpoint_files, config_json, folder

    try:
        description = folder.read_description(options.folder)
    except folder.ModelFolderError as error:
        raise RefusedError(str(error)) from error
    architecture = config_json.config_to_json(description.config)
    result: dict[str, Any] = {
        "folder": options.folder,
        "parameters": description.config.parameters,
        "architecture": architecture,
        "provenance": description.provenance,
    }
    if description.base is not None:
        result["base"] = description.base
    if description.parameters is None:
        result["checkpoints"] = checkpoint_files.saved_steps(options.folder)
        result["best_checkpoint"] = checkpoint_files.best_step(options.folder)
    else:
        result["files"] = sorted({stored.file for stored in description.parameters.values()})
    if options.json:
        print_json(result)
        return DONE
    print(f"{options.folder}: {description.config.parameters:,} parameters")
    for title in ("architecture", "provenance"):
        print(f"{title}:")
        for name, value in result[title].items():
            # Whoever made the folder chose names and texts, which must not control the terminal.
            print_text(printable(f"  {name}: {json.dumps(value, ensure_ascii=False)}"))
    for title in ("base", "files", "checkpoints", "best_checkpoint"):
        if title in result:
            print(f"{title.replace('_', ' ')}: {json.dumps(result[title])}")
    return DONE
