"""Operations of numba functions that are written as LLVM's."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

# `numba.extending.intrinsic`, whose own type has the typing context among a call's arguments.
operation: Any = intrinsic


def call_llvm(builder: Any, name: str, result: ir.Type, *args: Any, **flags: Any) -> Any:
    """Calls a function of LLVM's, or one that is known by its name."""
    llvm_type = ir.FunctionType(result, [arg.type for arg in args])
    function = cgutils.get_or_insert_function(builder.module, llvm_type, name)
    return builder.call(function, args, **flags)
