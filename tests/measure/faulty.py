"""Candidates with a fault written into their source: what a device, a driver or a lowering may do to a process."""

from dataclasses import replace

from rollergen.measure.profiler import propose
from rollergen.targets import resolve
from tests import programs

CPU = resolve("cpu")
RIGHT = programs.relu(1000)

LOOP = "{ volatile int more = 1; while (more) { } }"
FILL = "for (long k = 0; k < 1L << 40; ++k) { Y[k] = 1.0f; Y[-k] = 1.0f; }"
TRAP = "__builtin_trap();"
WRONG = "if (block == 3) { Y[999] = Y[999] + 1.0f; }"
RACE = """{
    unsigned now;
    __asm__ volatile("rdtsc" : "=a"(now) : : "edx");
    if (block == 0) {
        for (int k = 0; k < 64; ++k) {
            Y[k] = as_float(as_int(Y[k]) ^ (int)((now + k) * 2654435761u >> 31));
        }
    }
}"""
"""The last bits by a clock, where a racing kernel's depend on which thread came first."""
GREEDY = "{ volatile float much[1 << 26]; much[block] = 0.0f; for (int k = 0; k < 1 << 26; ++k) much[k] = much[k / 2]; }"


def never_compiles(text):
    """A condition of 10^12 terms in front of the source: the compiler is busy for an hour and needs no memory."""
    names = "abcdefghijkl"
    terms = ["1", *(f"TERMS_{name}" for name in names)]
    lines = [f"#define TERMS_{name} {'+'.join([inner] * 10)}" for name, inner in zip(names, terms[:-1], strict=True)]
    return "\n".join([*lines, f"#if {terms[-1]}", "#endif", text])


def sources(*faults):
    """Proposals, one for each fault: statements put at the start of the kernel, or a function of the source's text."""
    return [with_fault(one, fault) for one, fault in zip(propose([RIGHT] * len(faults), CPU), faults, strict=True)]


def with_fault(proposal, fault):
    text = proposal.source.text
    if fault is None:
        return proposal
    changed = fault(text) if callable(fault) else text[: text.rindex("}")] + fault + "\n}\n"
    assert changed != text
    return replace(proposal, source=replace(proposal.source, text=changed))
