"""The steps for which a run has complete checkpoints; reading them needs no JAX."""

import os

from etils import epath

from gophercite.storage.paths import forget_listings, is_remote, naming_storage, storage_path

CHECKPOINTS = "checkpoints"
COMMITTED = "commit_success.txt"  # in a bucket, the last object of a checkpoint to be written


def checkpoints_folder(folder: epath.PathLike) -> epath.Path:
    """A run's checkpoints folder, as an absolute path: Orbax accepts no other."""
    root = storage_path(folder) / CHECKPOINTS
    return root if is_remote(folder) else epath.Path(os.path.abspath(root))


def saved_steps(folder: epath.PathLike) -> list[int]:
    """Steps with complete checkpoints in a run's folder, oldest first.

    Raises:
      StorageError: its bucket can't be used.
    """
    root = checkpoints_folder(folder)
    with naming_storage(root):
        if is_remote(root):
            forget_listings(root)
        if not root.exists():
            return []
        steps = [path for path in root.iterdir() if path.name.isdecimal()]
        # On a disk, Orbax renames a step's folder to its number once all files are written. A
        # bucket can't rename: there Orbax writes a marker last.
        if is_remote(root):
            steps = [path for path in steps if (path / COMMITTED).exists()]
    return sorted(int(path.name) for path in steps)
