"""Prefetch instruction for compiled loops: array entries that will be read soon."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# numba's annotations contradict its documentation of intrinsics, so they are ignored.
_types: Any = types
_cgutils: Any = cgutils
_intrinsic: Any = intrinsic

# Arguments of LLVM's instruction.
_READ = 0  # kind of access
_ALL_LEVELS = 3  # locality: the entry is kept in all levels of the cache
_DATA = 1  # kind of cache: for data, not for instructions


@_intrinsic
def prefetch(typing, index, first, second):  # type: ignore[no-untyped-def] # noqa: ARG001
    """Fetch ``first[index]`` and ``second[index]`` into the cache, without any other effect.

    For compiled code: `first` and `second` are arrays, `index` an integer. `typing` is the typing
    context, which numba passes to every intrinsic.
    """
    signature = _types.void(index, first, second)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Emit LLVM's prefetch instruction for both addresses, and return the LLVM value of None.

        numba passes its target `context`, the LLVM `builder`, the `signature` from above, and
        `arguments`, the LLVM values of `index`, `first` and `second`.
        """
        int32 = ir.IntType(32)
        for array_type, array in zip(signature.args[1:], arguments[1:], strict=True):
            data = context.make_array(array_type)(context, builder, array).data
            address = builder.bitcast(builder.gep(data, [arguments[0]]), ir.IntType(8).as_pointer())
            prefetch_type = ir.FunctionType(ir.VoidType(), [address.type, int32, int32, int32])
            function = _cgutils.get_or_insert_function(
                builder.module, prefetch_type, "llvm.prefetch.p0"
            )
            builder.call(function, [address, int32(_READ), int32(_ALL_LEVELS), int32(_DATA)])
        return context.get_dummy_value()

    return signature, generate
