"""CUDA text of the gate's kernels: what it asks of arrays that stay on a GPU (`cuda_memory.py`).

One text for each dtype.  Elements are handled as their bits, so that a compiler that flushes denormals changes nothing;
only tolerances, which allow for the smallest normal number, look at their values.
"""

from __future__ import annotations

from rollergen.emit.cuda_vectors import SCALARS, UNSIGNED
from rollergen.expr.dtypes import is_float
from rollergen.hal.dtypes import DTYPES, Dtype

THREADS = 256
"""Of every block."""

_FLOATS = {"float32": "__uint_as_float(bits)", "float64": "__longlong_as_double((long long)bits)"}

_NARROW = """int exponent = bits >> %(fraction)d & %(most)d, fraction = bits & %(one)d - 1;
    double size = ldexp((double)(exponent ? fraction + %(one)d : fraction), (exponent ? exponent : 1) - %(bias)d);
    if (%(beyond)s) size = __longlong_as_double(fraction ? 0x7ff8000000000000ll : 0x7ff0000000000000ll);
    return bits >> %(sign)d ? -size : size;"""
"""Of a float that exists in memory only."""


def _value(row: Dtype) -> str:
    """Statements that return the value of an element as a double, from its bits."""
    if not row.narrow:
        return f"return {_FLOATS.get(row.name, f'({SCALARS[row.name] if row.signed else UNSIGNED[row.bits]})bits')};"
    most, one = (1 << row.exponent) - 1, 1 << row.fraction
    beyond = f"exponent == {most}" if row.infinite else f"exponent == {most} && fraction == {one - 1}"
    return _NARROW % {
        "fraction": row.fraction, "one": one, "most": most, "bias": row.bias + row.fraction, "sign": row.bits - 1,
        "beyond": beyond,
    }  # fmt: skip

WHOLES = ("elements", "chunk", "unwritten", "skipped", "judged", "exact", "everywhere", "left", "right")
FIGURES = ("margin", "least", "unit", "tiny")
"""Fields of the text's ``Rule``, in order: integers of eight bytes, then doubles."""

_TEXT = """
typedef %(word)s word;
typedef long long whole;
typedef unsigned long long wide;

#define EACH(i, count) \\
    for (wide i = blockIdx.x * %(threads)d + threadIdx.x; i < (wide)(count); i += gridDim.x * %(threads)d)

/// Which elements of two arrays are found; a block looks at `chunk` of them.
/// unwritten: those that hold poison in both, `left` and `right`; else those whose bits differ, not (skipped) where the
/// first array holds `left`, and (judged) only beyond the tolerance:
/// |a - b| <= margin * max(|b|, least) + unit * |b| + tiny.
/// everywhere: squares are those of all elements, not of those found.
struct Rule { whole %(wholes)s; double %(figures)s; };

static __device__ double value_of(word bits)
{
    %(value)s
}

static __device__ bool refused(word a_bits, word b_bits, const Rule *rule)
{
    if (rule->exact && !%(floating)d) return true;
    if (%(floating)d && (word)(a_bits << 1) == 0 && (word)(b_bits << 1) == 0) return false;  // zeros of either sign
    double a = value_of(a_bits), b = value_of(b_bits);
    if (a != a && b != b) return false;
    if (rule->exact) return true;
    double size = b - b == 0.0 ? fabs(b) : 0.0;
    double scale = size > rule->least ? size : rule->least;
    return !(fabs(a - b) <= rule->margin * scale + rule->unit * size + rule->tiny);
}

static __device__ bool found(word a, word b, const Rule *rule)
{
    if (rule->unwritten) return a == (word)rule->left && b == (word)rule->right;
    if (a == b || (rule->skipped && a == (word)rule->left)) return false;
    return !rule->judged || refused(a, b, rule);
}

/// For each block: how many elements are found, and the sum of squares of the second array's finite values.
extern "C" __global__ void tally(const word *a, const word *b, const Rule *rule, whole *counts, double *squares)
{
    __shared__ whole count_of[%(threads)d];
    __shared__ double square_of[%(threads)d];
    whole begin = blockIdx.x * rule->chunk, end = begin + rule->chunk, count = 0;
    double square = 0.0;
    if (end > rule->elements) end = rule->elements;
    for (whole i = begin + threadIdx.x; i < end; i += %(threads)d) {
        bool is = found(a[i], b[i], rule);
        count += is;
        if (is || rule->everywhere) {
            double value = value_of(b[i]);
            if (value - value == 0.0) square += value * value;
        }
    }
    count_of[threadIdx.x] = count;
    square_of[threadIdx.x] = square;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int t = 1; t < %(threads)d; ++t) {
            count += count_of[t];
            square += square_of[t];
        }
        counts[blockIdx.x] = count;
        squares[blockIdx.x] = square;
    }
}

/// For each block: the place of one found element; wanted: (chunk, how many are found before it in the chunk).
extern "C" __global__ void nth(const word *a, const word *b, const Rule *rule, const whole *wanted, whole *places)
{
    __shared__ whole count_of[%(threads)d];
    whole begin = wanted[2 * blockIdx.x] * rule->chunk, end = begin + rule->chunk, rank = wanted[2 * blockIdx.x + 1];
    if (end > rule->elements) end = rule->elements;
    whole each = (end - begin + %(threads)d - 1) / %(threads)d;
    whole from = begin + threadIdx.x * each, to = from + each, count = 0, before = 0;
    if (to > end) to = end;
    for (whole i = from; i < to; ++i) count += found(a[i], b[i], rule);
    count_of[threadIdx.x] = count;
    __syncthreads();
    for (int t = 0; t < threadIdx.x; ++t) before += count_of[t];
    if (before <= rank && rank < before + count)
        for (whole i = from; i < to; ++i)
            if (found(a[i], b[i], rule) && before++ == rank) places[blockIdx.x] = i;
}

/// at: their number, then the places.
extern "C" __global__ void gather(const word *a, const whole *at, word *values)
{
    EACH(i, at[0]) values[i] = a[at[1 + i]];
}

extern "C" __global__ void scatter(word *a, const whole *at, const word *values)
{
    EACH(i, at[0]) a[at[1 + i]] = values[i];
}

/// what: how many elements, and their bits.
extern "C" __global__ void fill(word *a, const wide *what)
{
    EACH(i, what[0]) a[i] = (word)what[1];
}

/// Finalizer of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014):
/// every input has an output of its own.
static __device__ wide mixed(wide x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/// Adds a sum to *sum that changes with any one element, and with several but for one chance in 2^64.
extern "C" __global__ void fingerprint(const word *a, const wide *elements, wide *sum)
{
    wide own = 0;
    EACH(i, *elements) own += mixed((wide)a[i] + mixed(i));
    atomicAdd(sum, own);
}

/// For each block: how many bytes of a zone are not its pattern; zones: (address, bytes, pattern) of each.
extern "C" __global__ void touched(const wide *zones, whole *counts)
{
    __shared__ whole count_of[%(threads)d];
    const unsigned char *zone = (const unsigned char *)zones[3 * blockIdx.x];
    wide bytes = zones[3 * blockIdx.x + 1], pattern = zones[3 * blockIdx.x + 2];
    whole count = 0;
    for (wide i = threadIdx.x; i < bytes; i += %(threads)d) count += zone[i] != pattern;
    count_of[threadIdx.x] = count;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int t = 1; t < %(threads)d; ++t) count += count_of[t];
        counts[blockIdx.x] = count;
    }
}
"""


def kernels_text(dtype: str) -> str:
    """The kernels for arrays of one dtype (`touched` is the same in all)."""
    row = DTYPES[dtype]
    settings = {
        "word": UNSIGNED[row.bits], "value": _value(row), "floating": is_float(dtype), "threads": THREADS,
        "wholes": ", ".join(WHOLES), "figures": ", ".join(FIGURES),
    }  # fmt: skip
    return _TEXT % settings
