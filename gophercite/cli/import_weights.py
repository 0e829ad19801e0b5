"""`gophercite import-weights`: makes a model folder of a published checkpoint."""

import argparse
from typing import Any

from gophercite.cli.arguments import add_command
from gophercite.cli.output import DONE, RefusedError, doing, print_json, print_text


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands,
        "import-weights",
        run,
        "make a model folder of a Llama, Mistral, Qwen, Gemma, GPT-NeoX or GPT-2 checkpoint",
    )
    command.add_argument(
        "source",
        metavar="SOURCE",
        help="a Hugging Face folder: config.json, safetensors files and the tokenizer",
    )
    command.add_argument("folder", metavar="FOLDER", help="the model folder; new, or to replace")
    command.add_argument(
        "--dtype",
        choices=("bfloat16", "float32"),
        help="of parameters and computation; by default the smallest that loses nothing",
    )


def run(options: argparse.Namespace) -> int:
    """Imports a checkpoint, and says what it is."""
    from gophercite.models.folder import ModelFolderError
    from gophercite.models.tensors import TensorFileError
    from gophercite.vocabularies import VocabularyError
    from gophercite.weights.checkpoint import WeightsError
    from gophercite.weights.hugging_face import import_weights

    try:
        with doing(f"importing {options.source}"):
            description = import_weights(options.source, options.folder, dtype=options.dtype)
    except (WeightsError, ModelFolderError, TensorFileError, VocabularyError) as error:
        raise RefusedError(str(error)) from error
    config = description.config
    if options.json:
        print_json(
            {
                "folder": options.folder,
                "parameters": config.parameters,
                "dtype": config.param_dtype,
                "provenance": description.provenance,
            }
        )
    else:
        print_text(f"{options.folder}: {config.parameters:,} parameters in {config.param_dtype}")
    return DONE
