"""What kind of device a spec describes: decided once, when a `Device` is made; every other file reads `Device.kind`.

A new capability is a field here and what derives it, the place that makes use of it, and the specs that have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollergen.hal.dataclass import dataclass
from rollergen.hal.dot_products import pairs_of
from rollergen.hal.errors import SpecError
from rollergen.hal.languages import Machine, language
from rollergen.hal.masked_stores import BITS, KEY, Vectors

if TYPE_CHECKING:
    from rollergen.hal.spec import Device, MemoryLayer


@dataclass(frozen=True, slots=True)
class Kind:
    """Capabilities that tell a GPU, a CPU, a bulk-synchronous machine and whatever comes next apart.

    ``language``: that of its first target, which its programs are written in.
    ``block_layer``: the managed layer that the threads of one block share; None: a block is one thread.
    ``lockstep``: such threads run side by side, an execution width of them at once; else each by itself.
    ``instruction_threads``: how many share one instruction; 1 where instructions have lanes of their own (``vectors``).
    ``masked_stores``, ``masked_loads``: (dtype, lanes) of vectors whose chosen lanes one instruction stores or loads.
    ``exchanges``: threads of one execution width may exchange registers (the spec says what that costs).
    ``matrix_instructions``, ``asynchronous_copies``, ``box_copies`` (by an engine, in boxes): it has them, and its
    language has words for them.
    ``dot_products``: dtypes of the numbers that its instructions for dot products multiply, for which its language has
    words.
    ``float64``: it computes in that; else functions of float32 are written without.
    ``bounds_registers``: its kernels say how many of their blocks are meant to share a unit.
    ``machine``: what makes and reads its programs where these are no launches of blocks.
    """

    language: str
    block_layer: str | None
    lockstep: bool
    vectors: bool
    instruction_threads: int
    masked_stores: Vectors
    masked_loads: Vectors
    exchanges: bool
    matrix_instructions: bool
    asynchronous_copies: bool
    box_copies: bool
    dot_products: frozenset[tuple[str, str]]
    float64: bool
    bounds_registers: bool
    machine: Machine | None

    @property
    def threads(self) -> bool:
        """Whether a block has threads that share a managed layer; else it is one thread, whose vectors have lanes."""
        return self.block_layer is not None

    @property
    def family(self) -> str:
        """What records of measurements are kept apart by."""
        return "gpu" if self.threads else "cpu"


def kind_of(device: Device) -> Kind:
    """The kind of a device.  SpecError for one without targets, and for a target in no known language."""
    languages = [language(one.language, f"targets[{n}].language") for n, one in enumerate(device.targets)]
    if not languages:
        raise SpecError("targets is a list of 0; expected a list of 1 to 16 targets")
    shared, several = _block_layer(device), device.execution_width > 1
    stored, loaded = BITS.get(dict(device.targets[0].dialect).get(KEY, ""), BITS[""])
    vectors = any(one.lanes > 1 and one.m == one.k == 1 for one in device.instructions)
    matrices = {one.layout for one in device.instructions if one.is_matrix}
    copies = shared is not None and shared.asynchronous_copy_bytes > 0
    dots = [pairs_of(one.name, one.dtype) for one in device.instructions if one.is_dot_product]
    return Kind(
        language=languages[0].name,
        block_layer=None if shared is None else shared.name,
        lockstep=shared is not None and several,
        vectors=vectors,
        instruction_threads=1 if vectors else device.execution_width,
        masked_stores=stored,
        masked_loads=loaded,
        exchanges=several and dict(device.costs).get("shuffle_clocks", 0.0) > 0,
        matrix_instructions=shared is not None and bool(matrices & languages[0].matrix_layouts),
        asynchronous_copies=copies and languages[0].asynchronous_copies,
        box_copies=shared is not None and shared.box_extent > 0 and languages[0].box_copies,
        dot_products=frozenset().union(*dots) if languages[0].dot_products else frozenset(),
        float64=any(one.dtype == "float64" for one in device.instructions),
        bounds_registers=any(one.bounds_registers for one in languages),
        machine=next((one.machine for one in languages if one.machine is not None), None),
    )


def _block_layer(device: Device) -> MemoryLayer | None:
    return next((one for one in device.layers[1:] if one.managed and one.scope == "unit"), None)
