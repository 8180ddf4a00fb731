"""A rule that is added in one place holds in every variant, and the ledger tells what it rejected."""

import pytest

import rollergen as rg
from rollergen.construct import construct
from rollergen.construct.choose import choice
from rollergen.hal.load import load_device
from rollergen.program.rprogram import PARALLEL
from rollergen.research import planned
from rollergen.space import rules
from rollergen.space.engine import Rule

WHOLE = 128
"""The added rule admits whole multiples of so many threads: more than an execution width."""
ADDED = Rule("whole groups", lambda space, digit: digit.kind in PARALLEL, lambda points, facts: facts.threads % WHOLE == 0)
T = rg.tensor
CASES = {
    "product": lambda: rg.ops.matmul(T("A", (512, 512)), T("B", (512, 512))),
    "split product": lambda: rg.ops.matmul(T("A", (128, 65536)), T("B", (65536, 128))),
    "matrix instructions": lambda: rg.ops.matmul(T("A", (512, 512), "float16"), T("B", (512, 512), "float16")),
    "windows": lambda: rg.ops.depthwise_conv2d(T("X", (8, 64, 56, 56)), T("W", (64, 1, 3, 3)), padding=1),
    "map": lambda: rg.ops.relu(T("X", (4096, 1024))),
    "columns": lambda: rg.ops.sum(T("X", (4096, 1024)), 0),
    "rows": lambda: rg.ops.softmax(T("X", (512, 4096))),
}


@pytest.mark.parametrize("device", ["v100", "mi50"])
@pytest.mark.parametrize("case", CASES)
def test_a_rule_that_is_added_holds_in_every_variant(case, device, monkeypatch):
    on = load_device(device)
    graph = planned(CASES[case](), on)
    monkeypatch.setattr(rules, "ALIGNMENT", (*rules.ALIGNMENT, ADDED))
    choice.cache_clear()
    try:
        found = construct(graph, on, top_k=10)
        accounts = [choice(op, on, rg.BuildOptions().rules, 10).account for op in graph.tensor_ops]
    finally:
        choice.cache_clear()
    assert {stage.threads % WHOLE for one in found for stage in one.program.stages} == {0}
    assert ADDED.name in {name for account in accounts for name, _ in account.rejections}
