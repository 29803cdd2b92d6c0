"""One hint for the processor: which numbers of arrays will be read soon."""

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# numba's own annotations do not fit what its documentation tells to do.
_types: Any = types
_cgutils: Any = cgutils
_intrinsic: Any = intrinsic


@_intrinsic
def prefetch(typing, index, first, second):  # type: ignore[no-untyped-def] # noqa: ARG001
    """Fetch ``first[index]`` and ``second[index]`` into the cache; it changes nothing."""
    signature = _types.void(index, first, second)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Write LLVM's prefetch of both places, for reading, to stay in all caches."""
        number = ir.IntType(32)
        for kind, array in zip(signature.args[1:], arguments[1:], strict=True):
            data = context.make_array(kind)(context, builder, array).data
            place = builder.bitcast(builder.gep(data, [arguments[0]]), ir.IntType(8).as_pointer())
            hint = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
            name = _cgutils.get_or_insert_function(builder.module, hint, "llvm.prefetch.p0")
            builder.call(name, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return signature, generate
