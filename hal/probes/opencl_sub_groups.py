"""Whether the threads of a sub-group of an OpenCL device exchange registers, and how many they are: by running it.

No driver tells the size for sure: that of a kernel is its compiler's choice, unless it is asked for
(cl_intel_required_subgroup_size; Intel's CPU runtime takes 8 on AVX2 where it is not).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rollergen.hal.errors import BuildError
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime

SHUFFLE, RELATIVE, REQUIRED = (
    "cl_khr_subgroup_shuffle", "cl_khr_subgroup_shuffle_relative", "cl_intel_required_subgroup_size",
)  # fmt: skip
"""Extensions: `from` and `xor`; `up` and `down`; the size that a kernel asks for."""
WIDTHS = (32, 16, 64, 8)
"""In this order, where a kernel may ask: those of 32 fold a block of 1024 in two steps."""
_THREADS, _SEEDED = 256, 7
_TEXT = """#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
kernel ATTRIBUTE __attribute__((reqd_work_group_size(256, 1, 1)))
void exchanged(global int *out)
{
    const int at = get_local_id(0);
    const int value = 7 * at;
    out[at] = get_sub_group_size();
    out[256 + at] = sub_group_shuffle_xor(value, 1);
    out[512 + at] = sub_group_shuffle(value, 3);
    out[768 + at] = sub_group_shuffle_up(value, 1);
    out[1024 + at] = sub_group_shuffle_down(value, 1);
}
"""


@dataclass(frozen=True, slots=True)
class SubGroups:
    """Threads of a sub-group, and the attribute by which a kernel asks for that size ("": it needs none)."""

    width: int
    attribute: str

    @property
    def dialect(self) -> dict[str, str]:
        """What a target says of them."""
        asked = {"kernel_attribute": self.attribute} if self.attribute else {}
        return {"exchange_extension": SHUFFLE, **asked}


def sub_groups(runtime: BufferRuntime) -> SubGroups | None:
    """None where they exchange nothing, or wrongly: reductions then go through local memory."""
    if not {SHUFFLE, RELATIVE} <= runtime.extensions or runtime.limits.threads < _THREADS:
        return None
    asked = REQUIRED in runtime.extensions
    for width in WIDTHS if asked else (0,):
        attribute = f"__attribute__((intel_reqd_sub_group_size({width})))" if asked else ""
        found = _width_of(runtime, attribute)
        if found and found in (width or found,):
            return SubGroups(found, attribute)
    return None


def _width_of(runtime: BufferRuntime, attribute: str) -> int:
    """Threads of a sub-group, 0 where there are none or they exchange wrongly."""
    try:
        kernel = runtime.compile(_TEXT.replace("ATTRIBUTE", attribute)).kernel("exchanged")
        out = runtime.wrap(np.full(5 * _THREADS, -1, np.int32))
        runtime.set_arguments(kernel, [out])
        runtime.launch(kernel, 1, _THREADS)
    except (BuildError, runtime.opencl.Error):
        return 0
    sizes, xor, of, up, down = runtime.read(out, 0, 20 * _THREADS).view(np.int32).reshape(5, _THREADS)
    width = int(sizes[0])
    if width not in WIDTHS or (sizes != width).any():
        return 0
    at = np.arange(_THREADS)
    first, lane = at // width * width, at % width
    right = (xor == _SEEDED * (at ^ 1)) & (of == _SEEDED * (first + 3))
    right &= (up == _SEEDED * (at - 1)) | (lane == 0)
    right &= (down == _SEEDED * (at + 1)) | (lane == width - 1)
    return width if right.all() else 0
