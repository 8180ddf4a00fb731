"""Copies past the registers in CUDA (cp.async, from sm_80 on): the functions that a kernel brings, by inline PTX.

A copy of 16 bytes goes past the first cache as well, unless its route is through it.  Source size 0 writes zeros and
reads nothing, so that a guard is no branch.  Their names are defined for NVIDIA's compilers only: a host that runs the
text brings its own.
"""

from __future__ import annotations

from rollergen.errors import ProgramError
from rollergen.lower.expressions import Broadcast, Expr, Number, Operation, Read
from rollergen.lower.ir import Route, Write

BYTES = (4, 8, 16)

GROUPS = """#ifdef __CUDACC__
__device__ __forceinline__ void end_copies()
{
    asm volatile("cp.async.commit_group;");
}

template <int PENDING> __device__ __forceinline__ void wait_copies()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
}
#endif
"""


def name_of(bytes_: int, route: Route) -> str:
    """Of the function that copies so many bytes; shorter ones than 16 know one way."""
    return f"copy_async_{'cached_' if bytes_ == 16 and route == Route.THROUGH_CACHE else ''}{bytes_}"


def function(name: str, bytes_: int) -> str:
    """``name(to, from, wanted)``: `to` in shared memory gets `wanted` bytes, then zeros."""
    through = "cg" if name == "copy_async_16" else "ca"
    return f"""#ifdef __CUDACC__
__device__ __forceinline__ void {name}(void *to, const void *from, const int wanted)
{{
    const unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
    asm volatile("cp.async.{through}.shared.global [%0], [%1], {bytes_}, %2;" :: "r"(at), "l"(from), "r"(wanted));
}}
#endif
"""


def source_of(node: Write) -> tuple[Read, Expr | None]:
    """(what is read, where; None: everywhere) of an asynchronous write.

    Raises ProgramError for a value that no such copy can bring.
    """
    value, condition = node.value, None
    if isinstance(value, Operation) and value.op == "select":
        condition, value, other = value.operands
        other = other.operand if isinstance(other, Broadcast) else other
        if not isinstance(other, Number) or other.value != 0:
            raise ProgramError(f"an asynchronous copy into {node.pointer.name} fills with {other}; expected zeros")
    if not isinstance(value, Read) or value.pointer.scope != "global":
        raise ProgramError(
            f"an asynchronous copy into {node.pointer.name} brings {type(value).__name__}; expected a read of memory"
        )
    return value, condition


def checked_bytes(bytes_: int, node: Write) -> int:
    if bytes_ not in BYTES:
        raise ProgramError(
            f"an asynchronous copy into {node.pointer.name} at {node.offset} moves {bytes_} bytes; expected one of "
            f"{BYTES}"
        )
    return bytes_
