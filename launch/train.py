"""Trains a model from gin files; started again with the same MODEL_DIR, it resumes.

examples:
  # a small model on two CPU cores
  python launch/train.py --gin_file=gin_configs/sft_sample_world.gin --gin.MODEL_DIR=runs/sft

  # override the file's settings; try with --dry_run first
  python launch/train.py --gin_file=gin_configs/sft_sample_world.gin --gin.MODEL_DIR=runs/sft \\
    --gin.TRAIN_STEPS=600 --gin.train.evaluate_every=50 --dry_run

  # on every host of a TPU pod slice; processes find each other
  python launch/train.py --distributed --gin_file=gin_configs/sft_gopher_280b.gin \\
    --gin.MODEL_DIR=gs://bucket/runs/sft

exit status: 0 done; 1 refused or failed, with one line that says why; 2 wrong usage; 69 the other
processes, a bucket or a disk could not be used: try again; 70 an error of the program itself, with
a traceback; 75 asked to stop (SIGTERM, Ctrl-C) and saved: run it again. A second Ctrl-C ends it at
once (130). launch/keep_running.py restarts it if that can help.
"""

import argparse
import errno
import logging
import os
import signal
import sys
from collections.abc import Sequence

import gin_files
import keras_alone
import setting_checks

from gophercite import importing, interruption
from gophercite.cli import processes
from gophercite.storage.json_fields import in_one_line

RETRY = 75  # as in `gophercite.training.preemption`, which imports JAX
# File errors that would be the same the next time.
LASTING = (
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)
LASTING_NUMBERS = {errno.ELOOP, errno.ENAMETOOLONG, errno.EROFS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    flags, bindings = parse(arguments)
    try:
        setting_checks.check(flags.gin_file, bindings, flags.gin_search_paths)
    except (gin_files.ConfigurationError, OSError) as error:
        print(f"train: {in_one_line(error)}", file=sys.stderr)
        return 1
    with importing.libraries(), keras_alone.keras_alone():
        _set_up_jax(flags)
        # Imported here because they load JAX and TensorFlow, for which --help and a wrong name need
        # not wait.
        import configuration
        import data_survey
        import dry_run
        import host_memory
        import warmup

        from gophercite.model_folders.checkpoint_errors import CheckpointError
        from gophercite.monitoring.pending import NonFiniteLossError
        from gophercite.storage.json_fields import RecordError
        from gophercite.training.checkpoints import NonFiniteStateError
        from gophercite.training.early_stopping import UnknownMetricError
        from gophercite.training.preemption import EXIT_CODE, Preempted
        from gophercite.training.run_folder import refuse_unfit_folder
        from gophercite.training.run_lock import RunInUseError

    try:
        processes.join(flags, "train")
        files = gin_files.load(flags.gin_file, bindings, flags.gin_search_paths)
        for line in warmup.shorten():
            print(f"train: {line}", file=sys.stderr)
        with gin_files.one_line(files, bindings):
            run = configuration.build()
            refuse_unfit_folder(run.settings.model_dir, run.transformer.config)
        data_survey.show(run, sys.stderr)
        if flags.dry_run:
            dry_run.show(run, sys.stdout)
            return 0
        host_memory.keep_freed_buffers()
        run.train()
    except Preempted as notice:
        print(f"train: {notice}", file=sys.stderr)
        return EXIT_CODE
    except processes.JoinError as error:
        print(f"train: {in_one_line(error)}", file=sys.stderr)
        return 1 if isinstance(error, processes.DisagreementError) else processes.UNAVAILABLE
    except (
        gin_files.ConfigurationError,
        data_survey.DataError,
        CheckpointError,
        NonFiniteLossError,
        NonFiniteStateError,
        RecordError,
        RunInUseError,
        UnknownMetricError,
        OSError,  # a missing data file, a full disk
    ) as error:
        print(f"train: {in_one_line(error)}", file=sys.stderr)
        return processes.UNAVAILABLE if _may_pass(error) else 1
    return 0


def parse(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, dict[str, str]]:
    """The command's flags and gin's bindings."""
    parser = argparse.ArgumentParser(
        prog="train.py",
        description=__doc__,
        usage="train.py --gin_file=FILE [--gin_file=FILE …] [--gin.NAME=VALUE …] [options]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    gin_files.add_flags(parser)
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="print the first batch, the parameters and the memory needed, without training",
    )
    processes.add_flags(parser)
    parser.add_argument(
        "--compilation_cache",
        metavar="DIR",
        default=os.environ.get("JAX_COMPILATION_CACHE_DIR", str(gin_files.ROOT / ".jax_cache")),
        help="where compiled programs are kept (default %(default)s)",
    )
    flags, rest = parser.parse_known_args(arguments)
    processes.check(parser, flags)
    return flags, gin_files.read_bindings(parser, rest)


def _may_pass(error: Exception) -> bool:
    """Whether the same command could succeed later: a bucket did not answer, or a disk is full."""
    lasting = isinstance(error, LASTING) or getattr(error, "errno", None) in LASTING_NUMBERS
    return isinstance(error, OSError) and not lasting


def _set_up_jax(flags: argparse.Namespace) -> None:
    """Turns on the compilation cache and silences imported libraries."""
    # TensorFlow only reads data here; its messages about missing GPUs don't matter.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    # We name a damaged checkpoint ourselves; its readers' own messages are pages long.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    # The same of a full disk: Orbax logs the traceback of each of its threads, and raises it, too.
    logging.getLogger("absl").addFilter(_is_no_traceback_of_orbax)
    import jax

    jax.config.update("jax_compilation_cache_dir", flags.compilation_cache)


def _is_no_traceback_of_orbax(record: logging.LogRecord) -> bool:
    return not (record.exc_info and f"{os.sep}orbax{os.sep}" in record.pathname)


def _hear_signals() -> None:
    """From now on SIGTERM and Ctrl-C end the process, after a checkpoint if a run has begun."""
    interrupts = 0

    def act(number: int) -> None:
        nonlocal interrupts
        interrupts += number == signal.SIGINT
        if signal.getsignal(signal.SIGINT) is interruption.heard:  # the run has no handler yet
            interruption.end(
                RETRY, "train: stopped on request; nothing was running that could be saved"
            )
        if interrupts > 1:
            interruption.end(interruption.INTERRUPTED)

    interruption.hear([signal.SIGTERM, signal.SIGINT], act)


if __name__ == "__main__":
    _hear_signals()
    status = processes.status_of(main, "train", together=(0, RETRY))
    interruption.over([signal.SIGTERM, signal.SIGINT])
    sys.exit(status)
