"""Operations for numba functions that are written in LLVM."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

# `numba.extending.intrinsic`, untyped, because its own type includes the typing context argument.
operation: Any = intrinsic


def call_llvm(builder: Any, name: str, result: ir.Type, *args: Any, **flags: Any) -> Any:
    """Calls an LLVM intrinsic, or an external function by name."""
    llvm_type = ir.FunctionType(result, [arg.type for arg in args])
    function = cgutils.get_or_insert_function(builder.module, llvm_type, name)
    return builder.call(function, args, **flags)
