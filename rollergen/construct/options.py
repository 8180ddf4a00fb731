"""Options of a build: one frozen type of what a caller permits, forbids or limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from rollergen.errors import ArgumentError, check_field_names, refuse_no_flags, shown
from rollergen.hal.dataclass import dataclass
from rollergen.tile.rules import ALL_SHAPES, AlignmentRules, CodeShapes

if TYPE_CHECKING:
    from rollergen.program.rprogram import RProgram

ALL, GROW = "all", "grow"
"""Strategies of construction."""
SWITCHES = "execution_unit", "transaction", "bank", "tensor_shape"
"""Fields of the alignment rules that are the user's: the others follow from the options (`BuildOptions.rules`)."""
_OWN_NAMES = {"tf32": "allow_tf32", "float8": "allow_fast_accumulation"}
_SAFETY = ("isolate", "compile_limit_s", "run_limit_s", "memory_limit_bytes")


RANKED = 16
"""Programs that a ranking of the user's own is asked about, where no more are wanted."""
Rank = Callable[[Sequence["RProgram"]], Sequence[float]]


def _is_number(value: object) -> bool:
    """Whether it is an int or float that fits a double; infinities and NaN are."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _is_one_of(value: Any, accepted: Sequence[int | str]) -> bool:
    """Whether it is one of these and of their type; arrays and 4.0 may only compare equal."""
    return type(value) is type(accepted[0]) and value in accepted


def _is_share(value: Any) -> bool:
    return _is_number(value) and isfinite(value) and value >= 0


@check_field_names
@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """Options of `rollergen.build`; the defaults are what nearly everybody wants.

    alignment
        Which of the four alignment rules construction obeys (ROLLER, section 3.2); switching one
        off is an ablation, the programs stay correct.
    shapes
        Which ways of writing kernels construction chooses from (`CodeShapes`): switching one off is an ablation, the
        programs stay correct.
    epsilon
        Largest padded share of an axis that a tile may cause, 0.1 meaning 10 %.  None: no limit; the model prices
        the padded work.
    search
        Which tiles of contractions construction prices: "all", every aligned one, grown ones among them; or "grow",
        only those on the way of ROLLER's scale-up and scale-out, by data reuse (its section 3.3), under the same rules.
    rank
        A ranking of your own: a function of a sequence of programs (`RProgram`) that gives a number for each, the
        lowest for the best.  It reorders the `RANKED` programs that the model finds best, before the first ``top_k`` of
        them are emitted.  Such kernels are not kept in the store.  None: the model's order.
    allow_tf32
        Whether contractions of float32 may use tf32 matrix instructions, which read the 11 leading bits of each
        factor's significand (relative error up to 2^-10 of a factor). Sums stay float32.
    allow_fast_accumulation
        Whether contractions of float8 may use float8 matrix instructions, which keep 14 bits of their sums and cut off
        the others (relative error up to 2^-13 with each instruction, of 32 products); cuBLAS and torch call it so.
    quantize_activations
        Whether products with constant weights of int4, uint4, int8 or uint8 may round activations to int8, each group
        of up to 64 neighbours of a row, or 32 of several rows, with a scale of its own, where the device's vectors have
        dot products of bytes (a8 of w4a8; ONNX Runtime's ``accuracy_level=4``).  Results move by at most the sum of
        half a scale times each weight's size (`expr.activations`): about 0.4 % of the largest of random ones.
    atomics
        Whether blocks may add their parts of a sum to the output atomically, in whichever order they come: no
        workspace and no second sum, but floating-point results differ in their last bits from call to call.
    winograd
        Side of the largest output tile of Winograd's filtering (`expr.winograd`), which float32 convolutions of
        3 x 3 taps, stride 1 and constant weights use where the model finds it faster.  2: 2.25 times fewer
        multiplications, about the error of a direct sum.  4: four times fewer, errors ten to thirty times as large.
        0: never.  An infinity or NaN in the image also reaches the other outputs of its tile.
    padding
        Whether tiles may reach beyond the end of an axis (the work there is wasted or masked).  False
        is ``epsilon=0``: every tile divides its axis.
    pad_value
        The value that packed copies of operands hold beyond the end of an axis.  It never reaches a result.  Copies
        of operands that the expression itself pads hold the expression's value.
    max_units
        Use at most so many of the device's execution units (streaming multiprocessors, cores).
        None: all of them.
    time_budget_s
        Seconds of wall time after which profiling starts no further candidate; the first one is
        always compiled, checked and timed.
    caches
        State of the device's caches in timed runs.  "warm": as the previous run left them; "cold": swept before
        every run (`measure.eviction`; CPUs).  Reports of times say which.
    isolate
        Whether candidates run in a process of their own.  A candidate that hangs, crashes or uses too much memory has
        then failed, with the reason told, and the build goes on.  Costs the start of a process (about a second), and
        another one after each candidate that fails.  The limits below hold for that process.
    compile_limit_s
        Limit of the wall time, in seconds, for compiling one candidate.
    run_limit_s
        Limit, in seconds, for one run of a candidate. It is added to ``compile_limit_s``, because a runtime may
        finish compiling at the first launch.
    compile_check
        Whether NVIDIA's compiler compiles every candidate where nothing is timed (no GPU is present, or
        ``profile=False``).  Candidates that spill registers to local memory are dropped, and `Kernel.explain` names
        them.  Where all spill, the one that spills least is kept.  Needs ``rollergen[nvrtc]`` and a device that is
        programmed in CUDA; costs up to a second for each candidate.
    memory_limit_bytes
        Bytes that the process may use beyond the operands and what it starts with.  None: no limit; where the machine
        runs out of memory, the system ends this process first.

    Raises `ArgumentError` for a value out of range.
    """

    alignment: AlignmentRules = AlignmentRules()
    shapes: CodeShapes = ALL_SHAPES
    epsilon: float | None = None
    search: str = ALL
    rank: Rank | None = None
    allow_tf32: bool = False
    allow_fast_accumulation: bool = False
    quantize_activations: bool = False
    atomics: bool = False
    winograd: int = 2
    padding: bool = True
    pad_value: float = 0.0
    max_units: int | None = None
    time_budget_s: float = 60.0
    caches: str = "warm"
    isolate: bool = False
    compile_limit_s: float = 60.0
    run_limit_s: float = 10.0
    memory_limit_bytes: int | None = None
    compile_check: bool = False

    def __repr__(self) -> str:
        changed = [f for f in fields(self) if getattr(self, f.name) != f.default]
        return f"BuildOptions({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in changed)})"

    def __post_init__(self) -> None:
        if not isinstance(self.alignment, AlignmentRules):
            raise ArgumentError(f"alignment is {shown(self.alignment)}; expected AlignmentRules({', '.join(SWITCHES)})")
        for one in fields(AlignmentRules):
            value = getattr(self.alignment, one.name)
            if one.name not in SWITCHES and value != one.default:
                own = f"{_OWN_NAMES.get(one.name, one.name)}={shown(value)}"
                raise ArgumentError(f"alignment has {one.name}={shown(value)}; expected BuildOptions({own})")
        self._check_shapes()
        if self.epsilon is not None and not _is_share(self.epsilon):
            raise ArgumentError(
                f"epsilon is {shown(self.epsilon)}; expected None or a share of at least 0, such as 0.1"
            )
        if not _is_one_of(self.search, (ALL, GROW)):
            raise ArgumentError(f"search is {shown(self.search)}; expected {ALL!r} or {GROW!r}")
        if self.rank is not None and not callable(self.rank):
            raise ArgumentError(f"rank is {shown(self.rank)}; expected None or a function of programs")
        refuse_no_flags(self)
        self._check_padding()
        units = self.max_units
        if units is not None and (not isinstance(units, int) or isinstance(units, bool) or units < 1):
            raise ArgumentError(f"max_units is {shown(self.max_units)}; expected None or an integer of at least 1")
        self._check_measuring()

    def _check_measuring(self) -> None:
        if not _is_one_of(self.caches, ("warm", "cold")):
            raise ArgumentError(f'caches is {shown(self.caches)}; expected "warm" or "cold"')
        for name in ("time_budget_s", "compile_limit_s", "run_limit_s"):
            seconds = getattr(self, name)
            if not (_is_number(seconds) and seconds > 0):
                raise ArgumentError(f"{name} is {shown(seconds)}; expected a number of seconds above 0")
        most = self.memory_limit_bytes
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            raise ArgumentError(f"memory_limit_bytes is {shown(most)}; expected None or an integer of at least 1")

    def _check_shapes(self) -> None:
        if not isinstance(self.shapes, CodeShapes):
            names = ", ".join(f.name for f in fields(CodeShapes))
            raise ArgumentError(f"shapes is {shown(self.shapes)}; expected CodeShapes({names})")

    def _check_padding(self) -> None:
        if not _is_one_of(self.winograd, (0, 2, 4)):
            raise ArgumentError(f"winograd is {shown(self.winograd)}; expected 0, 2 or 4")
        if not _is_number(self.pad_value):
            raise ArgumentError(f"pad_value is {shown(self.pad_value)}; expected a number")
        if not self.padding and self.epsilon:
            raise ArgumentError(
                f"epsilon is {shown(self.epsilon)}, padding False; expected epsilon=None or padding=True"
            )

    def deciding(self) -> dict[str, Any]:
        """The options that a kernel depends on, as plain values. The limits of runs are left out."""
        plain = replace(self, rank=None)
        return {name: value for name, value in asdict(plain).items() if name not in (*_SAFETY, "rank")}

    @property
    def rules(self) -> AlignmentRules:
        """The alignment rules with the limits of padding that go with them."""
        epsilon = self.epsilon if self.padding else 0.0
        return replace(
            self.alignment, epsilon=epsilon, pad_value=float(self.pad_value), shapes=self.shapes, tf32=self.allow_tf32,
            float8=self.allow_fast_accumulation, atomics=self.atomics, winograd=self.winograd,
        )  # fmt: skip
