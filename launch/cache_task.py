"""Computes the examples of a run's tasks once, and keeps them in a folder or a bucket.

    python launch/cache_task.py --gin_file=gin_configs/sft_imported.gin --gin.DATA_DIR=data/squad \\
      --output data/squad_cached
    python launch/train.py --gin_file=gin_configs/sft_imported.gin --gin.DATA_DIR=data/squad \\
      --gin.MIXTURE_OR_TASK_NAME='@add_cached()' --gin.add_cached.name=rated_answers \\
      --gin.add_cached.folder=data/squad_cached --gin.add_cached.vocabulary='@model_vocabulary()' \\
      --gin.MODEL_DIR=runs/squad

The configuration is that of the run, and its inputs say which tasks and splits are cached. A
mixture has a folder for each of its tasks below --output. An interrupted command goes on where it
stopped. Nothing is trained, and no model is read.

Several processes share the work on this machine (--processes), or the workers of a Beam pipeline,
each of which needs this checkout and reads the same files:

    pip install -e ".[beam]"
    python launch/cache_task.py --gin_file=own.gin --output gs://BUCKET/cached \\
      --beam="--runner=DataflowRunner --project=PROJECT --sdk_container_image=IMAGE"
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import cache_workers
import gin_files
import keras_alone
import setting_checks

from gophercite import importing, interruption
from gophercite.storage import is_remote
from gophercite.storage.json_fields import in_one_line

if TYPE_CHECKING:
    from data_pipelines.cache_writing import Shards

_STOPPED = "cache_task: stopped; the same command goes on where it was"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags, bindings = _parse(arguments)
    try:
        setting_checks.check(flags.gin_file, bindings, flags.gin_search_paths, unset=[])
    except (gin_files.ConfigurationError, OSError) as error:
        print(f"cache_task: {in_one_line(error)}", file=sys.stderr)
        return 1
    with importing.libraries(), keras_alone.keras_alone():
        import jax

        jax.config.update("jax_platforms", "cpu")
        # Imported here because they load TensorFlow, for which --help need not wait.
        import configuration
    try:
        if signal.getsignal(signal.SIGINT) is interruption.heard:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # workers are told, too
        files = gin_files.load(flags.gin_file, bindings, flags.gin_search_paths, unset=[])
        with gin_files.one_line(files, bindings):
            inputs = configuration.inputs()
        _cache(inputs, flags, _to_workers(flags, bindings))
    except (ValueError, OSError) as error:  # wrong settings, unusable records, another cache
        print(f"cache_task: {in_one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(_STOPPED, file=sys.stderr)
        return interruption.INTERRUPTED
    return 0


def _cache(
    inputs: Sequence[Any], flags: argparse.Namespace, configuration: cache_workers.Configuration
) -> None:
    """Caches each split of each task of some inputs, once."""
    from etils import epath

    from data_pipelines.cache_writing import cache_split

    tasks = cache_workers.tasks_of(inputs)
    if not tasks:
        raise gin_files.ConfigurationError("the run's inputs are no tasks of seqio")
    several = len({name for name, _ in tasks}) > 1
    with contextlib.ExitStack() as opened:
        pool = None
        if flags.processes > 1:
            pool = opened.enter_context(cache_workers.pool(flags.processes))
        for (name, split), (task, source) in tasks.items():

            def spread(
                shards: "Shards", numbers: Sequence[int], name: str = name, split: str = split
            ) -> Iterator[tuple[int, int]]:
                work = cache_workers.Work(configuration, name, split, dataclasses.asdict(shards))
                if pool is not None:
                    return cache_workers.in_pool(work, numbers, pool)
                return cache_workers.on_beam(work, numbers, shlex.split(flags.beam))

            cache_split(
                task,
                split,
                source.feature_lengths(task),
                epath.Path(flags.output) / name if several else epath.Path(flags.output),
                fix_draws=flags.fix_draws,
                shard_bytes=flags.shard_mb * 10**6,
                spread=spread if pool is not None or flags.beam is not None else None,
                say=lambda line: print(line, flush=True),
            )
    where = f"a folder of {flags.output} for each task" if several else flags.output
    print(f"cached in {where}")


def _to_workers(flags: argparse.Namespace, bindings: dict[str, str]) -> cache_workers.Configuration:
    return cache_workers.Configuration(
        tuple(flags.gin_file), tuple(bindings.items()), tuple(flags.gin_search_paths)
    )


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
    parser.add_argument(
        "--shard_mb", type=int, default=128, metavar="N",
        help="size of a shard, which one worker writes (default: %(default)s MB)",
    )  # fmt: skip
    workers = parser.add_mutually_exclusive_group()
    workers.add_argument(
        "--processes", type=int, default=1, metavar="N", help="on this machine (default: 1)"
    )
    workers.add_argument(
        "--beam", metavar="OPTIONS", help='by a Beam pipeline with these options, which may be ""'
    )
    flags, rest = parser.parse_known_args(arguments)
    for name in ("processes", "shard_mb"):
        if getattr(flags, name) < 1:
            parser.error(f"--{name} {getattr(flags, name)}: must be at least 1")
    if not flags.output:
        parser.error("--output is empty: must be a folder")
    if not is_remote(flags.output) and os.path.isfile(flags.output):
        parser.error(f"--output {flags.output}: is a file; must be a folder")
    if flags.beam is not None and importlib.util.find_spec("apache_beam") is None:
        parser.error("--beam needs Apache Beam: pip install -e '.[beam]'")
    return flags, gin_files.read_bindings(parser, rest)


def _hear_ctrl_c() -> None:
    """Until the work begins, Ctrl-C ends the process at once: libraries may swallow an exception
    while they are imported, or print it."""

    def act(number: int) -> None:
        if signal.getsignal(number) is interruption.heard:
            interruption.end(interruption.INTERRUPTED, _STOPPED)

    interruption.hear([signal.SIGINT], act)


if __name__ == "__main__":
    _hear_ctrl_c()
    sys.exit(main())
