"""Files, on a disk or in a bucket: every path argument may also be `gs://BUCKET/NAME`.

Paths are those of `etils.epath`. Buckets are accessed through gcsfs, in production as in the tests:
TensorFlow has its own client, which can't be pointed at another server.
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
