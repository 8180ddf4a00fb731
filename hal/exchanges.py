"""How OpenCL C spells an exchange of registers within a sub-group, by the extension that a target names.

Source: Khronos' OpenCL extension specification (cl_khr_subgroup_shuffle, cl_khr_subgroup_shuffle_relative,
cl_intel_subgroups).  Intel's shuffles up and down take two operands, which are the halves of one vector: what moves
beyond the first half comes from the second.  Not here: Qualcomm's cl_qcom_subgroup_shuffle, which cannot read the
register of an arbitrary lane, and ROCm, whose OpenCL has no such extension.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

KEY = "exchange_extension"
"""Of a target's dialect."""


class Exchanges(NamedTuple):
    """``calls``: the text of an exchange of {x} by {by}; ``beside``: an extension that the device must have, too."""

    calls: Mapping[str, str]
    beside: str


EXTENSIONS = {
    "cl_khr_subgroup_shuffle": Exchanges({
        "from": "sub_group_shuffle({x}, {by})", "xor": "sub_group_shuffle_xor({x}, {by})",
        "up": "sub_group_shuffle_up({x}, {by})", "down": "sub_group_shuffle_down({x}, {by})",
    }, "cl_khr_subgroup_shuffle_relative"),
    "cl_intel_subgroups": Exchanges({
        "from": "intel_sub_group_shuffle({x}, {by})", "xor": "intel_sub_group_shuffle_xor({x}, {by})",
        "up": "intel_sub_group_shuffle_up({x}, {x}, {by})", "down": "intel_sub_group_shuffle_down({x}, {x}, {by})",
    }, "cl_intel_subgroups_short"),
}  # fmt: skip
"""The preferred first."""
