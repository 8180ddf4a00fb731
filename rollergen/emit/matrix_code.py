"""Matrix instructions as small CUDA functions around inline PTX (PTX ISA, "wmma" and "mma.sync").

No header is included, so the text compiles wherever NVRTC does.  The functions stand inside ``#ifdef __CUDACC__``:
a host that runs the text brings its own.
"""

from __future__ import annotations

from rollergen.emit import quad_pairs
from rollergen.emit.cuda_vectors import SCALARS
from rollergen.hal.dtypes import DTYPES
from rollergen.lower.matrix_ir import ExchangeResults, LoadMatrix, MatrixShape, MultiplyMatrix, StoreMatrix
from rollergen.program.matrix import QUAD_PAIRS, ROWS

_INLINE = "__device__ __forceinline__ "

_EXCHANGE_WITH = """/* The upper one of two threads gives its first result for the second one of the other. */
template <class T> __device__ __forceinline__ void exchange_with(T &one, T &other, const int bit)
{
    const bool upper = threadIdx.x & bit;
    const T given = __shfl_xor_sync(0xffffffffu, upper ? one : other, bit);
    if (upper) one = given; else other = given;
}
"""

_AMONG_A_ROW = """/* Thread q of a row of four gets, in tile j, what thread j has in tile q: neighbours, then pairs. */
template <class T> __device__ __forceinline__ void exchange_results(
    T (&a)[2][2], T (&b)[2][2], T (&c)[2][2], T (&d)[2][2])
{
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        T *const at[4] = {&a[i / 2][i % 2], &b[i / 2][i % 2], &c[i / 2][i % 2], &d[i / 2][i % 2]};
        exchange_with(*at[0], *at[1], 1);
        exchange_with(*at[2], *at[3], 1);
        exchange_with(*at[0], *at[2], 2);
        exchange_with(*at[1], *at[3], 2);
    }
}
"""

_COLUMN = """/* Thread r of a column of eight, four apart, gets in place t what thread t has in place r. */
template <class T> __device__ __forceinline__ void exchange_column(T *(&at)[8])
{
    #pragma unroll
    for (int t = 0; t < 8; t += 2) exchange_with(*at[t], *at[t + 1], 4);
    #pragma unroll
    for (int t = 0; t < 4; ++t) exchange_with(*at[t + t / 2 * 2], *at[t + t / 2 * 2 + 2], 8);
    #pragma unroll
    for (int t = 0; t < 4; ++t) exchange_with(*at[t], *at[t + 4], 16);
}
"""


def _among_a_column(tiles: int) -> str:
    """Of each of two rows of so many tiles a thread has as many results; its places there are vectors of these."""
    names = "abcdefgh"[:tiles]
    parameters = ", ".join(f"T (&{name})[2][N]" for name in names)
    return f"""/* Places are vectors of what a thread has of a row of a tile, tile after tile. */
template <class T, int N> __device__ __forceinline__ void exchange_rows(
    {parameters})
{{
    constexpr int places = {ROWS // tiles}, width = N / places;
    T (*const tiles[{tiles}])[N] = {{{", ".join(names)}}};
    #pragma unroll
    for (int i = 0; i < 2 * width; ++i) {{
        T *at[8];
        #pragma unroll
        for (int t = 0; t < 8; ++t) at[t] = &tiles[t / places][i / width][t % places * width + i % width];
        exchange_column(at);
    }}
}}
"""


def exchange(statement: ExchangeResults) -> tuple[str, tuple[str, ...]]:
    """The name and the definitions of what exchanges results, of which a thread has some in two rows of each tile."""
    if statement.across:
        return "exchange_rows", (_EXCHANGE_WITH, _COLUMN, _among_a_column(len(statement.tiles)))
    return "exchange_results", (_EXCHANGE_WITH, _AMONG_A_ROW)


def helper(statement: LoadMatrix | MultiplyMatrix | StoreMatrix) -> tuple[str, str]:
    """(name, definition) of the function that a statement calls."""
    if isinstance(statement, (LoadMatrix, MultiplyMatrix)) and statement.shape.layout == QUAD_PAIRS:
        return quad_pairs.load(statement) if isinstance(statement, LoadMatrix) else quad_pairs.multiply(statement)
    if isinstance(statement, LoadMatrix) and statement.shape.dtype == "float64":
        return _load_numbers(statement)
    if isinstance(statement, LoadMatrix):
        return _load_opaque(statement) if statement.shape.layout == "opaque" else _load_quads(statement)
    if isinstance(statement, StoreMatrix):
        return _store_opaque(statement.shape)
    if statement.shape.layout == "opaque":
        return _multiply_opaque(statement)
    if statement.shape.dtype == "float64":
        return _multiply_numbers(statement.shape)
    return _multiply_quads(statement.shape)


def _function(head: str, lines: list[str]) -> str:
    body = "\n".join("    " + line for line in lines)
    return f"#ifdef __CUDACC__\n{_INLINE}void {head}\n{{\n{body}\n}}\n#endif"


def _shared(pointer: str) -> str:
    """A statement that makes ``from`` the address in shared memory."""
    return (
        f'asm("{{ .reg .u64 wide; cvta.to.shared.u64 wide, %1; cvt.u32.u64 %0, wide; }}" '
        f': "=r"(from) : "l"({pointer}));'
    )


def _size(shape: MatrixShape) -> str:
    return f"m{shape.m}n{shape.n}k{shape.k}"


def _slots(first: int, count: int) -> str:
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"


def _bound(constraint: str, values: list[str]) -> str:
    return ", ".join(f'"{constraint}"({value})' for value in values)


def _cells(name: str, *extents: int) -> list[str]:
    cells = [name]
    for extent in extents:
        cells = [f"{cell}[{i}]" for cell in cells for i in range(extent)]
    return cells


def _rows(operand: str, along_k: bool) -> str:
    """PTX' word for how an operand lies: an m x k one with k inside, or a k x n one with n inside, is row-major."""
    return "row" if (operand == "a") == along_k else "col"


def _load_opaque(node: LoadMatrix) -> tuple[str, str]:
    """wmma.load of a float16 fragment: eight registers, each with two elements."""
    shape, rows = node.shape, _rows(node.operand, node.along_k)
    name = f"load_{node.operand}_{rows}_{_size(shape)}_{shape.dtype}"
    memory = SCALARS[shape.dtype]
    head = f"{name}(unsigned int (&fragment)[8], const {memory} *at, const int pitch)"
    return name, _function(head, [
        "unsigned int from;",
        _shared("at"),
        f'asm volatile("wmma.load.{node.operand}.sync.aligned.{rows}.{_size(shape)}.shared.{DTYPES[shape.dtype].ptx} "',
        f'    "{_slots(0, 8)}, [%8], %9;"',
        f"    : {_bound('=r', _cells('fragment', 8))}",
        '    : "r"(from), "r"(pitch) : "memory");',
    ])  # fmt: skip


def _multiply_opaque(node: MultiplyMatrix) -> tuple[str, str]:
    """wmma.mma: fragments of an operand differ with how it lies in memory."""
    shape, lie = node.shape, (_rows("a", node.a_along_k), _rows("b", node.b_along_k))
    name = f"multiply_{lie[0]}_{lie[1]}_{_size(shape)}_{shape.dtype}"
    rows, columns = shape.m // 8, shape.n // 4
    sums = _cells("c", rows, columns)
    head = f"{name}(float (&c)[{rows}][{columns}], const unsigned int (&a)[8], const unsigned int (&b)[8])"
    return name, _function(head, [
        f'asm volatile("wmma.mma.sync.aligned.{lie[0]}.{lie[1]}.{_size(shape)}.f32.f32 "',
        f'    "{_slots(0, 8)}, {_slots(8, 8)}, {_slots(16, 8)}, {_slots(0, 8)};"',
        f"    : {_bound('+f', sums)}",
        f"    : {_bound('r', _cells('a', 8))}, {_bound('r', _cells('b', 8))});",
    ])  # fmt: skip


def _store_opaque(shape: MatrixShape) -> tuple[str, str]:
    name = f"store_{_size(shape)}_float32"
    rows, columns = shape.m // 8, shape.n // 4
    head = f"{name}(const float (&c)[{rows}][{columns}], float *at, const int pitch)"
    return name, _function(head, [
        "unsigned int from;",
        _shared("at"),
        f'asm volatile("wmma.store.d.sync.aligned.row.{_size(shape)}.shared.f32 [%0], {_slots(1, 8)}, %9;"',
        f'    : : "r"(from), {_bound("f", _cells("c", rows, columns))}, "r"(pitch) : "memory");',
    ])  # fmt: skip


def _load_quads(node: LoadMatrix) -> tuple[str, str]:
    """ldmatrix: matrices of 8 rows of 16 bytes, one register a thread of each."""
    registers = 4 if node.operand == "a" else 2
    extents = (node.count, registers) if node.count > 1 else (registers,)
    matrices = node.count * registers
    transposed = not node.along_k
    memory = SCALARS[node.shape.dtype]
    name = f"load_matrices{'_transposed' if transposed else ''}"
    dimensions = "".join(f"[{extent}]" for extent in extents)
    head = f"{name}(unsigned int (&fragment){dimensions}, const {memory} *at)"
    text = _function(head, [
        "unsigned int from;",
        _shared("at"),
        f'asm volatile("ldmatrix.sync.aligned.m8n8.x{matrices}{".trans" if transposed else ""}.shared.b16 "',
        f'    "{_slots(0, matrices)}, [%{matrices}];"',
        f"    : {_bound('=r', _cells('fragment', *extents))}",
        '    : "r"(from) : "memory");',
    ])  # fmt: skip
    return name, text


def _multiply_quads(shape: MatrixShape) -> tuple[str, str]:
    name = f"multiply_{_size(shape)}_{shape.dtype}"
    scalar, sums = SCALARS[shape.accumulator_dtype], DTYPES[shape.accumulator_dtype].ptx
    constraint = "f" if scalar == "float" else "r"
    factors = DTYPES[shape.dtype].ptx
    head = f"{name}({scalar} (&c)[2][2], const unsigned int (&a)[4], const unsigned int (&b)[2])"
    return name, _function(head, [
        f'asm volatile("mma.sync.aligned.{_size(shape)}.row.col.{sums}.{factors}.{factors}.{sums} "',
        f'    "{_slots(0, 4)}, {_slots(4, 4)}, {_slots(8, 2)}, {_slots(0, 4)};"',
        f"    : {_bound('+' + constraint, _cells('c', 2, 2))}",
        f"    : {_bound('r', _cells('a', 4))}, {_bound('r', _cells('b', 2))});",
    ])  # fmt: skip


def _load_numbers(node: LoadMatrix) -> tuple[str, str]:
    """Numbers of 64 bits, which each thread reads by itself: of operand "a" those of two rows, 8 apart."""
    rows = {"a": 2, "b": 1}[node.operand]
    name = f"load_{node.operand}_{_rows(node.operand, node.along_k)}_{_size(node.shape)}_{node.shape.dtype}"
    far = "8 * pitch" if node.along_k else "8"
    head = f"{_INLINE}void {name}(double (&fragment)[{rows}], const double *at, const int pitch)"
    lines = ["fragment[0] = at[0];", *[f"fragment[1] = at[{far}];"] * (rows - 1)]
    return name, "\n".join([head, "{", *("    " + line for line in lines), "}"])


def _multiply_numbers(shape: MatrixShape) -> tuple[str, str]:
    """mma.sync of float64, of sm_80 for 8 rows, of sm_90 on for 16."""
    name = f"multiply_{_size(shape)}_{shape.dtype}"
    head = f"{name}(double (&c)[2][2], const double (&a)[2], const double (&b)[1])"
    return name, _function(head, [
        "#if __CUDA_ARCH__ >= 900",
        f'asm volatile("mma.sync.aligned.{_size(shape)}.row.col.f64.f64.f64.f64 "',
        f'    "{_slots(0, 4)}, {_slots(4, 2)}, {_slots(6, 1)}, {_slots(0, 4)};"',
        f"    : {_bound('+d', _cells('c', 2, 2))}",
        f"    : {_bound('d', _cells('a', 2))}, {_bound('d', _cells('b', 1))});",
        "#else",
        "#pragma unroll",
        "for (int far = 0; far < 2; ++far)",
        '    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 "',
        f'        "{_slots(0, 2)}, {_slots(2, 1)}, {_slots(3, 1)}, {_slots(0, 2)};"',
        f"        : {_bound('+d', _cells('c[far]', 2))}",
        f"        : {_bound('d', ['a[far]', 'b[0]'])});",
        "#endif",
    ])  # fmt: skip
