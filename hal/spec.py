"""What a device is: frozen data, the same type for a GPU, a CPU and a bulk-synchronous machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rollergen.hal.kind import Kind, kind_of


@dataclass(frozen=True, slots=True)
class MemoryLayer:
    """One level of the hierarchy.

    ``scope``: who shares one instance (thread | unit | device).  ``managed``: filled by the
    program (capacity is a limit) rather than a cache (capacity is a threshold).
    ``bytes_per_clock`` is what one unit reads from this layer in one clock;
    ``write_bytes_per_clock`` where writing is slower; ``bandwidth_gb_s`` is for the whole chip,
    achieved, where the layer is shared by all units.  ``asynchronous_copy_bytes``: the widest copy from the
    backing store into this layer that runs beside the program (a power of 2 from 4 on; 0: there is none).
    ``block_reserved_bytes``: taken for each resident block beside what it asks for.
    """

    name: str
    scope: str
    managed: bool
    capacity_bytes: int
    transaction_bytes: int
    bytes_per_clock: float = 0.0
    write_bytes_per_clock: float = 0.0
    bandwidth_gb_s: float = 0.0
    bandwidth_nominal_gb_s: float = 0.0
    latency_clocks: float = 0.0
    banks: int = 0
    bank_bytes: int = 0
    sets: int = 0
    ways: int = 0
    reserved_bytes: int = 0
    asynchronous_copy_bytes: int = 0
    block_reserved_bytes: int = 0

    def blocks_within(self, bytes_each: Any) -> Any:
        """How many blocks that ask for so many bytes (an int, or an int array) the layer holds at once."""
        return (self.capacity_bytes - self.reserved_bytes) // (bytes_each + self.block_reserved_bytes)


@dataclass(frozen=True, slots=True)
class Instruction:
    """An arithmetic instruction: an ``m x n x k`` multiply-add (1 x lanes x 1 for a vector FMA).

    ``per_clock``: how many one unit starts in one clock (of ``lanes`` lanes each).
    ``latency_clocks``: until a dependent one may start.  ``peak_dense_tflop_s``: as printed, for the whole chip
    (0: not known); nothing is computed from it, the rate is held against it.

    A matrix instruction (m, n and k above 1) is executed by ``lanes`` threads together, whose registers hold the
    operands in fragments: ``a_registers``, ``b_registers`` and ``accumulator_registers`` of 32 bits a thread.
    ``layout`` says which thread holds what: "quads" (four neighbouring threads a row, documented) or "opaque"
    (results pass through the units' memory).  ``issued``: machine instructions of one.
    """

    name: str
    dtype: str
    accumulator_dtype: str
    m: int
    n: int
    k: int
    lanes: int
    per_clock: float
    latency_clocks: float
    peak_dense_tflop_s: float = 0.0
    layout: str = ""
    a_registers: int = 0
    b_registers: int = 0
    accumulator_registers: int = 0
    issued: int = 1

    @property
    def is_matrix(self) -> bool:
        """Whether threads execute it together on fragments."""
        return bool(self.layout)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one block and one unit may hold.  Registers are 32-bit (on a CPU: vector registers)."""

    threads_per_block: int
    threads_per_unit: int
    blocks_per_unit: int
    registers_per_thread: int
    registers_per_unit: int
    register_allocation: int
    block_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Tlb:
    """Translation reach: ``entries`` pages of ``page_bytes``; ``miss_clocks`` beyond."""

    entries: int
    page_bytes: int
    miss_clocks: float


@dataclass(frozen=True, slots=True)
class Target:
    """How source for the device is written: ``language`` (a name, see `hal.languages`), ``arch`` (sm_70,
    gfx906, ""), and the compiler's ``dialect``: attributes of every kernel, build options, ...
    as sorted (key, value) text pairs."""

    language: str
    arch: str = ""
    dialect: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Verification:
    """What has been done to see that kernels for the device are right.

    ``how``: "ran on it", "compiled by its compiler" or "executed elsewhere" (its source, on another machine).
    ``what``: which kernels, by whom, and where the results are.
    """

    how: str
    what: str


class _Hashed:
    """A hash that is found once: what is known of a device is kept beside it in many places."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True)
class Device(_Hashed):
    """A complete device.  ``layers`` run from registers outward; the last one is the backing store.

    ``costs`` are the model's constants for this device (documented in schema.json), each a field
    so that none lives in code.  ``launch_us``: start to start of empty kernels; ``wake_us``: what it takes longer, in
    microseconds, where the threads of all units have to be woken (0: they need no waking).  ``provenance`` maps a JSON
    path to (kind, source).  ``verified``: empty for a device that has only been modelled.  ``kind`` follows from
    all this.
    """

    name: str
    title: str
    units: int
    execution_width: int
    schedulers: int
    clock_mhz: float
    layers: tuple[MemoryLayer, ...]
    instructions: tuple[Instruction, ...]
    limits: Limits
    launch_us: float
    targets: tuple[Target, ...]
    costs: tuple[tuple[str, float], ...] = ()
    tlbs: tuple[Tlb, ...] = ()
    provenance: tuple[tuple[str, tuple[str, str]], ...] = ()
    verified: tuple[Verification, ...] = ()
    wake_us: float = 0.0
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
    def backing(self) -> MemoryLayer:
        return self.layers[-1]
