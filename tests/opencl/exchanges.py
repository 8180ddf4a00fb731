"""Reductions on one OpenCL implementation that exchanges registers:

    python -m tests.opencl.exchanges PLATFORM:DEVICE [EXTENSION]

EXTENSION: that by which it does, of several.  Prints the sub-groups' size once every one has passed the gate with
shuffles in its text.
"""

import sys
import tempfile
from pathlib import Path

import rollergen as rg
from rollergen.hal.exchanges import EXTENSIONS
from rollergen.hal.load import load_device, save_device
from tests.opencl.sample import spec_of

REDUCTIONS = {
    "sum": lambda: rg.ops.sum(rg.tensor("x", (33, 4000)), -1),
    "argmax": lambda: rg.ops.argmax(rg.tensor("x", (9, 777)), -1),
    "cumsum": lambda: rg.ops.cumsum(rg.tensor("x", (7, 300)), 1),
    **{
        f"max of {dtype}": lambda dtype=dtype: rg.ops.max(rg.tensor("x", (33, 4000), dtype), -1)
        for dtype in ("int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float64")
    },
}

if __name__ == "__main__":
    for other in set(EXTENSIONS) - set(sys.argv[2:]) if sys.argv[2:] else ():
        del EXTENSIONS[other]
    spec = spec_of(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.json"
        save_device(spec, path)
        assert load_device(path) == spec
    for name, make in REDUCTIONS.items():
        kernel = rg.build(make(), spec, top_k=1, profile=True, cache=False)
        print(name, flush=True)
        assert kernel.candidates[0].compared and "sub_group_shuffle" in kernel.source, name
    print(f"registers exchanged within {spec.execution_width} threads")
