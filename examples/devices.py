"""One operator on every device that rollergen knows: its predicted time, what binds it, and the tile of a block."""

import rollergen as rg
from rollergen.hal.load import every_spec

x, w = rg.tensor("x", (512, 768)), rg.tensor("w", (3072, 768))
layer = rg.ops.relu(rg.ops.linear(x, w))

print(f"{'device':>12}  {'us':>8}  {'bound by':16}  tile of a block")
for name, device in sorted(every_spec(), key=lambda one: one[0]):
    if device.name == "cpu":  # it completes itself by measuring this machine, which takes some seconds
        continue
    kernel = rg.build(layer, device, profile=False)
    (stage, *_) = kernel.explain(as_dict=True)["stages"]
    tile = next((level["tile"] for level in stage["tiles"] if level["level"] != "tensor"), {})
    sides = " x ".join(f"{axis} {extent}" for axis, extent in tile.items())
    print(f"{name:>12}  {1e6 * kernel.predicted_time:8.1f}  {stage['binding']:16}  {sides}")
