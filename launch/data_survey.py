"""What a run will train on, reported before it starts: records used, dropped, and why."""

import logging
from typing import TextIO

import configuration
import jax

from data_pipelines.survey import survey
from data_pipelines.task_input import TaskInput


class DataError(ValueError):
    """The data can't be used for training; the message is one line."""


def show(run: configuration.Run, out: TextIO) -> None:
    """Reports what happens to the records of files, for training and each evaluation.

    Args:
      run: the run; nothing is printed for one that does not train on files.
      out: output stream.

    Raises:
      DataError: a file can't be read, or contains nothing usable.
    """
    logging.disable(logging.WARNING)  # the inputs' own messages are printed here
    try:
        _show(run, out)
    finally:
        logging.disable(logging.NOTSET)


def _show(run: configuration.Run, out: TextIO) -> None:
    for name, input in {"training": run.input, **run.evaluations}.items():
        if not isinstance(input, TaskInput):
            continue
        try:
            for line in survey(name, input):
                if jax.process_index() == 0:
                    out.write(f"{line}\n")
        except (ValueError, OSError) as error:
            first, *more = str(error).splitlines() or [repr(error)]
            why = next((line for line in more if ".jsonl" in line), "")
            raise DataError(f"{name}: {first}{': ' if why else ''}{why}") from error
    out.flush()
