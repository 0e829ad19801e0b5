"""That the interface is the one which the jaxlib that is installed was built with."""

import pathlib
import re

import jax
import pytest

from gophercite.kernels import xla_interface

HEADER = (pathlib.Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text()

# What `xla_calls` asks XLA's functions for: fields after the size and extensions, and no others.
REQUESTS = {
    "ThreadPool_NumThreads_Args": ["ctx", "num_threads"],
    "ThreadPool_Schedule_Args": ["ctx", "task", "data"],
    "Future_Create_Args": ["future"],
    "Future_SetAvailable_Args": ["future"],
    "Error_Destroy_Args": ["error"],
}


def fields(structure: str) -> list[str]:
    """The names of a C structure's fields, in their order."""
    (body,) = re.findall(rf"struct XLA_FFI_{structure} {{\n(.*?)\n}}", HEADER, re.DOTALL)
    body = re.sub(r"//.*", "", body)
    body = re.sub(r"_XLA_FFI_API_STRUCT_FIELD\(XLA_FFI_(\w+)\)", r"\1", body)
    return re.findall(r"(\w+)\s*;", body)


@pytest.mark.parametrize(
    "structure",
    [
        xla_interface.Args, xla_interface.Rets, xla_interface.Attrs, xla_interface.CallFrame,
        xla_interface.Buffer, xla_interface.Api_Version, xla_interface.Metadata,
        xla_interface.Extension_Base, xla_interface.Metadata_Extension,
    ],
)  # fmt: skip
def test_structures_have_the_header_s_fields(structure):
    assert [name for name, _ in structure._fields_] == fields(structure.__name__)


def test_xla_s_own_functions_are_where_the_header_has_them():
    ours = [name for name, _ in xla_interface.Api._fields_]
    assert ours == fields("Api")[: len(ours)]


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_what_the_header_takes(name):
    assert fields(name) == ["struct_size", "extension_start", *REQUESTS[name]]


def test_the_version_is_the_header_s():
    for name, ours in (("MAJOR", xla_interface.MAJOR), ("MINOR", xla_interface.MINOR)):
        assert int(re.findall(rf"define XLA_FFI_API_{name} (\d+)", HEADER)[0]) == ours
    assert "XLA_FFI_Extension_Metadata = 1" in HEADER
