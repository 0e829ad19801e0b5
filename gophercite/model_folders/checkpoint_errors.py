"""What can be wrong with a training checkpoint, and how all processes come to know of it."""

import errno
import os
import stat

import jax
import numpy as np
from etils import epath
from jax.experimental import multihost_utils

from gophercite.storage.paths import is_remote

# Errors of the system that say nothing of what is in a file.
_REFUSALS = {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


class CheckpointError(RuntimeError):
    """A checkpoint can't be used; the message says which, why, and what to do."""


class DamagedCheckpointError(CheckpointError):
    """A checkpoint's files are incomplete or differ from what was saved."""


class UnreadableCheckpointError(CheckpointError):
    """The system refuses to open a checkpoint's files, which may be whole."""


def share_damage(damage: CheckpointError | None, path: epath.Path, step: int) -> None:
    """Lets all processes agree on whether a checkpoint is damaged; all must call it.

    Otherwise those that find no damage would wait for the others, which try another checkpoint.

    Args:
      damage: what this process has found.
      path: what it has read.
      step: the checkpoint's step.

    Raises:
      UnreadableCheckpointError: a process may not read it, this one or another.
      DamagedCheckpointError: a process has found damage, this one or another.
    """
    kinds = [type(None), DamagedCheckpointError, UnreadableCheckpointError]
    kind = kinds.index(type(damage))
    found = np.array([kind])
    if jax.process_count() > 1:
        found = multihost_utils.process_allgather(np.array(kind))
    worst = int(found.max())
    if damage is not None and kind == worst:
        raise damage
    finder = int(found.argmax())
    if worst == 2:
        raise UnreadableCheckpointError(f"{path}: process {finder} may not read checkpoint {step}")
    if worst == 1:
        raise damaged(path, f"is cut short or damaged for process {finder}", step)


def unusable(path: epath.Path, reason: str, step: int) -> CheckpointError:
    """The error for users where a checkpoint can't be read, which need not be the files' fault.

    Args:
      path: what was to be read of it.
      reason: what is wrong if it is damaged.
      step: the checkpoint's step.
    """
    place = next(each for each in (path, *path.parents) if each.name == str(step))
    refused = None if is_remote(place) else _refused(place)
    if refused is None:
        return damaged(path, reason, step)
    return UnreadableCheckpointError(
        f"{refused.filename}: can't be read: {refused.strerror}. Checkpoint {step} may be whole; "
        "let this user read it, or move it away to use the others"
    )


def _refused(place: epath.Path) -> OSError | None:
    """Why the system refuses to open a file or folder of a checkpoint; None if it doesn't."""
    refusals: list[OSError] = []
    for folder, _, names in os.walk(place, onerror=refusals.append):
        for name in names:
            file = os.path.join(folder, name)
            try:
                if stat.S_ISREG(os.stat(file).st_mode):  # a pipe would be waited for
                    open(file, "rb").close()
            except OSError as error:
                refusals.append(error)
    return next((error for error in refusals if error.errno in _REFUSALS), None)


def damaged(path: epath.Path, reason: str, step: int) -> DamagedCheckpointError:
    """The error for users where a checkpoint is damaged.

    The library's own message stays in the exception's cause.

    Args:
      path: what was read of it.
      reason: what is wrong.
      step: the checkpoint's step.
    """
    return DamagedCheckpointError(
        f"{path}: {reason}; copy checkpoint {step} again, or move it away to use the others"
    )
