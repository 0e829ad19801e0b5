"""Files, on a disk or in a bucket: wherever a path is taken, `gs://BUCKET/NAME` is one.

Paths are those of `etils.epath`. Buckets are asked by gcsfs, in production as in the tests:
TensorFlow brings a client of its own, which can't be pointed at another server.
"""

from gophercite.storage.paths import (
    StorageError,
    files_in,
    is_remote,
    local_copy,
    naming_storage,
    open_bytes,
    write_file,
    write_whole,
)
from gophercite.storage.whole_folders import whole_folder

__all__ = [
    "StorageError",
    "files_in",
    "is_remote",
    "local_copy",
    "naming_storage",
    "open_bytes",
    "whole_folder",
    "write_file",
    "write_whole",
]
