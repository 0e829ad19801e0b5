"""XLA's C interface for custom operations: the memory layout of its structures.

It follows `xla/ffi/api/c_api.h`, which comes with jaxlib (`jax.ffi.include_dir()`); a test compares
the two. Classes and fields have the same names as there, without `XLA_FFI_`.
"""

import ctypes
from typing import Any

MAJOR, MINOR = 0, 3  # of the interface

_POINTER, _WORD, _INT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_HEADER: list[tuple[str, Any]] = [("struct_size", ctypes.c_size_t), ("extension_start", _POINTER)]
_LIST: list[tuple[str, Any]] = [*_HEADER, ("size", _WORD), ("types", _POINTER)]


class Args(ctypes.Structure):
    """The arguments of a call."""

    _fields_ = [*_LIST, ("args", _POINTER)]


class Rets(ctypes.Structure):
    """The results of a call."""

    _fields_ = [*_LIST, ("rets", _POINTER)]


class Attrs(ctypes.Structure):
    """The attributes of a call."""

    _fields_ = [*_LIST, ("names", _POINTER), ("attrs", _POINTER)]


class CallFrame(ctypes.Structure):
    """A call frame."""

    _fields_ = [
        *_HEADER,
        ("api", _POINTER),
        ("ctx", _POINTER),
        ("stage", _INT),
        ("args", Args),
        ("rets", Rets),
        ("attrs", Attrs),
        ("future", _POINTER),
    ]


class Buffer(ctypes.Structure):
    """An argument or result."""

    _fields_ = [
        *_HEADER,
        ("dtype", _INT),
        ("data", _POINTER),
        ("rank", _WORD),
        ("dims", _POINTER),
    ]


class Api_Version(ctypes.Structure):  # noqa: N801
    """A version of the interface."""

    _fields_ = [*_HEADER, ("major_version", _INT), ("minor_version", _INT)]


class Metadata(ctypes.Structure):
    """What XLA asks about a function."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("api_version", Api_Version),
        ("traits", ctypes.c_uint32),
        ("state_type_id", _WORD),
    ]


class Extension_Base(ctypes.Structure):  # noqa: N801
    """The header of a structure's extension."""

    _fields_ = [("struct_size", ctypes.c_size_t), ("type", _INT), ("next", _POINTER)]


class Metadata_Extension(ctypes.Structure):  # noqa: N801
    """The extension by which XLA asks for metadata."""

    _fields_ = [("extension_base", Extension_Base), ("metadata", _POINTER)]


class Api(ctypes.Structure):
    """XLA's functions that are used here."""

    _fields_ = [
        *_HEADER,
        ("api_version", Api_Version),
        ("internal_api", _POINTER),
        ("Error_Create", _POINTER),
        ("Error_GetMessage", _POINTER),
        ("Error_Destroy", _POINTER),
        ("Handler_Register", _POINTER),
        ("Stream_Get", _POINTER),
        ("Type_Register", _POINTER),
        ("ExecutionContext_Get", _POINTER),
        ("State_Set", _POINTER),
        ("State_Get", _POINTER),
        ("DeviceMemory_Allocate", _POINTER),
        ("DeviceMemory_Free", _POINTER),
        ("ThreadPool_Schedule", _POINTER),
        ("ThreadPool_NumThreads", _POINTER),
        ("Future_Create", _POINTER),
        ("Future_SetAvailable", _POINTER),
    ]


def _word(*fields: Any) -> int:
    """The index of a field's 64-bit word, given its path through nested structures."""
    return sum(field.offset for field in fields) // 8


EXTENSION = _word(CallFrame.extension_start)
EXTENSION_TYPE, METADATA = _word(Extension_Base.type), _word(Metadata_Extension.metadata)
ASKS_FOR_METADATA = 1
VERSION = _word(Metadata.api_version, Api_Version.major_version)
API, CONTEXT = _word(CallFrame.api), _word(CallFrame.ctx)
ARGUMENTS = _word(CallFrame.args, Args.args)
RESULTS = _word(CallFrame.rets, Rets.rets)
FUTURE = _word(CallFrame.future)
DTYPE, DATA, DIMS = _word(Buffer.dtype), _word(Buffer.data), _word(Buffer.dims)
BFLOAT16 = 16  # XLA_FFI_DataType_BF16
DESTROY_ERROR = _word(Api.Error_Destroy)
SCHEDULE, NUM_THREADS = _word(Api.ThreadPool_Schedule), _word(Api.ThreadPool_NumThreads)
NEW_FUTURE, SET_AVAILABLE = _word(Api.Future_Create), _word(Api.Future_SetAvailable)
