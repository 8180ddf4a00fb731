"""Construction and machine code take no more instructions than the committed baseline says, where that can be counted."""

import copy
import subprocess

import pytest

from benches import instructions

BASE = instructions.baseline()


def _same_tools(kind, tools):
    if tools is None:
        pytest.skip(f"what counts {kind} is not installed")
    if BASE.get(kind, {}).get("tools") != tools:
        pytest.skip(f"the baseline is of {BASE.get(kind, {}).get('tools')}, this is {tools}")


def test_construction_takes_no_more_instructions_than_its_baseline():
    tools = instructions.construction_tools()
    _same_tools("construction", tools)
    case, device = instructions.CONSTRUCTED
    now = {"construction": {"tools": tools, "counts": {f"{case}, {device}": instructions.construction(case, device)}}}
    worse = instructions.regressions(BASE, now)
    assert not worse, "\n".join([*worse, "python benches/bench_counts.py --rebase accepts them"])


@pytest.mark.parametrize("case", instructions.COMPILED[1])
def test_kernels_are_no_longer_than_their_baseline(case):
    device = instructions.COMPILED[0]
    _same_tools("machine code", instructions.machine_code_tools(device))
    counted = instructions.machine_code(case, device)
    if counted is None:
        pytest.skip(f"no disassembler here reads the code of {device}")
    name = f"{case}, {device}"
    assert counted <= BASE["machine code"]["counts"][name] * (1 + instructions.MARGINS["machine code"])


@pytest.mark.parametrize("kind", instructions.MARGINS)
def test_more_instructions_are_told_and_other_tools_are_not_compared(kind):
    now = copy.deepcopy(BASE)
    case = next(iter(BASE[kind]["counts"]))
    now[kind]["counts"][case] = round(BASE[kind]["counts"][case] * (1 + instructions.MARGINS[kind])) + 2
    (told,) = instructions.regressions(BASE, now)
    assert told.startswith(f"{kind} of {case}: ") and "before" in told
    now[kind]["tools"] = "others"
    assert instructions.regressions(BASE, now) == []


def test_a_case_that_is_gone_is_told():
    now = copy.deepcopy(BASE)
    now["machine code"]["counts"].pop("relu, a100")
    assert instructions.regressions(BASE, now) == ["machine code of relu, a100: it is not counted any more"]


@pytest.mark.parametrize(("said", "why"), [("Collected : 0", "never entered _PyEval_CallTracing"), ("", "failed")])
def test_a_count_of_nothing_is_no_count(monkeypatch, said, why):
    done = subprocess.CompletedProcess([], 0, "", said)
    monkeypatch.setattr(instructions.subprocess, "run", lambda *words, **how: done)
    with pytest.raises(RuntimeError, match=f"callgrind of matmul on v100.*{why}"):
        instructions.construction("matmul", "v100")
