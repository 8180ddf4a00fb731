// CUDA text as C++ on x86-64: every thread is a fiber, one block at a time.
//
// A fiber runs until it meets a barrier, a shuffle or its end, or has to wait for a copy engine.  A barrier opens once all
// threads of the block have come to the same one; a thread that ended, or waits elsewhere, is an error.  Shared memory lies in a section of its
// own and is filled with NaN before each block.  The order of threads may be reversed: text that lacks a barrier then
// reads what was not yet written, in one order or the other.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <map>
#include <sys/mman.h>
#include <type_traits>
#include <vector>

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((section("cuda_shared")))

// Vectors, aligned as CUDA's are --------------------------------------------------------------------------------

#define VECTORS(T, name, a2, a4)                                                                               \
    struct alignas(a2) name##2 { T x, y; };                                                                    \
    struct name##3 { T x, y, z; };                                                                             \
    struct alignas(a4) name##4 { T x, y, z, w; };                                                              \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                                 \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                                         \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(float, float, 8, 16)
VECTORS(double, double, 16, 16)
VECTORS(int, int, 8, 16)
VECTORS(unsigned int, uint, 8, 16)
VECTORS(short, short, 4, 8)
VECTORS(unsigned short, ushort, 4, 8)
VECTORS(signed char, char, 2, 4)
VECTORS(unsigned char, uchar, 2, 4)
VECTORS(long long, longlong, 16, 16)
VECTORS(unsigned long long, ulonglong, 16, 16)

// Built-in functions --------------------------------------------------------------------------------------------

using std::sqrt; using std::exp; using std::log; using std::pow; using std::tanh; using std::erf; using std::floor;

template <class To, class From> inline To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From), "a bit cast changes no size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
inline int __float_as_int(float x) { return bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return bits_as<double>(x); }
template <class T> inline void __stcs(T *at, T value) { *at = value; }
template <class T> inline T __ldcg(const T *at) { return *at; }
inline long long clock64() { return (long long)__builtin_ia32_rdtsc(); }

inline float exp2_approx(float x) { return exp2f(x) < 1.17549435e-38f ? 0.0f : exp2f(x); }
inline float half_to_float(unsigned short bits) { return (float)bits_as<_Float16>(bits); }
inline unsigned short half_from_float(float value) { return bits_as<unsigned short>((_Float16)value); }

inline unsigned pack_float16(float low, float high)
{ return (unsigned)half_from_float(high) << 16 | half_from_float(low); }
inline unsigned bfloat16_from_float(float value)
{
    unsigned bits = bits_as<unsigned>(value);
    return value != value ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
inline unsigned pack_bfloat16(float low, float high) { return bfloat16_from_float(high) << 16 | bfloat16_from_float(low); }
/// Byte i of the result is byte ``selector >> 4 i & 7`` of x (0 to 3) and y (4 to 7).
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) result |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return result;
}
/// Two numbers of 16 bits at once; float32 has more than twice their bits, so that rounding it is rounding once.
#define COMBINE_PAIRS(name, dtype, read, expression)                                                               \
    inline void name##_pairs_##dtype(unsigned (&pairs)[2], unsigned other)                                         \
    {                                                                                                              \
        for (unsigned &pair : pairs) {                                                                             \
            float results[2];                                                                                      \
            for (int i = 0; i < 2; ++i) {                                                                          \
                const float x = read(pair >> 16 * i & 0xffff), y = read(other >> 16 * i & 0xffff);                 \
                results[i] = expression;                                                                           \
            }                                                                                                      \
            pair = pack_##dtype(results[0], results[1]);                                                           \
        }                                                                                                          \
    }
inline float bfloat16_to_float(unsigned bits) { return bits_as<float>(bits << 16); }
#define COMBINE_ALL(dtype, read)                                                                                   \
    COMBINE_PAIRS(add, dtype, read, x + y)                                                                         \
    COMBINE_PAIRS(sub, dtype, read, x - y)                                                                         \
    COMBINE_PAIRS(sub_from, dtype, read, y - x)                                                                    \
    COMBINE_PAIRS(mul, dtype, read, x *y)
COMBINE_ALL(float16, half_to_float)
COMBINE_ALL(bfloat16, bfloat16_to_float)
inline unsigned pair_in_bfloat16(unsigned pair)
{ return pack_bfloat16(half_to_float(pair & 0xffff), half_to_float(pair >> 16)); }
inline unsigned masked_xor(unsigned a, unsigned b, unsigned c) { return (a & b) ^ c; }
/// ``pairs[0] - first`` and ``pairs[1] / 16 + second``, whose sums are exact.
inline void sub_nibbles_half(unsigned (&pairs)[2], unsigned first, unsigned second)
{
    unsigned both[2] = {pairs[0], first};
    sub_pairs_float16(both, first);
    pairs[0] = both[0];
    float results[2];
    for (int i = 0; i < 2; ++i)
        results[i] = half_to_float(pairs[1] >> 16 * i & 0xffff) / 16 + half_to_float(second >> 16 * i & 0xffff);
    pairs[1] = pack_float16(results[0], results[1]);
}

template <class T> inline T atomicAdd(T *at, T value) { T old = *at; *at = old + value; return old; }
template <class T> inline T atomicMax(T *at, T value) { T old = *at; *at = old < value ? value : old; return old; }

// Fibers --------------------------------------------------------------------------------------------------------

struct Dim3 { unsigned x, y, z; };
static Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_cpu {
enum State { RUNS, AT_BARRIER, AT_WARP, AT_CLUSTER, WAITS, ENDED };
struct Fiber { void *stack_pointer; State state; const void *where; uint64_t exchanged; unsigned mask; };

static std::vector<Fiber> fibers;
static void *scheduler;
static unsigned current;
static void (*body)();
static char *stacks;
constexpr size_t STACK = 128 << 10;
static char error[400];
enum Modes { REVERSE = 1, COPIES_AT_ONCE = 2, PRODUCTS_LATE = 4, NEWEST_FIRST = 8 };
static int modes;
static bool moved;
static unsigned rank;  // of the block in its cluster

// Saves what the ABI keeps, swaps stacks, restores.
extern "C" void cuda_on_cpu_switch(void **save, void *load);
asm(R"(
.pushsection .text
.local cuda_on_cpu_switch
cuda_on_cpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.popsection
)");

__attribute__((noinline)) inline void leave(State state, const void *where)
{
    Fiber &fiber = fibers[current];
    fiber.state = state;
    fiber.where = where;
    cuda_on_cpu_switch(&fiber.stack_pointer, scheduler);
}

inline void begin()
{
    body();
    leave(ENDED, nullptr);
    abort();
}

inline void make(unsigned number)
{
    // On entry the stack pointer is 8 below a multiple of 16, as after a call.
    void **top = (void **)(stacks + (number + 1) * STACK) - 2;
    *top = (void *)begin;
    fibers[number] = {top - 6, RUNS, nullptr, 0, 0};
}

inline void resume(unsigned number)
{
    current = number;
    threadIdx = {number, 0, 0};
    fibers[number].state = RUNS;
    cuda_on_cpu_switch(&scheduler, fibers[number].stack_pointer);
}

/// Whether the lanes of a warp that meet are those that their masks name, and meet at one place.
inline bool met_as_named(unsigned first, unsigned last)
{
    for (unsigned i = first; i < last; ++i) {
        unsigned mask = fibers[i].mask, lanes = last - first < 32 ? (1u << (last - first)) - 1 : ~0u;
        if (fibers[i].where != fibers[first].where) {
            snprintf(error, sizeof error, "block %u, warp %u: lanes 0 and %u are at different warp-wide calls",
                     blockIdx.x, first / 32, i - first);
            return false;
        }
        if (mask != lanes) {
            snprintf(error, sizeof error, "block %u, warp %u: the mask of lane %u is %08x; its warp has %08x",
                     blockIdx.x, first / 32, i - first, mask, lanes);
            return false;
        }
    }
    return true;
}

/// Lets every lane of [first, last) that waits only for its warp go on, until all wait for more.
inline bool run_warp(unsigned first, unsigned last, bool reverse)
{
    for (;;) {
        unsigned at_warp = 0, lanes = 0, waiting = 0;
        for (unsigned i = first; i < last; ++i) {
            unsigned number = reverse ? last - 1 - (i - first) : i;
            if (fibers[number].state == RUNS) resume(number);
        }
        for (unsigned i = first; i < last; ++i) {
            at_warp += fibers[i].state == AT_WARP;
            waiting += fibers[i].state == WAITS || fibers[i].state == AT_CLUSTER;
            ++lanes;
        }
        if (!at_warp || waiting) return true;
        if (at_warp != lanes) {
            snprintf(error, sizeof error, "block %u, warp %u: %u of %u lanes are at a warp-wide call", blockIdx.x,
                     first / 32, at_warp, lanes);
            return false;
        }
        if (!met_as_named(first, last)) return false;
        for (unsigned i = first; i < last; ++i) fibers[i].state = RUNS;
    }
}

/// What a round of all threads of a block left: nothing to do, something, an error.
enum Round { STUCK, WENT_ON, FAILED };

/// Each thread runs until it waits; those whose wait is over may go on in the next round.
inline Round run_round(unsigned threads, bool reverse)
{
    unsigned warps = (threads + 31) / 32;
    for (unsigned w = 0; w < warps; ++w) {
        unsigned warp = reverse ? warps - 1 - w : w;
        unsigned last = warp * 32 + 32 < threads ? warp * 32 + 32 : threads;
        if (!run_warp(warp * 32, last, reverse)) return FAILED;
    }
    unsigned ended = 0, same = 0, waiting = 0;
    for (unsigned i = 0; i < threads; ++i) {
        ended += fibers[i].state == ENDED;
        waiting += fibers[i].state == WAITS || fibers[i].state == AT_CLUSTER;
        same += fibers[i].state == AT_BARRIER && fibers[i].where == fibers[0].where;
    }
    if (ended == threads) return STUCK;
    if (waiting) {
        if (!moved) return STUCK;
        moved = false;
        for (unsigned i = 0; i < threads; ++i)
            if (fibers[i].state == WAITS) fibers[i].state = RUNS;
        return WENT_ON;
    }
    if (same != threads) {
        snprintf(error, sizeof error, "block %u: %u of %u threads came to a barrier, %u ended", blockIdx.x, same,
                 threads, ended);
        return FAILED;
    }
    for (unsigned i = 0; i < threads; ++i) fibers[i].state = RUNS;
    return WENT_ON;
}

/// How many threads of the block are in a state.
inline unsigned count_of(State state)
{
    unsigned found = 0;
    for (const Fiber &one : fibers) found += one.state == state;
    return found;
}
}  // namespace cuda_on_cpu

// Each place in the text is a barrier of its own.
#define __syncthreads() \
    do { \
        static const char place = 0; \
        cuda_on_cpu::leave(cuda_on_cpu::AT_BARRIER, &place); \
    } while (0)

namespace cuda_on_cpu {
inline void meet(const void *place, unsigned mask)
{
    fibers[current].mask = mask;
    leave(AT_WARP, place);
}
inline void sync_warp(const void *place, unsigned mask = ~0u)
{
    unsigned first = current / 32 * 32, lanes = blockDim.x - first;
    meet(place, mask == ~0u && lanes < 32 ? (1u << lanes) - 1 : mask);  // the default names those that there are
}

/// What `lane` gave; its own value beyond `width` lanes, all bits set (a NaN, -1) where there is no such thread.
template <class T> inline T exchanged(const void *place, unsigned mask, T value, int lane, int width)
{
    static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    unsigned self = current, first = self / 32 * 32;
    int segment = (int)(self % 32) / width;
    fibers[self].exchanged = word;
    meet(place, mask);
    uint64_t got = word;
    if (lane >= 0 && lane / width == segment) got = first + lane < blockDim.x ? fibers[first + lane].exchanged : ~0ull;
    meet(place, mask);  // nobody overwrites what another has yet to read
    T result;
    memcpy(&result, &got, sizeof result);
    return result;
}
inline int own_lane() { return (int)(current % 32); }
template <class T> inline T shfl(const void *p, unsigned mask, T value, int lane, int width = 32)
{ return exchanged(p, mask, value, own_lane() / width * width + (lane & (width - 1)), width); }
template <class T> inline T shfl_xor(const void *p, unsigned mask, T value, int bits, int width = 32)
{ return exchanged(p, mask, value, own_lane() ^ bits, width); }
template <class T> inline T shfl_down(const void *p, unsigned mask, T value, unsigned by, int width = 32)
{ return exchanged(p, mask, value, own_lane() + (int)by, width); }
template <class T> inline T shfl_up(const void *p, unsigned mask, T value, unsigned by, int width = 32)
{ return exchanged(p, mask, value, own_lane() - (int)by, width); }
}  // namespace cuda_on_cpu

#define AT_A_PLACE(call, ...) \
    ({ static const char place = 0; cuda_on_cpu::call(&place __VA_OPT__(,) __VA_ARGS__); })
#define __syncwarp(...) AT_A_PLACE(sync_warp __VA_OPT__(,) __VA_ARGS__)
#define __shfl_sync(...) AT_A_PLACE(shfl, __VA_ARGS__)
#define __shfl_xor_sync(...) AT_A_PLACE(shfl_xor, __VA_ARGS__)
#define __shfl_down_sync(...) AT_A_PLACE(shfl_down, __VA_ARGS__)
#define __shfl_up_sync(...) AT_A_PLACE(shfl_up, __VA_ARGS__)

// Matrix instructions ------------------------------------------------------------------------------------------
//
// By all lanes of a warp: each puts down what it has, all wait, each takes what is its own, all wait.  Opaque
// fragments are scattered over lanes and registers as no hardware does; what hardware leaves undefined is poison.

namespace cuda_on_cpu {
static uint32_t held[32][16];
static const void *named[32];
inline unsigned lane() { return current % 32; }
inline unsigned short half_of(const uint32_t *words, unsigned at) { return words[at / 2] >> (at % 2 * 16) & 0xffff; }

/// Ends the run where a warp is not whole, its lanes disagree, or an address is no multiple of `bytes`.
inline void together(const void *at, size_t bytes, bool same)
{
    if (current / 32 * 32 + 32 > blockDim.x || (size_t)at % bytes) __builtin_trap();
    named[lane()] = at;
    AT_A_PLACE(meet, ~0u);
    for (unsigned i = 0; same && i < 32; ++i)
        if (named[i] != at) __builtin_trap();
}

/// Where element `at` of an opaque fragment lies.
inline unsigned lane_of(unsigned at) { return (at * 7 + 3) % 32; }
inline unsigned slot_of(unsigned at) { return at / 32; }

template <unsigned N> inline void put_down(const uint32_t (&registers)[N])
{
    for (unsigned i = 0; i < N; ++i) held[lane()][i] = registers[i];
}

inline void load_opaque(unsigned int (&fragment)[8], const unsigned short *at, int row, int column)
{
    together(at, 32, true);
    if ((row == 1 ? column : row) * 2 % 16) __builtin_trap();
    for (unsigned i = 0; i < 8; ++i) fragment[i] = 0xffffffff;
    for (unsigned e = 0; e < 256; ++e)
        if (lane_of(e) == lane()) ((unsigned short *)fragment)[slot_of(e)] = at[e / 16 * row + e % 16 * column];
    AT_A_PLACE(meet, ~0u);
}

inline void multiply_opaque(float (&c)[2][4], const unsigned int (&a)[8], const unsigned int (&b)[8])
{
    uint32_t mine[16];
    for (unsigned i = 0; i < 8; ++i) mine[i] = a[i], mine[8 + i] = b[i];
    put_down(mine);
    AT_A_PLACE(meet, ~0u);
    for (unsigned e = 0; e < 256; ++e) {
        if (lane_of(e) != lane()) continue;
        float sum = (&c[0][0])[slot_of(e)];
        for (unsigned k = 0; k < 16; ++k) {
            unsigned i = e / 16 * 16 + k, j = k * 16 + e % 16;
            sum += half_to_float(half_of(held[lane_of(i)], slot_of(i)))
                 * half_to_float(half_of(held[lane_of(j)] + 8, slot_of(j)));
        }
        (&c[0][0])[slot_of(e)] = sum;
    }
    AT_A_PLACE(meet, ~0u);
}

/// Matrices of 8 rows of 16 bytes; lanes 8 i to 8 i + 7 name the rows of matrix i.
inline void load_matrices(unsigned int *fragment, unsigned count, const void *row, bool turned)
{
    together(lane() / 8 < count ? row : nullptr, 16, false);
    unsigned across = lane() % 4, down = lane() / 4;
    for (unsigned i = 0; i < count; ++i) {
        if (turned) {
            unsigned short pair[2];
            for (unsigned e = 0; e < 2; ++e) pair[e] = ((const unsigned short *)named[i * 8 + across * 2 + e])[down];
            memcpy(&fragment[i], pair, 4);
        } else {
            fragment[i] = ((const unsigned int *)named[i * 8 + down])[across];
        }
    }
    AT_A_PLACE(meet, ~0u);
}

/// m16n8: row r of a lies in lanes 4 (r % 8) to 4 (r % 8) + 3, four bytes each, then the next 16 bytes; b likewise.
template <class Sum, class Factor, unsigned BYTES>
inline void multiply_quads(Sum (&c)[2][2], const unsigned int (&a)[4], const unsigned int (&b)[2], Factor (*read)(const char *))
{
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    put_down(mine);
    AT_A_PLACE(meet, ~0u);
    constexpr unsigned EACH = 4 / BYTES, K = 8 * EACH;
    for (unsigned i = 0; i < 2; ++i)
        for (unsigned j = 0; j < 2; ++j) {
            unsigned row = lane() / 4, column = lane() % 4 * 2 + j;
            Sum sum = c[i][j];
            for (unsigned k = 0; k < K; ++k) {
                unsigned across = k % (K / 2) / EACH, half = k / (K / 2), byte = k % EACH * BYTES;
                sum += (Sum)read((const char *)&held[row * 4 + across][half * 2 + i] + byte)
                     * (Sum)read((const char *)&held[column * 4 + across][4 + half] + byte);
            }
            c[i][j] = sum;
        }
    AT_A_PLACE(meet, ~0u);
}

/// m16n8k4 of float64: row r of a, and r + 8, lie in lanes 4 (r % 8) to 4 (r % 8) + 3, a number each; columns of b likewise.
inline void multiply_numbers(double (&c)[2][2], const double (&a)[2], const double (&b)[1])
{
    uint32_t mine[6];
    memcpy(mine, a, 16), memcpy(mine + 4, b, 8);
    put_down(mine);
    AT_A_PLACE(meet, ~0u);
    for (unsigned i = 0; i < 2; ++i)
        for (unsigned j = 0; j < 2; ++j)
            for (unsigned k = 0; k < 4; ++k) {
                double one, other;
                memcpy(&one, held[lane() / 4 * 4 + k] + 2 * i, 8);
                memcpy(&other, held[(lane() % 4 * 2 + j) * 4 + k] + 4, 8);
                c[i][j] += one * other;
            }
    AT_A_PLACE(meet, ~0u);
}

/// Four times m8n8k4: lanes 4 q to 4 q + 3, and those 16 above, have row (of b: column) 0 to 3, and 4 to 7, of product q;
/// where b lies by rows, these lanes have its rows, and columns 0 to 3, and 4 to 7.  Of the sums a lane has two rows 2
/// apart, and two by two columns 4 apart.
template <bool COL>
inline void multiply_quad_pairs(float (&c)[2][4], const unsigned int *a, const unsigned int *b)
{
    uint32_t mine[16];
    for (unsigned i = 0; i < 8; ++i) mine[i] = a[i], mine[8 + i] = b[i];
    put_down(mine);
    AT_A_PLACE(meet, ~0u);
    unsigned quad = lane() % 16 / 4 * 4;
    for (unsigned i = 0; i < 8; ++i) {
        unsigned m = (lane() & 1) + (i & 2) + lane() / 16 * 4, n = (i & 4) + (lane() & 2) + (i & 1);
        float &sum = c[i >> 1 & 1][(i & 4) / 2 + (i & 1)];
        for (unsigned k = 0; k < 16; ++k) {
            unsigned step = k / 4 * 2, within = k % 4, row = quad + m % 4 + m / 4 * 16;
            unsigned column = COL ? quad + n % 4 + n / 4 * 16 : quad + within + n / 4 * 16;
            sum += half_to_float(half_of(held[row] + step, within))
                 * half_to_float(half_of(held[column] + 8 + step, COL ? within : n % 4));
        }
    }
    AT_A_PLACE(meet, ~0u);
}

inline float read_half(const char *at) { return half_to_float(*(const unsigned short *)at); }
inline float read_bfloat(const char *at) { return bits_as<float>((unsigned)*(const unsigned short *)at << 16); }
inline float read_tf32(const char *at) { return bits_as<float>(*(const unsigned *)at & 0xffffe000u); }
inline int read_byte(const char *at) { return *(const signed char *)at; }
inline float read_e5m2(const char *at) { return half_to_float(*(const unsigned char *)at << 8); }
inline float read_e4m3(const char *at)
{
    const unsigned bits = *(const unsigned char *)at;
    if ((bits & 0x7f) == 0x7f) return bits_as<float>(0x7fc00000u);
    return half_to_float((bits & 0x80) << 8 | (bits & 0x7f) << 7) * 256.0f;  // exponents of a half are biased by 15, not 7
}
}  // namespace cuda_on_cpu

#define LOAD_OPAQUE(operand, rows, row, column)                                                                    \
    inline void load_##operand##_##rows##_m16n16k16_float16(unsigned int (&f)[8], const unsigned short *at, int pitch) \
    { cuda_on_cpu::load_opaque(f, at, row, column); }
LOAD_OPAQUE(a, row, pitch, 1)
LOAD_OPAQUE(a, col, 1, pitch)
LOAD_OPAQUE(b, row, pitch, 1)
LOAD_OPAQUE(b, col, 1, pitch)
#define MULTIPLY_OPAQUE(rows)                                                                                      \
    inline void multiply_##rows##_m16n16k16_float16(float (&c)[2][4], const unsigned int (&a)[8], const unsigned int (&b)[8]) \
    { cuda_on_cpu::multiply_opaque(c, a, b); }
MULTIPLY_OPAQUE(row_row)
MULTIPLY_OPAQUE(row_col)
MULTIPLY_OPAQUE(col_row)
MULTIPLY_OPAQUE(col_col)
inline void store_m16n16k16_float32(const float (&c)[2][4], float *at, int pitch)
{
    using namespace cuda_on_cpu;
    together(at, 32, true);
    for (unsigned e = 0; e < 256; ++e)
        if (lane_of(e) == lane()) at[e / 16 * pitch + e % 16] = (&c[0][0])[slot_of(e)];
}
template <unsigned N> inline void load_matrices(unsigned int (&f)[N], const void *row)
{ cuda_on_cpu::load_matrices(f, N, row, false); }
template <unsigned N> inline void load_matrices(unsigned int (&f)[2][N], const void *row)
{ cuda_on_cpu::load_matrices(f[0], 2 * N, row, false); }
template <unsigned N> inline void load_matrices_transposed(unsigned int (&f)[N], const void *row)
{ cuda_on_cpu::load_matrices(f, N, row, true); }
template <unsigned N> inline void load_matrices_transposed(unsigned int (&f)[2][N], const void *row)
{ cuda_on_cpu::load_matrices(f[0], 2 * N, row, true); }
inline void multiply_quad_pairs_col(float (&c)[2][4], const unsigned int (&a)[2][4], const unsigned int (&b)[2][4])
{ cuda_on_cpu::multiply_quad_pairs<true>(c, a[0], b[0]); }
inline void multiply_quad_pairs_row(float (&c)[2][4], const unsigned int (&a)[2][4], const unsigned int (&b)[4][2])
{ cuda_on_cpu::multiply_quad_pairs<false>(c, a[0], b[0]); }
#define MULTIPLY_QUADS(name, Sum, Factor, bytes, read)                                                             \
    inline void multiply_##name(Sum (&c)[2][2], const unsigned int (&a)[4], const unsigned int (&b)[2])            \
    { cuda_on_cpu::multiply_quads<Sum, Factor, bytes>(c, a, b, cuda_on_cpu::read); }
MULTIPLY_QUADS(m16n8k16_float16, float, float, 2, read_half)
MULTIPLY_QUADS(m16n8k16_bfloat16, float, float, 2, read_bfloat)
MULTIPLY_QUADS(m16n8k8_tf32, float, float, 4, read_tf32)
MULTIPLY_QUADS(m16n8k32_int8, int, int, 1, read_byte)
MULTIPLY_QUADS(m16n8k32_float8_e4m3fn, float, float, 1, read_e4m3)
MULTIPLY_QUADS(m16n8k32_float8_e5m2, float, float, 1, read_e5m2)
inline void multiply_m16n8k4_float64(double (&c)[2][2], const double (&a)[2], const double (&b)[1])
{ cuda_on_cpu::multiply_numbers(c, a, b); }

// Asynchronous copies -------------------------------------------------------------------------------------------
//
// Nothing arrives before the wait that asks for its group, and until then the place holds garbage: a wait or a
// group's end too few, or a place that somebody still reads, shows.  Or, as the mode says, all arrives at once.

extern "C" char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));

namespace cuda_on_cpu {
struct Copy { void *to; const void *from; int size, wanted; };
struct Groups { std::vector<std::vector<Copy>> ended; std::vector<Copy> open; bool hidden; };
static std::vector<Groups> groups;

inline void arrive(const Copy &copy)
{
    if (copy.wanted) memcpy(copy.to, copy.from, copy.wanted);
    memset((char *)copy.to + copy.wanted, 0, copy.size - copy.wanted);
}

inline void copy_async(void *to, const void *from, int size, int wanted)
{
    if ((uintptr_t)to % size || (wanted && (uintptr_t)from % size)) __builtin_trap();
    if ((char *)to < __start_cuda_shared || (char *)to + size > __stop_cuda_shared) __builtin_trap();
    if (modes & COPIES_AT_ONCE) {
        arrive({to, from, size, wanted});
        size = 0;  // nothing is left to arrive
    } else {
        memset(to, 0xff, size);
    }
    groups[current].open.push_back({to, from, size, size ? wanted : 0});
}
}  // namespace cuda_on_cpu

inline void copy_async_4(void *to, const void *from, int wanted) { cuda_on_cpu::copy_async(to, from, 4, wanted); }
inline void copy_async_8(void *to, const void *from, int wanted) { cuda_on_cpu::copy_async(to, from, 8, wanted); }
inline void copy_async_16(void *to, const void *from, int wanted) { cuda_on_cpu::copy_async(to, from, 16, wanted); }
inline void copy_async_cached_16(void *to, const void *from, int wanted) { copy_async_16(to, from, wanted); }

inline void end_copies()
{
    cuda_on_cpu::Groups &own = cuda_on_cpu::groups[cuda_on_cpu::current];
    own.ended.push_back(std::move(own.open));
    own.open.clear();
}

template <int PENDING> inline void wait_copies()
{
    cuda_on_cpu::Groups &own = cuda_on_cpu::groups[cuda_on_cpu::current];
    while (own.ended.size() > PENDING) {
        for (const cuda_on_cpu::Copy &copy : own.ended.front()) cuda_on_cpu::arrive(copy);
        own.hidden |= !own.ended.front().empty();
        own.ended.erase(own.ended.begin());
    }
}

// Products that run beside the program ----------------------------------------------------------------------------
//
// Of each, a thread's sums are a function of shared memory and two descriptors, whose bits are read as hardware does.
// They are added at once, or, as the mode says, not before the wait that asks for their group.  A product in a group
// that was not begun, or beside copies that arrived and were not shown to products, ends the run.

namespace cuda_on_cpu {
struct Operand { uint64_t descriptor; bool along_k; };
/// `rows`: a's two rows of this thread where it comes in registers, else `a` says where they lie.
struct Product
{ void (*run)(const Product &, unsigned thread); void *sums; unsigned columns; Operand a, b; uint32_t rows[2][8]; };
struct Products { std::vector<std::vector<Product>> ended; std::vector<Product> open; bool begun; };
static std::vector<Products> products;

/// Where an operand's element of `size` bytes lies: `across` is the row of an m x k one, the column of a k x n one.
inline const char *element_at(const Operand &operand, unsigned across, unsigned k, unsigned size)
{
    uint64_t descriptor = operand.descriptor;
    unsigned start = (descriptor & 0x3fff) << 4, panel = (descriptor >> 16 & 0x3fff) << 4;
    unsigned eight = (descriptor >> 32 & 0x3fff) << 4;
    if (descriptor >> 62 != 1 || descriptor >> 46 & 0xffff) __builtin_trap();
    unsigned at = operand.along_k ? start + across / 8 * eight + across % 8 * 128 + k * size
                                  : start + across / 64 * panel + k / 8 * eight + k % 8 * 128 + across % 64 * size;
    at ^= (at >> 7 & 7) << 4;
    if (__start_cuda_shared + at + size > __stop_cuda_shared) __builtin_trap();
    return __start_cuda_shared + at;
}

/// m64nN: warp w has rows 16 w to 16 w + 15, of each 8 columns as m16n8 above.
template <class Sum, unsigned SIZE, Sum (*READ)(const char *)> void multiply(const Product &product, unsigned thread)
{
    Sum *sums = (Sum *)product.sums;
    for (unsigned i = 0; i < 2; ++i) {
        unsigned row = thread / 32 % 4 * 16 + i * 8 + thread % 32 / 4;
        Sum factor[32 / SIZE];
        for (unsigned k = 0; k < 32 / SIZE; ++k)
            factor[k] = READ(product.a.descriptor ? element_at(product.a, row, k, SIZE) : (const char *)product.rows[i] + k * SIZE);
        for (unsigned j = 0; j < product.columns / 4; ++j) {
            unsigned column = j / 2 * 8 + thread % 4 * 2 + j % 2;
            Sum &sum = sums[j / 2 * 4 + i * 2 + j % 2];
            for (unsigned k = 0; k < 32 / SIZE; ++k) sum += factor[k] * READ(element_at(product.b, column, k, SIZE));
        }
    }
}

inline void issue(const Product &product)
{
    if (!products[current].begun || current / 128 * 128 + 128 > blockDim.x) __builtin_trap();
    for (const Groups &one : groups)
        if (one.hidden) __builtin_trap();
    if (modes & PRODUCTS_LATE) products[current].open.push_back(product);
    else product.run(product, current);
}

/// a's rows lie in a warp's registers as those of m16n8 above; they are taken when the product is issued.
inline void issue_held(Product product, const unsigned int (&a)[4])
{
    uint32_t mine[4] = {a[0], a[1], a[2], a[3]};
    put_down(mine);
    AT_A_PLACE(meet, ~0u);
    for (unsigned i = 0; i < 2; ++i)
        for (unsigned word = 0; word < 8; ++word)
            product.rows[i][word] = held[lane() / 4 * 4 + word % 4][word / 4 * 2 + i];
    AT_A_PLACE(meet, ~0u);
    issue(product);
}

inline void wait_products(size_t pending)
{
    std::vector<std::vector<Product>> &ended = products[current].ended;
    while (ended.size() > pending) {
        for (const Product &one : ended.front()) one.run(one, current);
        ended.erase(ended.begin());
    }
}
}  // namespace cuda_on_cpu

inline void show_to_products() { cuda_on_cpu::groups[cuda_on_cpu::current].hidden = false; }
inline void begin_products() { cuda_on_cpu::products[cuda_on_cpu::current].begun = true; }

template <int PENDING> inline void end_products()
{
    cuda_on_cpu::Products &own = cuda_on_cpu::products[cuda_on_cpu::current];
    own.ended.push_back(std::move(own.open));
    own.open.clear();
    own.begun = false;
    cuda_on_cpu::wait_products(PENDING);
}

template <int COUNT, class T> inline void wait_products(T *) { cuda_on_cpu::wait_products(0); }

template <int PANEL, class T> inline unsigned long long operand_at(const T *buffer, int offset)
{
    const T *at = buffer + offset;
    if ((size_t)__start_cuda_shared % 1024) __builtin_trap();
    uint64_t from = (const char *)at - __start_cuda_shared;
    return 1ull << 62 | (uint64_t)(1024 >> 4) << 32 | (PANEL >> 4) << 16 | (from & 0x3ffff) >> 4;
}

#define MULTIPLY_BESIDE(lie, N, K, dtype, Sum, size, a_along_k, b_along_k, read)                                   \
    inline void multiply_##lie##_m64n##N##k##K##_##dtype(Sum (&c)[N / 8][2][2], uint64_t a, uint64_t b)            \
    { using namespace cuda_on_cpu; issue({multiply<Sum, size, read>, c, N, {a, a_along_k}, {b, b_along_k}}); }
#define MULTIPLY_BESIDE_ALL(lie, ...)                                                                              \
    MULTIPLY_BESIDE(lie, 64, __VA_ARGS__) MULTIPLY_BESIDE(lie, 128, __VA_ARGS__)                                   \
    MULTIPLY_BESIDE(lie, 192, __VA_ARGS__) MULTIPLY_BESIDE(lie, 256, __VA_ARGS__)
#define MULTIPLY_BESIDE_LIES(K, dtype, Sum, size, read)                                                            \
    MULTIPLY_BESIDE_ALL(kk, K, dtype, Sum, size, true, true, read)                                                 \
    MULTIPLY_BESIDE_ALL(kn, K, dtype, Sum, size, true, false, read)                                                \
    MULTIPLY_BESIDE_ALL(mk, K, dtype, Sum, size, false, true, read)                                                \
    MULTIPLY_BESIDE_ALL(mn, K, dtype, Sum, size, false, false, read)
MULTIPLY_BESIDE_LIES(16, float16, float, 2, read_half)
MULTIPLY_BESIDE_LIES(16, bfloat16, float, 2, read_bfloat)
#define MULTIPLY_HELD(N, dtype, read)                                                                              \
    inline void multiply_rn_m64n##N##k16_##dtype(float (&c)[N / 8][2][2], const unsigned int (&a)[4], uint64_t b)  \
    { using namespace cuda_on_cpu; issue_held({multiply<float, 2, read>, c, N, {0, true}, {b, false}}, a); }
#define MULTIPLY_HELD_ALL(...)                                                                                     \
    MULTIPLY_HELD(64, __VA_ARGS__) MULTIPLY_HELD(128, __VA_ARGS__)                                                 \
    MULTIPLY_HELD(192, __VA_ARGS__) MULTIPLY_HELD(256, __VA_ARGS__)
MULTIPLY_HELD_ALL(float16, read_half)
MULTIPLY_HELD_ALL(bfloat16, read_bfloat)
MULTIPLY_BESIDE_ALL(kk, 8, tf32, float, 4, true, true, read_tf32)
MULTIPLY_BESIDE_ALL(kk, 32, int8, int, 1, true, true, read_byte)
MULTIPLY_BESIDE_ALL(kk, 32, float8_e4m3fn, float, 1, true, true, read_e4m3)
MULTIPLY_BESIDE_ALL(kk, 32, float8_e5m2, float, 1, true, true, read_e5m2)

#include "cuda_boxes_on_cpu.h"

// Launching -----------------------------------------------------------------------------------------------------

extern "C" char __start_cuda_shared[] __attribute__((weak, visibility("hidden")));
extern "C" char __stop_cuda_shared[] __attribute__((weak, visibility("hidden")));

namespace cuda_on_cpu {
template <class P> P argument(void *given)
{
    if constexpr (std::is_same_v<std::remove_cv_t<P>, TensorMap>) {
        TensorMap map;
        memcpy(&map, given, sizeof map);
        return map;
    } else if constexpr (std::is_integral_v<P>) {
        return *(P *)given;
    } else {
        return (P)given;
    }
}

template <class... P, size_t... I>
void called(void (*kernel)(P...), void **arguments, std::index_sequence<I...>) { kernel(argument<P>(arguments[I])...); }

static void (*invoke)(void **);
static void **given;
inline void run_body() { invoke(given); }

/// The blocks of a cluster: each has shared memory of its own, which lies in its place while the block runs.
struct Block {
    std::vector<Fiber> fibers;
    std::vector<Groups> groups;
    std::vector<Products> products;
    std::map<unsigned long long *, Counted> barriers;
    std::vector<char> memory;
    char *stacks;
    bool moved;
};
static std::vector<Block> cluster;

inline void exchange_with(Block &block)
{
    std::swap(fibers, block.fibers);
    std::swap(groups, block.groups);
    std::swap(products, block.products);
    std::swap(barriers, block.barriers);
    std::swap(stacks, block.stacks);
    std::swap(moved, block.moved);
    std::swap_ranges(block.memory.begin(), block.memory.end(), __start_cuda_shared);
}

/// Block `r` of the cluster runs; the one that ran is put away.
inline void enter(unsigned r)
{
    if (r == rank) return;
    blockIdx.x += r - rank;
    exchange_with(cluster[rank]);
    exchange_with(cluster[r]);
    rank = r;
}

inline bool start_block(unsigned threads)
{
    size_t size = threads * STACK;
    stacks = (char *)mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fibers.assign(threads, Fiber());
    groups.assign(threads, Groups());
    products.assign(threads, Products());
    barriers.clear();
    moved = false;
    if (__start_cuda_shared)  // all bits set: a NaN of every width, and -1
        memset(__start_cuda_shared, 0xff, __stop_cuda_shared - __start_cuda_shared);
    for (unsigned i = 0; i < threads; ++i) make(i);
    return true;
}

/// All threads of a cluster's blocks, but for those that ended, wait for each other: they go on.
inline bool met_as_cluster(unsigned threads)
{
    unsigned met = 0;
    for (unsigned r = 0; r < cluster.size(); ++r) {
        enter(r);
        if (count_of(AT_CLUSTER) + count_of(ENDED) != threads) return false;
        met += count_of(AT_CLUSTER);
    }
    for (unsigned r = 0; r < cluster.size(); ++r) {
        enter(r);
        for (Fiber &one : fibers)
            if (one.state == AT_CLUSTER) one.state = RUNS;
    }
    return met > 0;
}

inline bool run_cluster(unsigned threads, bool reverse)
{
    for (;;) {
        unsigned ended = 0, went_on = 0;
        for (unsigned i = 0; i < cluster.size(); ++i) {
            enter(reverse ? cluster.size() - 1 - i : i);
            Round round;
            do {
                round = run_round(threads, reverse);
                if (round == FAILED) return false;
                went_on += round == WENT_ON;
            } while (round == WENT_ON && modes & COPIES_AT_ONCE);  // one block is as far ahead as it can be
            ended += count_of(ENDED) == threads;
        }
        if (ended == cluster.size()) break;
        if (went_on || met_as_cluster(threads) || deliver_next()) continue;
        snprintf(error, sizeof error, "block %u: %u of %u threads wait for ever", blockIdx.x,
                 count_of(WAITS) + count_of(AT_CLUSTER), threads);
        return false;
    }
    for (unsigned r = 0; r < cluster.size(); ++r) {
        enter(r);
        if (is_settled()) continue;
        snprintf(error, sizeof error, "block %u ended before all that it asked for had come", blockIdx.x);
        return false;
    }
    return true;
}

/// 0, or 1 with a message in `message`.
inline int launch(
    void (*call)(void **), void **arguments, unsigned blocks, unsigned threads, unsigned clustered, int how, char *message)
{
    bool reverse = how & REVERSE;
    modes = how;
    invoke = call;
    given = arguments;
    body = run_body;
    error[0] = 0;
    blockDim = {threads, 1, 1};
    gridDim = {blocks, 1, 1};
    bool good = blocks % clustered == 0;
    if (!good) snprintf(error, sizeof error, "%u blocks in clusters of %u", blocks, clustered);
    cluster.assign(clustered, Block());
    if (clustered > 1)
        for (Block &one : cluster) one.memory.resize(__stop_cuda_shared - __start_cuda_shared);
    for (unsigned b = 0; good && b < blocks; b += clustered) {
        rank = 0;
        blockIdx = {reverse ? blocks - clustered - b : b, 0, 0};
        boxes.clear();
        stores.clear();
        meetings.clear();
        for (unsigned r = 0; r < clustered; ++r) {
            enter(r);
            start_block(threads);
        }
        good = run_cluster(threads, reverse);
        for (unsigned r = 0; r < clustered; ++r) {
            enter(r);
            munmap(stacks, threads * STACK);
        }
        enter(0);
    }
    strcpy(message, error);
    return good ? 0 : 1;
}
}  // namespace cuda_on_cpu
