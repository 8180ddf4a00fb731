"""Whether the threads of a sub-group of an OpenCL device exchange registers, and how many they are: by running it.

No driver tells the size for sure: that of a kernel is its compiler's choice, unless it is asked for
(cl_intel_required_subgroup_size; Intel's CPU runtime takes 8 on AVX2 where it is not).
"""

from __future__ import annotations

import numpy as np

from rollergen.hal.dataclass import dataclass
from rollergen.hal.errors import BuildError
from rollergen.hal.exchanges import EXTENSIONS, KEY
from rollergen.hal.runtimes.opencl_buffers import BufferRuntime

REQUIRED = "cl_intel_required_subgroup_size"
"""The extension by which a kernel asks for a size."""
WIDTHS = (32, 16, 64, 8)
"""In this order, where a kernel may ask: those of 32 fold a block of 1024 in two steps."""
_THREADS, _SEEDED = 256, 7
_TEXT = """#pragma OPENCL EXTENSION {extension} : enable
kernel {attribute} __attribute__((reqd_work_group_size(256, 1, 1)))
void exchanged(global int *out)
{{
    const int at = get_local_id(0);
    const int value = 7 * at;
    out[at] = get_sub_group_size();
    out[256 + at] = {xor};
    out[512 + at] = {third};
    out[768 + at] = {up};
    out[1024 + at] = {down};
}}
"""


@dataclass(frozen=True, slots=True)
class SubGroups:
    """Threads of a sub-group, the extension by which they exchange registers, and the attribute by which a kernel asks
    for that size ("": it needs none)."""

    width: int
    extension: str
    attribute: str

    @property
    def dialect(self) -> dict[str, str]:
        """What a target says of them."""
        asked = {"kernel_attribute": self.attribute} if self.attribute else {}
        return {KEY: self.extension, **asked}


def sub_groups(runtime: BufferRuntime) -> SubGroups | None:
    """None where they exchange nothing, or wrongly: reductions then go through local memory."""
    if runtime.limits.threads < _THREADS:
        return None
    asked = REQUIRED in runtime.extensions
    for extension, has in EXTENSIONS.items():
        if not {extension, has.beside} <= runtime.extensions:
            continue
        for width in WIDTHS if asked else (0,):
            attribute = f"__attribute__((intel_reqd_sub_group_size({width})))" if asked else ""
            found = _width_of(runtime, extension, attribute)
            if found and found in (width or found,):
                return SubGroups(found, extension, attribute)
    return None


def _width_of(runtime: BufferRuntime, extension: str, attribute: str) -> int:
    """Threads of a sub-group, 0 where there are none or they exchange wrongly."""
    calls = EXTENSIONS[extension].calls
    made = {how: calls[how].format(x="value", by=1) for how in ("xor", "up", "down")}
    third = calls["from"].format(x="value", by=3)
    try:
        text = _TEXT.format(extension=extension, attribute=attribute, third=third, **made)
        kernel = runtime.compile(text).kernel("exchanged")
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
