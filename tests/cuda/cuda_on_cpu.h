// CUDA text as C++ on x86-64: what the text calls.  What is behind these names is compiled once for all texts, in
// `cuda_on_cpu.cpp`, which says how blocks run.  Every text is compiled behind this, so it is short and includes little.
#pragma once
#include <cstddef>
#undef _GLIBCXX_USE_STD_SPEC_FUNCS  // libstdc++'s Bessel functions and their kin are half of what g++ reads here
#define _GLIBCXX_USE_STD_SPEC_FUNCS 0
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

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
    __builtin_memcpy(&to, &from, sizeof to);  // with -fno-builtin memcpy is a call
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
/// The low word of both shifted to the right by less than 32.
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits)
{ return (unsigned)(((uint64_t)high << 32 | low) >> (bits & 31)); }
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

// Threads that meet ---------------------------------------------------------------------------------------------

struct Dim3 { unsigned x, y, z; };
extern Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_cpu {
enum State { RUNS, AT_BARRIER, AT_WARP, AT_CLUSTER, WAITS, ENDED };
enum Modes { REVERSE = 1, COPIES_AT_ONCE = 2, PRODUCTS_LATE = 4, NEWEST_FIRST = 8 };
extern unsigned current;
extern int modes;
extern unsigned rank;  // of the block in its cluster

/// The thread goes on when what it waits for has come.
void leave(State state, const void *where);
void meet(const void *place, unsigned mask);
void sync_warp(const void *place, unsigned mask = ~0u);
uint64_t exchanged_word(const void *place, unsigned mask, uint64_t word, int lane, int width);

/// What `lane` gave; its own value beyond `width` lanes, all bits set (a NaN, -1) where there is no such thread.
template <class T> inline T exchanged(const void *place, unsigned mask, T value, int lane, int width)
{
    static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
    uint64_t word = 0;
    __builtin_memcpy(&word, &value, sizeof value);
    word = exchanged_word(place, mask, word, lane, width);
    __builtin_memcpy(&value, &word, sizeof value);
    return value;
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

// Each place in the text is a barrier of its own.
#define __syncthreads() \
    do { \
        static const char place = 0; \
        cuda_on_cpu::leave(cuda_on_cpu::AT_BARRIER, &place); \
    } while (0)

// Matrix instructions ------------------------------------------------------------------------------------------

namespace cuda_on_cpu {
void load_opaque(unsigned int (&fragment)[8], const unsigned short *at, int row, int column);
void multiply_opaque(float (&c)[2][4], const unsigned int (&a)[8], const unsigned int (&b)[8]);
void store_opaque(const float (&c)[2][4], float *at, int pitch);
void load_matrices(unsigned int *fragment, unsigned count, const void *row, bool turned);
template <class Sum, class Factor, unsigned BYTES>
void multiply_quads(Sum (&c)[2][2], const unsigned int (&a)[4], const unsigned int (&b)[2], Factor (*read)(const char *));
void multiply_numbers(double (&c)[2][2], const double (&a)[2], const double (&b)[1]);
template <bool COL> void multiply_quad_pairs(float (&c)[2][4], const unsigned int *a, const unsigned int *b);
float read_half(const char *at);
float read_bfloat(const char *at);
float read_tf32(const char *at);
int read_byte(const char *at);
float read_e5m2(const char *at);
float read_e4m3(const char *at);
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
{ cuda_on_cpu::store_opaque(c, at, pitch); }
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

// Asynchronous copies, and products that run beside the program --------------------------------------------------

namespace cuda_on_cpu {
void copy_async(void *to, const void *from, int size, int wanted);
void end_copies();
void wait_copies(size_t pending);

struct Operand { uint64_t descriptor; bool along_k; };
/// `rows`: a's two rows of this thread where it comes in registers, else `a` says where they lie; `held`: those registers,
/// which keep `own` values until the product ends.
struct Product
{
    void (*run)(const Product &, unsigned thread);
    void *sums;
    unsigned columns;
    Operand a, b;
    uint32_t rows[2][8];
    const unsigned *held;
    uint32_t own[4];
};
template <class Sum, unsigned SIZE, Sum (*READ)(const char *)> void multiply(const Product &product, unsigned thread);
void show_to_products();
void begin_products();
void issue(const Product &product);
void issue_held(Product product, const unsigned int (&a)[4]);
void end_products(size_t pending);
void wait_products(size_t pending);
uint64_t descriptor_of(const void *at, unsigned panel);
}  // namespace cuda_on_cpu

using cuda_on_cpu::end_copies; using cuda_on_cpu::show_to_products; using cuda_on_cpu::begin_products;

inline void copy_async_4(void *to, const void *from, int wanted) { cuda_on_cpu::copy_async(to, from, 4, wanted); }
inline void copy_async_8(void *to, const void *from, int wanted) { cuda_on_cpu::copy_async(to, from, 8, wanted); }
inline void copy_async_16(void *to, const void *from, int wanted) { cuda_on_cpu::copy_async(to, from, 16, wanted); }
inline void copy_async_cached_16(void *to, const void *from, int wanted) { copy_async_16(to, from, wanted); }
template <int PENDING> inline void wait_copies() { cuda_on_cpu::wait_copies(PENDING); }
template <int PENDING> inline void end_products() { cuda_on_cpu::end_products(PENDING); }
inline void wait_factors() { cuda_on_cpu::wait_products(0); }
template <int COUNT, class T> inline void wait_products(T *) { cuda_on_cpu::wait_products(0); }
template <int PANEL, class T> inline unsigned long long operand_at(const T *buffer, int offset)
{ return cuda_on_cpu::descriptor_of(buffer + offset, PANEL); }

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

// Boxes of tensors ----------------------------------------------------------------------------------------------

struct alignas(64) TensorMap { unsigned words[32]; };
#define __grid_constant__

namespace cuda_on_cpu {
void start_barrier(unsigned long long *barrier, unsigned arrivals);
void count(unsigned long long *barrier, unsigned arrivals, long bytes);
void count_in_each(unsigned long long *barrier, unsigned ranks);
unsigned phase_of(unsigned long long *barrier);
template <unsigned RANK>
void copy_box(void *to, const TensorMap &tensor, unsigned long long *barrier, unsigned ranks, const int (&at)[RANK]);
template <unsigned RANK> void store_box(const TensorMap &tensor, const void *from, const int (&at)[RANK]);
void end_stores();
void end_own_stores();
void meet_group();
}  // namespace cuda_on_cpu

using cuda_on_cpu::end_stores;

inline void start_barriers(unsigned long long *at, int count, unsigned arrivals)
{
    for (int i = 0; threadIdx.x == 0 && i < count; ++i) cuda_on_cpu::start_barrier(at + i, arrivals);
}

template <unsigned WARP> inline bool is_issuer()
{
    AT_A_PLACE(sync_warp);
    return threadIdx.x == WARP * 32 + (cuda_on_cpu::modes & cuda_on_cpu::REVERSE ? 31 : 0);
}

inline void free_tile(unsigned long long *barrier)
{
    if (threadIdx.x % 32 == 0) cuda_on_cpu::count(barrier, 1, 0);
    if (cuda_on_cpu::modes & cuda_on_cpu::PRODUCTS_LATE) cuda_on_cpu::leave(cuda_on_cpu::WAITS, barrier);
}

inline void expect_bytes(unsigned long long *barrier, int bytes) { cuda_on_cpu::count(barrier, 1, bytes); }

inline void wait_tile(unsigned long long *barrier, int parity)
{
    while ((cuda_on_cpu::phase_of(barrier) & 1) == (unsigned)parity)
        cuda_on_cpu::leave(cuda_on_cpu::WAITS, barrier);
}

template <unsigned BLOCKS> inline void free_tile_of(unsigned long long *barrier)
{
    using namespace cuda_on_cpu;
    if (threadIdx.x % 32 < BLOCKS) count_in_each(barrier, 1u << threadIdx.x % 32);
    if (modes & PRODUCTS_LATE) leave(WAITS, barrier);
}

inline void meet_cluster() { cuda_on_cpu::leave(cuda_on_cpu::AT_CLUSTER, nullptr); }

#define COPY_BOX(RANK, parameters, ...)                                                                            \
    inline void copy_box_##RANK(void *to, const TensorMap &map, unsigned long long *barrier, parameters)           \
    { cuda_on_cpu::copy_box<RANK>(to, map, barrier, 1u << cuda_on_cpu::rank, {__VA_ARGS__}); }                      \
    template <unsigned BLOCKS> inline void copy_shared_box_##RANK(                                                 \
        void *to, const TensorMap &map, unsigned long long *barrier, parameters)                                   \
    { cuda_on_cpu::copy_box<RANK>(to, map, barrier, (1u << BLOCKS) - 1, {__VA_ARGS__}); }
#define AND ,
COPY_BOX(2, int a AND int b, a, b)
COPY_BOX(3, int a AND int b AND int c, a, b, c)
COPY_BOX(4, int a AND int b AND int c AND int d, a, b, c, d)
COPY_BOX(5, int a AND int b AND int c AND int d AND int e, a, b, c, d, e)

inline bool is_storing()
{
    AT_A_PLACE(sync_warp);
    return threadIdx.x % 128 == (cuda_on_cpu::modes & cuda_on_cpu::REVERSE ? 31 : 0);
}
inline void wait_stores() { cuda_on_cpu::end_own_stores(); }
inline void free_results()
{
    if (is_storing()) cuda_on_cpu::end_own_stores();
    cuda_on_cpu::meet_group();
}
inline void show_results() { cuda_on_cpu::meet_group(); }

#define STORE_BOX(RANK, parameters, ...)                                                                           \
    inline void store_box_##RANK(const TensorMap &map, const void *from, parameters)                               \
    { cuda_on_cpu::store_box<RANK>(map, from, {__VA_ARGS__}); }
STORE_BOX(2, int a AND int b, a, b)
STORE_BOX(3, int a AND int b AND int c, a, b, c)
STORE_BOX(4, int a AND int b AND int c AND int d, a, b, c, d)
STORE_BOX(5, int a AND int b AND int c AND int d AND int e, a, b, c, d, e)

// Launching -----------------------------------------------------------------------------------------------------

namespace cuda_on_cpu {
template <class P> P argument(void *given)
{
    if constexpr (std::is_same_v<std::remove_cv_t<P>, TensorMap>) {
        TensorMap map;
        __builtin_memcpy(&map, given, sizeof map);
        return map;
    } else if constexpr (std::is_integral_v<P>) {
        return *(P *)given;
    } else {
        return (P)given;
    }
}

template <class... P, size_t... I>
void called(void (*kernel)(P...), void **arguments, std::index_sequence<I...>) { kernel(argument<P>(arguments[I])...); }

/// 0, or 1 with a message in `message`.
int launch(
    void (*call)(void **), void **arguments, unsigned blocks, unsigned threads, unsigned clustered, int how, char *message);
}  // namespace cuda_on_cpu
