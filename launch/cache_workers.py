"""Other processes and machines that write shards of cached examples for `launch/cache_task.py`."""

import concurrent.futures
import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import process
from typing import TYPE_CHECKING, Any, NamedTuple

import gin_files
import keras_alone

from gophercite import importing

if TYPE_CHECKING:
    from data_pipelines.task_input import TaskInput


class Configuration(NamedTuple):
    """The flags by which a worker finds the tasks that it works at.

    Attributes:
      files, bindings, search_paths: as `gin_files.load` takes them.
    """

    files: tuple[str, ...]
    bindings: tuple[tuple[str, str], ...]
    search_paths: tuple[str, ...]


class WorkerError(ValueError):
    """A worker ended before its work was done."""


class Work(NamedTuple):
    """A split whose shards are to be written.

    Attributes:
      configuration, task, split: what is cached.
      shards: the fields of `cache_writing.Shards`. A worker that received the object itself would
        import TensorFlow to read it, and more slowly than `_tasks` does.
    """

    configuration: Configuration
    task: str
    split: str
    shards: Mapping[str, Any]


def tasks_of(inputs: Sequence[Any]) -> Mapping[tuple[str, str], tuple[Any, "TaskInput"]]:
    """The tasks (of seqio) of some inputs by name and split, with the inputs that read them."""
    from data_pipelines.task_input import TaskInput

    return {
        (task.name, source.split): (task, source)
        for source in inputs
        if isinstance(source, TaskInput)  # completions of browsing are read without seqio
        for task in source.tasks
    }


def write(work: Work, number: int) -> tuple[int, int]:
    """Writes a shard in a worker, and returns its number and that of its examples."""
    task, source = _tasks(work.configuration)[work.task, work.split]
    lengths = source.feature_lengths(task)
    # Not earlier: `_tasks` imports TensorFlow in less time.
    from data_pipelines.cache_writing import Shards, write_shard

    return number, write_shard(task, work.split, lengths, Shards(**work.shards), number)


def pool(processes: int) -> concurrent.futures.Executor:
    """Processes of this machine, which are started as they are needed, and end with this one."""
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    return concurrent.futures.ProcessPoolExecutor(processes, context, end_with_parent)


def end_with_parent() -> None:
    """Ends this worker as soon as the process that started it ends, and silently on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def in_pool(
    work: Work, numbers: Sequence[int], processes: concurrent.futures.Executor
) -> Iterator[tuple[int, int]]:
    """Has shards written by a pool; yields each as it is complete.

    Raises:
      WorkerError: a worker was killed.
    """
    waiting: list[concurrent.futures.Future[tuple[int, int]]] = []
    try:
        waiting += (processes.submit(write, work, number) for number in numbers)
        for done in concurrent.futures.as_completed(waiting):
            yield done.result()
    except process.BrokenProcessPool:
        raise WorkerError(
            "a worker was killed, perhaps because memory ran out: start this again, with fewer "
            "--processes if so; it goes on where it stopped"
        ) from None
    finally:
        for each in waiting:
            each.cancel()


def on_beam(work: Work, numbers: Sequence[int], flags: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Has shards written by a Beam pipeline; it does not say how many examples they have.

    Args:
      work: the split.
      numbers: its shards.
      flags: the pipeline's options, such as `--runner=DataflowRunner`.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    with beam.Pipeline(options=PipelineOptions(list(flags))) as pipeline:
        _ = (
            pipeline
            | beam.Create(list(numbers))
            | beam.Reshuffle()  # each shard is an element by itself, wherever there is a worker
            | beam.Map(functools.partial(write, work))
        )
    yield from ()


@functools.lru_cache(maxsize=1)
def _tasks(
    configuration: Configuration,
) -> Mapping[tuple[str, str], tuple[Any, "TaskInput"]]:
    os.environ["JAX_PLATFORMS"] = "cpu"  # the machine's accelerators are somebody else's
    with importing.libraries(), keras_alone.keras_alone():
        import configuration as library

    files = gin_files.load(
        configuration.files,
        dict(configuration.bindings),
        configuration.search_paths,
        unset=[],
    )
    with gin_files.one_line(files, dict(configuration.bindings)):
        return tasks_of(library.inputs())
