"""What is legal and likely wrong about a spec's instructions: their rates, and whether its architecture has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rollergen.hal.architectures import Architecture, facts_of
from rollergen.hal.dtypes import DTYPES
from rollergen.hal.findings import NOTE, SLACK, WARNING, Finding
from rollergen.hal.languages import language
from rollergen.hal.matrix_units import lacks
from rollergen.hal.spec import Device, Instruction

_MOST_BESIDE_PLAIN = 256
"""Times the multiply-adds of plain instructions; of the devices described here 64 (ipu2) is the most."""
_BESIDE_FLOAT16, _TF32_BESIDE_FLOAT16 = {4: 8, 8: 4, 16: 1, 32: 0.25, 64: 0.25}, 0.5
"""The most multiply-adds in a clock beside float16's of the same units, by the factors' bits, of the devices described
here and their white papers: of bytes four times as many where float16's are halved for sums in float32 (GeForce), and
twice those of 4 bits."""


def architecture_of(device: Device) -> Architecture:
    """What is known of the first architecture that the device names; of no figure where that is nothing."""
    known = (facts_of(target.arch) for target in device.targets)
    return next((one for one in known if one is not None), Architecture("", {}, ""))


def makes_tflop_s(device: Device, one: Instruction) -> float:
    """TFLOP/s of an instruction at its rate, of the whole chip at its clock."""
    return 2e-6 * device.units * one.m * one.n * one.k * one.per_clock * device.clock_mhz


def peaks_agree(device: Device) -> Iterator[Finding]:
    """The peak of a dtype may be that of one instruction alone: on Hopper wgmma makes it, and mma does not."""
    made = [(one.dtype, one.accumulator_dtype, makes_tflop_s(device, one)) for one in device.instructions]
    for number, one in enumerate(device.instructions):
        rate, printed = makes_tflop_s(device, one), one.peak_dense_tflop_s
        most = max(other for *dtypes, other in made if dtypes == [one.dtype, one.accumulator_dtype])
        if printed and not (rate <= printed * SLACK and printed <= most * SLACK):
            sparse = "; a rate twice too high is often the sparse one" if rate > printed else ""
            yield Finding(
                WARNING if rate > printed else NOTE, f"instructions[{number}].per_clock",
                f"makes {rate:.4g} TFLOP/s of {one.name}, {printed:g} are printed",
                f"per_clock {one.per_clock * printed / rate:.3g} makes that peak, units x 2 m n k x per_clock x clock"
                + sparse,
            )  # fmt: skip


def instructions_are_counted_and_not_multiply_adds(device: Device) -> Iterator[Finding]:
    plain = max((i.n * i.per_clock for i in device.instructions if i.m == i.k == 1), default=0.0)
    for number, one in enumerate(device.instructions):
        rate = one.m * one.n * one.k * one.per_clock
        if plain and rate > _MOST_BESIDE_PLAIN * plain:
            beside = f"{rate / plain:.4g} times the plain ones"
            yield Finding(
                WARNING, f"instructions[{number}].per_clock",
                f"makes {rate:.4g} multiply-adds of {one.name} in a clock of a unit, {beside}",
                "per_clock counts instructions, each of m n k multiply-adds; known devices have up to 64 times",
            )  # fmt: skip


def instructions_are_those_of_the_architecture(device: Device) -> Iterator[Finding]:
    arch = device.targets[0].arch
    for number, one in enumerate(device.instructions):
        if lacks(arch, one):
            yield Finding(
                WARNING, f"instructions[{number}]",
                f"is {one.name} of {one.m} x {one.n} x {one.k} {one.dtype}, for {arch}",
                f"no {arch} has it, or no code is written for it here: programs run slower than its rate predicts",
            )  # fmt: skip


def matrix_units_go_together(device: Device) -> Iterator[Finding]:
    rates = {(one.layout, one.dtype): one.at_once * one.per_clock for one in device.instructions if one.is_matrix}
    for number, one in enumerate(device.instructions):
        half = rates.get((one.layout, "float16"))
        most = _TF32_BESIDE_FLOAT16 if one.dtype == "tf32" else _BESIDE_FLOAT16[DTYPES[one.dtype].bits]
        if one.is_matrix and half and one.at_once * one.per_clock > most * half * SLACK:
            yield Finding(
                WARNING, f"instructions[{number}].per_clock",
                f"makes {one.at_once * one.per_clock / half:.3g} multiply-adds of {one.name} for one of float16's",
                f"known matrix units have at most {most:g}; is one of the two a sparse rate?",
            )  # fmt: skip


def matrix_units_are_used(device: Device) -> Iterator[Finding]:
    """Predictions and programs go without one that no program can name: nothing else says so."""
    if unused := architecture_of(device).unused:
        yield Finding(
            NOTE, "instructions", f"has no word for {unused}",
            "products run by fma, however fast they are; a package may bring a language that has",
        )  # fmt: skip
    if device.kind.machine is not None:
        return
    words = language(device.kind.language).matrix_layouts
    for number, one in enumerate(device.instructions):
        used = device.kind.block_layer is not None and one.layout in words
        if one.m > 1 and one.accumulator_dtype in ("float32", "int32") and not used:
            yield Finding(
                NOTE, f"instructions[{number}]", f"{one.name} of {one.m} x {one.n} x {one.k} is used by no program",
                f"programs in {device.kind.language} take matrix units where threads share managed memory, and the "
                f"instruction's layout is one of {', '.join(sorted(words))}",
            )  # fmt: skip


def lanes_are_issued(device: Device) -> Iterator[Finding]:
    starts = dict(device.costs).get("issue_per_clock") or device.schedulers
    for number, one in enumerate(device.instructions if device.kind.lockstep else ()):
        most = starts * device.execution_width
        if one.lanes == one.m == one.k == 1 and one.per_clock > most * SLACK:
            yield Finding(
                NOTE, f"instructions[{number}].per_clock",
                f"is {one.per_clock:g} of {one.name}; {starts:g} instructions of {device.execution_width} threads "
                f"start {most:g} in a clock",
                "the rate is never reached: are schedulers and execution_width its own?",
            )  # fmt: skip


INSTRUCTION_LINTS: tuple[Callable[[Device], Iterator[Finding]], ...] = (
    peaks_agree,
    instructions_are_counted_and_not_multiply_adds,
    instructions_are_those_of_the_architecture,
    matrix_units_go_together,
    lanes_are_issued,
    matrix_units_are_used,
)
