"""The CUDA text of the micro-benchmarks: every size is printed, every argument is an address."""

from __future__ import annotations

from rollergen.hal.dtypes import DTYPES
from rollergen.hal.errors import BuildError
from rollergen.hal.spec import Instruction

CHAINS = 8
"""Independent accumulators of a thread, or loads on their way."""
_HEAD = 'extern "C" __global__ void'
_AT = "blockIdx.x * blockDim.x + threadIdx.x"


def clock_text(entry: str, steps: int) -> str:
    """A chain of multiply-adds, its clocks by block."""
    return f"""{_HEAD} {entry}(long long *out, const float *in) {{
  float x = in[0], c = in[1];
  long long begin = clock64();
  for (int k = 0; k < {steps}; k++) {{ c = fmaf(c, x, x); }}
  long long end = clock64();
  if (threadIdx.x == 0) out[blockIdx.x] = end - begin + (c == 12345.0f);
}}
"""


def peak_text(entry: str, one: Instruction, steps: int) -> str:
    """Eight chains of the instruction in each thread; BuildError where there is no text for it."""
    if one.is_matrix:
        return _matrix_text(entry, one, steps)
    kinds = {
        ("float32", "float32", 1): ("float", "c{i} = fmaf(c{i}, x, x);"),
        ("float64", "float64", 1): ("double", "c{i} = fma(c{i}, x, x);"),
        ("float16", "float16", 1): ("unsigned", 'asm volatile("fma.rn.f16x2 %0, %0, %1, %1;" : "+r"(c{i}) : "r"(x));'),
        ("int8", "int32", 4): ("int", "c{i} = __dp4a(c{i}, x, c{i});"),
    }
    if (one.dtype, one.accumulator_dtype, one.k) not in kinds or one.m != 1:
        raise BuildError(f"no micro-benchmark for {one.dtype} products summed in {one.accumulator_dtype}")
    kind, step = kinds[one.dtype, one.accumulator_dtype, one.k]
    start = " ".join(f"{kind} c{i} = x + {i};" for i in range(CHAINS))
    return f"""{_HEAD} {entry}(float *out, const float *in) {{
  {kind} x = ({kind})in[threadIdx.x % 64];
  {start}
  for (int k = 0; k < {steps}; k++) {{ {" ".join(step.format(i=i) for i in range(CHAINS))} }}
  out[{_AT}] = (float)({" + ".join(f"c{i}" for i in range(CHAINS))});
}}
"""


def _matrix_text(entry: str, one: Instruction, steps: int) -> str:
    """mma.sync of fragments that stay in registers (PTX ISA, "Matrix multiply-accumulate operation using mma")."""
    if one.layout != "quads":
        raise BuildError(f"no micro-benchmark for {one.layout} fragments of {one.dtype}")
    if one.dtype == "float64":
        return _doubles_text(entry, steps)
    sums, a, b = one.accumulator_registers, one.a_registers, one.b_registers
    kind, letter = ("int", "r") if one.accumulator_dtype == "int32" else ("float", "f")
    registers = lambda first, count: "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"
    summed, factor = DTYPES[one.accumulator_dtype].ptx, DTYPES[one.dtype].ptx
    shape = f"m{one.m}n{one.n}k{one.k}.row.col.{summed}.{factor}.{factor}.{summed}"
    operands = f"{registers(0, sums)}, {registers(sums, a)}, {registers(sums + a, b)}, {registers(0, sums)}"
    inputs = ", ".join(f'"r"(x + {i})' for i in range(a + b))
    step = lambda c: (
        f'asm volatile("mma.sync.aligned.{shape} {operands};" : '
        + ", ".join(f'"+{letter}"(c{c}_{i})' for i in range(sums)) + f" : {inputs});"
    )  # fmt: skip
    every = [f"c{c}_{i}" for c in range(CHAINS) for i in range(sums)]
    return f"""{_HEAD} {entry}(float *out, const float *in) {{
  unsigned x = (unsigned)in[threadIdx.x % 64];
  {kind} {", ".join(f"{name} = 0" for name in every)};
  for (int k = 0; k < {steps}; k++) {{ {" ".join(map(step, range(CHAINS)))} }}
  out[{_AT}] = (float)({" + ".join(every)});
}}
"""


def _doubles_text(entry: str, steps: int) -> str:
    """mma.sync of 16 x 8 x 4 doubles: one instruction from sm_90 on, before two of 8 rows."""
    of_rows = lambda rows, sums, a, b: (
        f'asm volatile("mma.sync.aligned.m{rows}n8k4.row.col.f64.f64.f64.f64 '
        f'{{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};" : '
    )
    whole = of_rows(16, "%0, %1, %2, %3", "%4, %5", "%6")
    half = of_rows(8, "%0, %1", "%2", "%3")
    late = lambda c: whole + ", ".join(f'"+d"(c{c}_{i})' for i in range(4)) + ' : "d"(x), "d"(x), "d"(x));'
    early = lambda c: " ".join(
        half + f'"+d"(c{c}_{i}), "+d"(c{c}_{i + 1}) : "d"(x), "d"(x));' for i in (0, 2)
    )  # fmt: skip
    every = [f"c{c}_{i}" for c in range(CHAINS) for i in range(4)]
    return f"""{_HEAD} {entry}(float *out, const float *in) {{
  double x = in[threadIdx.x % 64];
  double {", ".join(f"{name} = 0" for name in every)};
  for (int k = 0; k < {steps}; k++) {{
#if __CUDA_ARCH__ >= 900
    {" ".join(map(late, range(CHAINS)))}
#else
    {" ".join(map(early, range(CHAINS)))}
#endif
  }}
  out[{_AT}] = (float)({" + ".join(every)});
}}
"""


def reading_text(entry: str, vectors: int, passes: int, cached: bool) -> str:
    """Vectors of 16 bytes: all threads share them, past the first cache; or each block walks them all, through it."""
    load = "in[i]" if cached else "__ldcg(in + i)"
    first, step = ("threadIdx.x", "blockDim.x") if cached else (_AT, "gridDim.x * blockDim.x")
    return f"""{_HEAD} {entry}(float *out, const float4 *in) {{
  float4 s = make_float4(0, 0, 0, 0);
  for (int r = 0; r < {passes}; r++)
    #pragma unroll 4
    for (int i = {first}; i < {vectors}; i += {step}) {{
      float4 v = {load};
      s.x += v.x; s.y += v.y; s.z += v.z; s.w += v.w;
    }}
  out[{_AT}] = s.x + s.y + s.z + s.w;
}}
"""


def writing_text(entry: str, vectors: int) -> str:
    """Vectors of 16 bytes, each written once."""
    return f"""{_HEAD} {entry}(float4 *out) {{
  for (int i = {_AT}; i < {vectors}; i += gridDim.x * blockDim.x) out[i] = make_float4(1, 2, 3, 4);
}}
"""


def shared_text(entry: str, stride: int, steps: int) -> str:
    """Lanes read words of 4 bytes that lie `stride` words apart; the clocks by block."""
    words = 32 * stride
    starts = " ".join(f"int a{i} = 0;" for i in range(CHAINS))
    loads = " ".join(f"a{i} += held[at];" for i in range(CHAINS))
    return f"""{_HEAD} {entry}(long long *out, int *other) {{
  __shared__ volatile int held[{words}];
  for (int i = threadIdx.x; i < {words}; i += blockDim.x) held[i] = 0;
  __syncthreads();
  int at = threadIdx.x % 32 * {stride};
  {starts}
  long long begin = clock64();
  #pragma unroll 4
  for (int k = 0; k < {steps}; k++) {{ {loads} }}
  __syncthreads();
  long long end = clock64();
  if (threadIdx.x == 0) out[blockIdx.x] = end - begin;
  other[{_AT}] = {" + ".join(f"a{i}" for i in range(CHAINS))};
}}
"""


def strided_text(entry: str, count: int, words_apart: int) -> str:
    """Words of 4 bytes, so many words apart, past the first cache."""
    return f"""{_HEAD} {entry}(int *out, const int *in) {{
  int s = 0;
  #pragma unroll 4
  for (int i = {_AT}; i < {count}; i += gridDim.x * blockDim.x) s += __ldcg(in + (long long)i * {words_apart});
  out[{_AT}] = s;
}}
"""


def chase_text(entry: str, words: int, warm: int, steps: int, how: str) -> str:
    """One thread follows a ring of so many words: `warm` untimed steps, then `steps`; ``how``: cached (through the
    first cache) | beyond (past it) | shared."""
    load = {"cached": "next[at]", "beyond": "__ldcg(next + at)", "shared": "held[at]"}[how]
    copy = f"for (int i = 0; i < {words}; i++) held[i] = next[i];"
    held = f"__shared__ int held[{words}];\n  {copy}" if how == "shared" else ""
    return f"""{_HEAD} {entry}(long long *out, int *other, const int *next) {{
  {held}
  int at = 0;
  for (int k = 0; k < {warm}; k++) at = {load};
  long long begin = clock64();
  for (int k = 0; k < {steps}; k++) at = {load};
  other[0] = at;
  long long end = clock64();
  out[0] = end - begin;
}}
"""


def empty_text(entry: str) -> str:
    return f"{_HEAD} {entry}(float *out) {{}}\n"
