"""`gophercite import-weights`: converts a published checkpoint to a model folder."""

import argparse
import pathlib
from typing import Any

from gophercite.cli.arguments import add_command, positive
from gophercite.cli.output import DONE, RefusedError, doing, print_json, print_text


def add(commands: Any) -> None:
    """Adds the command."""
    command = add_command(
        commands,
        "import-weights",
        run,
        "make a model folder from a Llama, Mistral, Qwen, Gemma, GPT-NeoX, GPT-2, GGUF or T5X "
        "checkpoint",
        (
            "downloads/Qwen3-0.6B models/qwen3",
            "downloads/Llama-3.2-1B models/llama --dtype float32",
            "downloads/SmolLM2-135M-Instruct.Q4_1.gguf models/smollm2",
            "adapters/smollm2-citing models/smollm2-citing --base models/smollm2",
            "t5x/checkpoint_100000 models/t5x --vocabulary t5x/sentencepiece.model",
        ),
    )
    command.add_argument(
        "source",
        metavar="SOURCE",
        help="a Hugging Face folder: config.json, safetensors files and the tokenizer; a GGUF "
        "file; a folder of PEFT adapters; or a T5X checkpoint_<step> folder of a decoder-only "
        "network",
    )
    command.add_argument(
        "folder",
        metavar="FOLDER",
        help="the model folder to write; an existing model folder is replaced",
    )
    command.add_argument(
        "--dtype",
        choices=("bfloat16", "float32"),
        help="dtype of parameters and computation (default: the smallest that loses nothing)",
    )
    command.add_argument(
        "--base",
        metavar="MODEL",
        help="for adapters: folder of the model that they were trained on",
    )
    command.add_argument(
        "--vocabulary",
        metavar="FILE",
        help="for T5X: the SentencePiece model (required unless --like is given)",
    )
    command.add_argument(
        "--like",
        metavar="MODEL",
        help="for T5X checkpoints trained through the bridge: the model folder that the bridge "
        "was given; replaces --vocabulary",
    )
    command.add_argument(
        "--activations",
        metavar="NAMES",
        help="for T5X: the MLP's mlp_activations, such as relu or gelu,linear (default: those in "
        "config.gin beside the checkpoint)",
    )
    command.add_argument(
        "--max-distance",
        metavar="TOKENS",
        type=positive,
        help="for T5X: the distance from which on all share one bias (default: 128, as in T5X)",
    )


def run(options: argparse.Namespace) -> int:
    """Imports a checkpoint, and describes it."""
    from gophercite.model_folders.folder import ModelFolderError
    from gophercite.model_folders.tensors import TensorFileError
    from gophercite.vocabularies import VocabularyError
    from gophercite.weights.checkpoint import WeightsError

    try:
        with doing(f"importing {options.source}"):
            description = _import(options)
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
        line = f"{options.folder}: {config.parameters:,} parameters in {config.param_dtype}"
        if left_out := description.provenance.get("left_out"):
            size = f"{left_out['bytes'] / 2**20:,.1f} MiB"
            line += f"; {left_out['tensors']} tensors for images ({size}) are left out"
        print_text(line)
    return DONE


def _import(options: argparse.Namespace) -> Any:
    """Imports a checkpoint, depending on the kind of source."""
    from gophercite.storage import is_remote
    from gophercite.weights.checkpoint import WeightsError
    from gophercite.weights.gguf import import_gguf, is_gguf
    from gophercite.weights.hugging_face import import_weights
    from gophercite.weights.peft_import import is_peft, merge_adapters
    from gophercite.weights.t5x import import_t5x
    from gophercite.weights.t5x_bridged import import_bridged
    from gophercite.weights.t5x_checkpoint import is_t5x

    if is_remote(options.source):
        raise WeightsError(
            f"{options.source}: checkpoints are read from a disk: copy this one there first"
        )
    if is_peft(options.source):
        if options.base is None:
            raise WeightsError(
                f"{options.source}: holds adapters: give the folder of the model that they were "
                "trained on with --base MODEL"
            )
        if options.dtype is not None:
            raise WeightsError(
                "--dtype can't be given for adapters: they have the dtype of their base model"
            )
        return merge_adapters(options.source, options.base, options.folder)
    if options.base is not None:
        raise WeightsError(
            f"{options.source}: --base is only for adapters, but there is no adapter_config.json "
            "here"
        )
    if is_t5x(pathlib.Path(options.source)) and options.like is not None:
        return import_bridged(options.source, options.folder, options.like, dtype=options.dtype)
    if is_t5x(pathlib.Path(options.source)):
        if options.vocabulary is None:
            raise WeightsError(
                f"{options.source}: T5X checkpoints contain no vocabulary: give the SentencePiece "
                "model with --vocabulary FILE"
            )
        return import_t5x(
            options.source,
            options.folder,
            options.vocabulary,
            activations=options.activations and tuple(options.activations.split(",")),
            max_distance=options.max_distance,
            dtype=options.dtype,
        )
    for flag in ("vocabulary", "like", "activations", "max_distance"):
        if getattr(options, flag) is not None:
            raise WeightsError(
                f"{options.source}: --{flag.replace('_', '-')} is only for T5X checkpoints, but "
                "there is no file 'checkpoint' here"
            )
    if is_gguf(options.source):
        return import_gguf(options.source, options.folder, dtype=options.dtype)
    return import_weights(options.source, options.folder, dtype=options.dtype)
