"""`gophercite export-weights`: converts a model to a folder that `transformers` or T5X loads."""

import argparse
from functools import partial
from typing import Any

from gophercite.cli.arguments import add_command
from gophercite.cli.output import (
    DONE,
    RefusedError,
    doing,
    print_json,
    print_text,
    require_on_disk,
)


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands,
        "export-weights",
        run,
        "convert a model to a Hugging Face folder, which transformers and other libraries load, "
        "or to a T5X checkpoint",
        (
            "runs/sft exports/qwen3-citing",
            "runs/lora exports/adapters --adapters",
            "runs/lora exports/adapters --adapters --after adapters/smollm2-citing",
            "models/gopher exports/t5x --t5x network",
        ),
    )
    command.add_argument(
        "model",
        metavar="MODEL",
        help="a model folder, or a training run's folder (its best checkpoint is exported)",
    )
    command.add_argument("folder", metavar="FOLDER", help="folder to write; must be new or empty")
    command.add_argument(
        "--dtype",
        choices=("bfloat16", "float32"),
        help="dtype of the tensors (default: that of the parameters)",
    )
    form = command.add_mutually_exclusive_group()
    form.add_argument(
        "--adapters",
        action="store_true",
        help="of a run that trained adapters (LoRA), export only these, for PEFT to load with "
        "the exported base model; by default they are merged into the model",
    )
    command.add_argument(
        "--after",
        metavar="ADAPTERS",
        help="with --adapters: adapters that had been merged into the run's base model; the run's "
        "are added to them, so that the result fits the model that they were trained on",
    )
    form.add_argument(
        "--t5x",
        choices=("network", "bridge"),
        help="write a T5X checkpoint instead: for T5X's own decoder-only network, or for "
        "training this model in T5X through the bridge",
    )


def run(options: argparse.Namespace) -> int:
    """Exports a model, and prints its type."""
    from gophercite.model_folders.checkpoint_errors import CheckpointError
    from gophercite.model_folders.folder import ModelFolderError
    from gophercite.model_folders.tensors import TensorFileError
    from gophercite.weights.checkpoint import WeightsError
    from gophercite.weights.export import export_weights
    from gophercite.weights.peft import export_adapters
    from gophercite.weights.t5x_bridged import export_bridged
    from gophercite.weights.t5x_export import export_t5x

    require_on_disk("folder", options.folder)
    if options.after and not options.adapters:
        raise RefusedError("--after is only for --adapters")
    whole = {None: export_weights, "network": export_t5x, "bridge": export_bridged}[options.t5x]
    export = partial(export_adapters, after=options.after) if options.adapters else whole
    try:
        with doing(f"exporting {options.model}"):
            done = export(options.model, options.folder, dtype=options.dtype)
    except (WeightsError, ModelFolderError, TensorFileError, CheckpointError) as error:
        raise RefusedError(str(error)) from error
    if options.json:
        print_json({"folder": options.folder, **done._asdict()})
    else:
        print_text(
            f"{options.folder}: {done.parameters:,} parameters in {done.dtype}, model_type "
            f"{done.model_type}"
        )
    return DONE
