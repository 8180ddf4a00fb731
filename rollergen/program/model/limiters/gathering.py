"""Gathering: tiles of factors that threads bring through registers, and find the places of, between products."""

from __future__ import annotations

from rollergen.hal.spec import Device
from rollergen.program.model.costs import Costs
from rollergen.program.model.fragments import gathered_accesses
from rollergen.program.model.limiters.issue import instructions_of_access, issue_rate
from rollergen.program.model.limiters.paths import access_clocks, served_by
from rollergen.program.model.nest import Nest
from rollergen.program.model.numeric import Number
from rollergen.program.model.work import Work


def gathering_clocks(nest: Nest, device: Device, costs: Costs, work: Work) -> tuple[Number, Number]:
    """(instructions of one thread, clocks of one block) that gather tiles of factors.

    All threads of a block gather between two barriers, and multiply between the same: neither hides the other.  Most
    of these instructions are of integers, of which a unit executes fewer than it issues (``integer_per_clock``).
    (102 convolutions of narrow numbers with their channels first, on an H100 and an H200, took 2.0 to 3.5 times as
    long as with gathering among what overlaps.)
    """
    instructions: Number = 0
    clocks: Number = 0
    for access in gathered_accesses(nest, device, work.accesses):
        instructions = instructions + access.count * instructions_of_access(nest, costs, work, access)
        layer = served_by(device, access)
        if layer is not None:
            clocks = clocks + access.count * access_clocks(nest, device, costs, layer, access)
    rate = costs.integer_per_clock or issue_rate(device, costs)
    return instructions, nest.warps * (clocks + instructions / rate)
