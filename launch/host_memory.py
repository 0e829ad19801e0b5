"""How a training process on CPU manages its memory: the C library's settings for large buffers."""

import ctypes

import jax

# Parameters of glibc's `mallopt` (malloc.h).
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_freed_buffers() -> None:
    """On CPU, keeps the memory that a step frees for the next step.

    By default, glibc returns large buffers to the system and allocates new ones for every step,
    with a page fault for each of their pages. The setting is for the whole process, so commands
    make it, not the library. Other C libraries and other devices are left as they are.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt") and jax.default_backend() == "cpu":
        library.mallopt(_MMAP_MAX, 0)
        library.mallopt(_TRIM_THRESHOLD, -1)
