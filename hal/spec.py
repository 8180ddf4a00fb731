"""What a device is: frozen data, the same type for a GPU, a CPU and a bulk-synchronous machine."""

from __future__ import annotations

from dataclasses import field

from rollergen.hal.dataclass import dataclass
from rollergen.hal.declared import VECTORS, Reason, declared, has, several
from rollergen.hal.kind import Kind, kind_of
from rollergen.hal.spec_parts import Instruction, Limits, MemoryLayer, Target, Tlb, Verification

__all__ = ["Device", "Instruction", "Limits", "MemoryLayer", "Target", "Tlb", "Verification"]


class _Hashed:
    """A hash that is found once: what is known of a device is kept beside it in many places."""

    __slots__ = ("_hash",)
    _hash: int


_COPIES = Reason("predictions are of kernels whose arrays lie on the device")


@dataclass(frozen=True, slots=True)
class Device(_Hashed):
    """A complete device.  ``layers`` run from registers outward; the last one is the backing store.

    ``costs`` are the model's constants for this device (`hal.costs`), each a field so that none lives in code.
    ``provenance`` maps a JSON path to (kind, source).  ``verified``: empty for a device that has only been modelled.
    ``kind`` follows from all this.
    """

    name: str = declared("what the device is asked for by", accepts="name")
    title: str = declared("what it is called in print", accepts="line")
    units: int = declared("execution units: multiprocessors, compute units, cores, tiles")
    execution_width: int = declared(
        "threads that share one instruction: warp, wavefront; on a CPU the lanes of a vector",
        Reason(
            "on a device with vector instructions the lanes of a program are those of its instruction",
            where=VECTORS,
        ),
    )
    schedulers: int = declared(
        "instruction schedulers of one unit",
        Reason(
            "costs.issue_per_clock says how many instructions a unit issues in a clock; without it, one for "
            "each scheduler",
            where={"properties": {"costs": {"required": ["issue_per_clock"]}}, "required": ["costs"]},
        ),
    )
    clock_mhz: float = declared("clock of the units, MHz", accepts="positive")
    layers: tuple[MemoryLayer, ...] = several(
        MemoryLayer, "memory layers, from registers outward", 2, 16, key="memory_layers", extended=True
    )
    instructions: tuple[Instruction, ...] = several(Instruction, "instructions", 1, 64, extended=True)
    limits: Limits = declared("", part=Limits, extended=True)
    launch_us: float = declared("start to start of empty kernels, microseconds")
    targets: tuple[Target, ...] = several(Target, "targets", 1, 16)
    costs: tuple[tuple[str, float], ...] = declared("", accepts="costs", default=())
    tlbs: tuple[Tlb, ...] = several(Tlb, "translation buffers, innermost first", 0, 8)
    provenance: tuple[tuple[str, tuple[str, str]], ...] = ()
    verified: tuple[Verification, ...] = several(
        Verification,
        "verifications",
        0,
        8,
        "how kernels for the device were seen to be right; absent: it is only modelled. Not taken from what is "
        "extended",
    )
    wake_us: float = declared(
        "what waking the threads of all units and being woken by them adds to launch_us, microseconds; below it "
        "the calling thread runs all blocks itself (missing: units need no waking)",
        Reason("one unit is the calling thread's own: nobody is woken", device=has(units=1)),
        default=0.0,
    )
    copy_to_gb_s: float = declared(
        "rate of copies from the host's memory to the device's, GB/s (missing: unknown)", _COPIES, default=0.0
    )
    copy_back_gb_s: float = declared("and of those back, GB/s (missing: unknown)", _COPIES, default=0.0)
    kind: Kind = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", kind_of(self))

    def __repr__(self) -> str:
        layers = ", ".join(layer.name for layer in self.layers)
        return f"<device {self.name}: {self.title}; {self.units} units; {layers}>"

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            own = (self.name, self.units, self.clock_mhz, self.layers, self.instructions, self.limits, self.costs)
            object.__setattr__(self, "_hash", hash(own))
            return self._hash

    def layer(self, name: str) -> MemoryLayer:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise KeyError(f"{self.name} has no memory layer {name!r}; it has {[x.name for x in self.layers]}")

    def instruction(self, name: str) -> Instruction:
        for instruction in self.instructions:
            if instruction.name == name:
                return instruction
        raise KeyError(f"{self.name} has no instruction {name!r}; it has {[x.name for x in self.instructions]}")

    def target(self, language: str) -> Target | None:
        """How source in that language is written for the device; None where it is not."""
        return next((target for target in self.targets if target.language == language), None)

    def dialect(self, language: str) -> dict[str, str]:
        """What the target in that language says to its compiler; empty: nothing."""
        target = self.target(language)
        return dict(target.dialect) if target else {}

    def cost(self, name: str) -> float:
        """The named cost constant; KeyError where the spec has none."""
        return dict(self.costs)[name]

    def read_bytes_per_clock(self, layer: MemoryLayer) -> float:
        """What one unit reads from the layer in a clock; its share of the chip where that bandwidth alone is known."""
        return layer.bytes_per_clock or layer.bandwidth_gb_s * 1e3 / (self.clock_mhz * self.units)

    def written_bytes_per_clock(self, layer: MemoryLayer) -> float:
        """What one unit writes to the layer in one clock: as it reads, where no other figure is given."""
        return layer.write_bytes_per_clock or self.read_bytes_per_clock(layer)

    @property
    def caches(self) -> tuple[MemoryLayer, ...]:
        """The layers before memory that hardware fills by itself, nearest first."""
        return tuple(layer for layer in self.layers[:-1] if not layer.managed)

    @property
    def backing(self) -> MemoryLayer:
        return self.layers[-1]
