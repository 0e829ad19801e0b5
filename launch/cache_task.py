"""Computes the examples of a run's tasks once, and keeps them in a folder or a bucket.

    python launch/cache_task.py --gin_file=gin_configs/sft_imported.gin --gin.DATA_DIR=data/squad \\
      --output data/squad_cached
    python launch/train.py --gin_file=gin_configs/sft_imported.gin --gin.DATA_DIR=data/squad \\
      --gin.MIXTURE_OR_TASK_NAME=@add_cached() --gin.add_cached.name=squad_cached \\
      --gin.add_cached.folder=data/squad_cached --gin.add_cached.vocabulary=@model_vocabulary() \\
      --gin.MODEL_DIR=runs/squad

The configuration is that of the run, and its inputs say which tasks and splits are cached. A
mixture has a folder for each of its tasks below --output. An interrupted command goes on where it
stopped. Nothing is trained, and no model is read.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import gin_files

from gophercite import interruption
from gophercite.storage.json_fields import in_one_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags, bindings = _parse(arguments)
    with interruption.libraries_silenced():
        import jax

        jax.config.update("jax_platforms", "cpu")
        # Imported here because they load TensorFlow, for which --help need not wait.
        import configuration
    try:
        files = gin_files.load(flags.gin_file, bindings, flags.gin_search_paths, unset=[])
        with gin_files.one_line(files, bindings):
            inputs = configuration.inputs()
        _cache(inputs, flags)
    except (ValueError, OSError) as error:  # wrong settings, unusable records, another cache
        print(f"cache_task: {in_one_line(error)}", file=sys.stderr)
        return 1
    return 0


def _cache(inputs: Sequence[Any], flags: argparse.Namespace) -> None:
    """Caches each split of each task of some inputs, once."""
    from etils import epath

    from data_pipelines.cache_writing import cache_split
    from data_pipelines.task_input import TaskInput

    splits = {
        (task.name, source.split): (task, source)
        for source in inputs
        if isinstance(source, TaskInput)  # completions of browsing are read without seqio
        for task in source.tasks
    }
    if not splits:
        raise gin_files.ConfigurationError("the run's inputs are no tasks of seqio")
    several = len({name for name, _ in splits}) > 1
    for (name, split), (task, source) in splits.items():
        folder = epath.Path(flags.output) / name if several else epath.Path(flags.output)
        cache_split(
            task, split, source.feature_lengths(task), folder,
            fix_draws=flags.fix_draws, say=lambda line: print(line, flush=True),
        )  # fmt: skip
    where = f"a folder of {flags.output} for each task" if several else flags.output
    print(f"cached in {where}")


def _parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, dict[str, str]]:
    parser = argparse.ArgumentParser(
        prog="cache_task.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    gin_files.add_flags(parser)
    parser.add_argument(
        "--output", required=True, metavar="FOLDER", help="on a disk or in a bucket"
    )
    parser.add_argument(
        "--fix_draws",
        action="store_true",
        help="keep the first epoch's random draws (windows of pages, clozes) for all epochs",
    )
    flags, rest = parser.parse_known_args(arguments)
    return flags, gin_files.read_bindings(parser, rest)


if __name__ == "__main__":
    sys.exit(main())
