"""The real compiler's figures of a kernel, beside the model's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rollergen.emit import Launch, Source, emit
from rollergen.errors import DeviceError
from rollergen.hal.compilers.nvrtc import Compiled, Usage
from rollergen.hal.dataclass import dataclass
from rollergen.hal.languages import Compiler, language, language_names
from rollergen.hal.spec import Device, Target
from rollergen.program.model import predict
from rollergen.program.model.occupancy import warps_by_registers
from rollergen.program.rprogram import RProgram


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One kernel of a program.

    ``registers`` of a thread, ``predicted_registers`` by the model.  ``spill_bytes``: written to and read from local
    memory by one thread; ``stack_bytes``: its local memory, arrays included.  ``occupancy``: threads that one unit
    holds at once over the most that it can.  ``instructions``: of the machine code, by name; None where no
    disassembler reads it.
    """

    entry: str
    threads: int
    registers: int
    predicted_registers: float
    spill_bytes: int
    predicted_spilled_registers: float
    stack_bytes: int
    shared_bytes: int
    predicted_shared_bytes: int
    occupancy: float
    predicted_occupancy: float
    instructions: Mapping[str, int] | None

    @property
    def uses_local_memory(self) -> bool:
        return self.stack_bytes > 0


@dataclass(frozen=True, slots=True)
class CompileReport:
    """All kernels of a program, compiled for ``arch`` by ``compiler``; nothing was run."""

    arch: str
    compiler: str
    kernels: tuple[KernelReport, ...]

    def __str__(self) -> str:
        return "\n".join([f"compiled for {self.arch} by {self.compiler}, not run", *map(_text, self.kernels)])


def compile_report(
    program: RProgram, device: Device, source: Source | None = None, *, instructions: bool = True
) -> CompileReport:
    """`program` compiled for the device's real architecture; a GPU is not needed.

    ``instructions``: whether they are counted, which takes another process.

    Raises DeviceError for a device that nothing compiles for without it, RuntimeUnavailableError where the compiler is
    not installed, BuildError where it has not got the architecture or refuses the source.
    """
    target, compiler = compiled_target(device)
    if source is None or source.language != target.language:
        source = emit(program, device, target.language)
    compiled = compiler.compile(source.text, target.arch)
    counts = compiler.instructions(compiled.code) if instructions else None
    reports = tuple(
        _report(compiled, launch, facts, device, counts)
        for launch, facts in zip(source.launches, predicted_facts(program, device), strict=True)
    )
    return CompileReport(target.arch, compiled.compiler, reports)


def compiled_target(device: Device) -> tuple[Target, Compiler]:
    """The target of the device's spec whose language has a compiler that needs no device, and that compiler.

    Raises DeviceError where the spec has none, or does not name its architecture.
    """
    for target in device.targets:
        compiler = language(target.language).compiler
        if compiler is not None and target.arch:
            return target, compiler
    named = ", ".join(target.language for target in device.targets)
    known = " or ".join(name for name in language_names() if language(name).compiler is not None)
    raise DeviceError(
        f"{device.name} is programmed in {named}: no compiler that needs no device has anything to say of it; expected "
        f"a device whose spec has a target in {known} with its arch, such as v100"
    )


def predicted_facts(program: RProgram, device: Device) -> tuple[dict[str, Any], ...]:
    """The fields of `KernelReport` that the model predicts, for each launch."""
    return tuple(
        {
            "predicted_registers": float(one.registers),
            "predicted_spilled_registers": float(one.spilled),
            "predicted_shared_bytes": int(one.shared_bytes),
            "predicted_occupancy": float(one.occupancy),
        }
        for one in predict(program, device).stages
    )


def _report(
    compiled: Compiled, launch: Launch, predicted: Mapping[str, Any], device: Device,
    counts: Mapping[str, Mapping[str, int]] | None,
) -> KernelReport:  # fmt: skip
    used = compiled.kernel(launch.entry)
    used = replace(used, shared_bytes=used.shared_bytes + launch.dynamic_bytes)
    return KernelReport(
        entry=launch.entry,
        threads=launch.threads,
        registers=used.registers,
        spill_bytes=used.spill_store_bytes + used.spill_load_bytes,
        stack_bytes=used.stack_bytes,
        shared_bytes=used.shared_bytes,
        occupancy=occupancy(used, launch.threads, device),
        instructions=None if counts is None else counts.get(launch.entry),
        **predicted,
    )


def occupancy(used: Usage, threads: int, device: Device) -> float:
    """Threads of the blocks that fit one unit at once, over the most that it holds.

    Registers are given to whole warps in units of the spec's ``register_allocation`` a thread, out of the part of the
    register file that the warp's scheduler has.
    """
    limits, width = device.limits, device.execution_width
    warps = -(-threads // width)
    by_threads = limits.threads_per_unit // (warps * width)
    fitting = [limits.blocks_per_unit, by_threads, warps_by_registers(device, used.registers, width) // warps]
    if used.shared_bytes:
        fitting.append(device.layer(device.kind.block_layer or "").blocks_within(used.shared_bytes))
    return float(min(fitting) * threads / limits.threads_per_unit)  # counted with NumPy


def _text(one: KernelReport) -> str:
    lines = [
        f"{one.entry}: {one.threads} threads a block",
        f"  registers      {one.registers} (model {one.predicted_registers:.0f})",
        f"  spills         {one.spill_bytes} bytes (model {one.predicted_spilled_registers:.0f} registers); "
        f"local memory {one.stack_bytes} bytes",
        f"  shared memory  {one.shared_bytes} bytes (model {one.predicted_shared_bytes})",
        f"  occupancy      {one.occupancy:.2f} (model {one.predicted_occupancy:.2f})",
    ]
    if one.instructions is None:
        lines.append("  instructions   not counted: no nvdisasm here reads this architecture")
    else:
        most = sorted(one.instructions.items(), key=lambda item: (-item[1], item[0]))[:12]
        lines.append("  instructions   " + ", ".join(f"{name} {count}" for name, count in most))
    return "\n".join(lines)
