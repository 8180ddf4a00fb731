"""What the real compiler makes of a kernel, beside what the model predicted of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from rollergen.emit import Source, emit
from rollergen.errors import DeviceError
from rollergen.hal.nvrtc import Compiled, Usage, compile_cuda
from rollergen.hal.sass import histogram
from rollergen.hal.spec import Device
from rollergen.program.model import StagePrediction, predict
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


def compile_report(program: RProgram, device: Device, source: Source | None = None) -> CompileReport:
    """`program` compiled for the device's real architecture; a GPU is not needed.

    Raises DeviceError for a device that is not programmed in CUDA, RuntimeUnavailableError where the compiler is not
    installed, BuildError where it refuses the source.
    """
    arch = cuda_arch(device)
    if source is None or source.language != "cuda":
        source = emit(program, device, "cuda")
    compiled = compile_cuda(source.text, arch)
    counts = histogram(compiled.cubin)
    predicted = predict(program, device).stages
    reports = tuple(
        _report(compiled, launch.entry, launch.threads, launch.dynamic_bytes, one, device, counts)
        for launch, one in zip(source.launches, predicted, strict=True)
    )
    return CompileReport(arch, compiled.compiler, reports)


def cuda_arch(device: Device) -> str:
    """The architecture that the device's spec names for CUDA.

    Raises DeviceError where it names none.
    """
    arch = next((target.arch for target in device.targets if target.language == "cuda"), "")
    if not arch:
        languages = ", ".join(target.language for target in device.targets)
        raise DeviceError(
            f"{device.name} is programmed in {languages}: NVIDIA's compiler has nothing to say of it; expected a "
            "device whose spec has a cuda target with its arch, such as v100"
        )
    return arch


def _report(
    compiled: Compiled, entry: str, threads: int, dynamic_bytes: int, predicted: StagePrediction, device: Device,
    counts: Mapping[str, Mapping[str, int]] | None,
) -> KernelReport:  # fmt: skip
    used = compiled.kernel(entry)
    used = replace(used, shared_bytes=used.shared_bytes + dynamic_bytes)
    return KernelReport(
        entry=entry,
        threads=threads,
        registers=used.registers,
        predicted_registers=float(predicted.registers),
        spill_bytes=used.spill_store_bytes + used.spill_load_bytes,
        predicted_spilled_registers=float(predicted.spilled),
        stack_bytes=used.stack_bytes,
        shared_bytes=used.shared_bytes,
        predicted_shared_bytes=int(predicted.shared_bytes),
        occupancy=occupancy(used, threads, device),
        predicted_occupancy=float(predicted.occupancy),
        instructions=None if counts is None else counts.get(entry),
    )


def occupancy(used: Usage, threads: int, device: Device) -> float:
    """Threads of the blocks that fit one unit at once, over the most that it holds.

    Registers are given to whole warps in units of the spec's ``register_allocation`` a thread.
    """
    limits, width = device.limits, device.execution_width
    warps = -(-threads // width)
    step = max(1, limits.register_allocation)
    registers = -(-used.registers // step) * step * warps * width
    by_threads = limits.threads_per_unit // (warps * width)
    fitting = [limits.blocks_per_unit, by_threads, limits.registers_per_unit // registers]
    if used.shared_bytes:
        layer = next(one for one in device.layers if one.scope == "unit" and one.managed)
        fitting.append((layer.capacity_bytes - layer.reserved_bytes) // used.shared_bytes)
    return min(fitting) * threads / limits.threads_per_unit


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
