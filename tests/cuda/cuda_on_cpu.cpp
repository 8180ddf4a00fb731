// What is behind the names of `cuda_on_cpu.h`: compiled once, linked to every text.
//
// A fiber runs until it meets a barrier, a shuffle or its end, or has to wait for a copy engine.  A barrier opens once all
// threads of the block have come to the same one; a thread that ended, or waits elsewhere, is an error.  Shared memory lies in a section of its
// own and is filled with NaN before each block.  The order of threads may be reversed: text that lacks a barrier then
// reads what was not yet written, in one order or the other.
#include "cuda_on_cpu.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/mman.h>
#include <vector>

Dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_cpu {
struct Fiber { void *stack_pointer; State state; const void *where; uint64_t exchanged; unsigned mask; };

static std::vector<Fiber> fibers;
static void *scheduler;
unsigned current;
static void (*body)();
static char *stacks;
constexpr size_t STACK = (128 << 10) + 320;  // no power of two: their ends lie in different sets of a cache
static char error[400];
int modes;
static bool moved;
unsigned rank;

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

void leave(State state, const void *where)
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

void meet(const void *place, unsigned mask)
{
    fibers[current].mask = mask;
    leave(AT_WARP, place);
}

void sync_warp(const void *place, unsigned mask)
{
    unsigned first = current / 32 * 32, lanes = blockDim.x - first;
    meet(place, mask == ~0u && lanes < 32 ? (1u << lanes) - 1 : mask);  // the default names those that there are
}

uint64_t exchanged_word(const void *place, unsigned mask, uint64_t word, int lane, int width)
{
    unsigned self = current, first = self / 32 * 32;
    int segment = (int)(self % 32) / width;
    fibers[self].exchanged = word;
    meet(place, mask);
    uint64_t got = word;
    if (lane >= 0 && lane / width == segment) got = first + lane < blockDim.x ? fibers[first + lane].exchanged : ~0ull;
    meet(place, mask);  // nobody overwrites what another has yet to read
    return got;
}
}  // namespace cuda_on_cpu

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

void load_opaque(unsigned int (&fragment)[8], const unsigned short *at, int row, int column)
{
    together(at, 32, true);
    if ((row == 1 ? column : row) * 2 % 16) __builtin_trap();
    for (unsigned i = 0; i < 8; ++i) fragment[i] = 0xffffffff;
    for (unsigned e = 0; e < 256; ++e)
        if (lane_of(e) == lane()) ((unsigned short *)fragment)[slot_of(e)] = at[e / 16 * row + e % 16 * column];
    AT_A_PLACE(meet, ~0u);
}

void multiply_opaque(float (&c)[2][4], const unsigned int (&a)[8], const unsigned int (&b)[8])
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
void load_matrices(unsigned int *fragment, unsigned count, const void *row, bool turned)
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
void multiply_quads(Sum (&c)[2][2], const unsigned int (&a)[4], const unsigned int (&b)[2], Factor (*read)(const char *))
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
void multiply_numbers(double (&c)[2][2], const double (&a)[2], const double (&b)[1])
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
void multiply_quad_pairs(float (&c)[2][4], const unsigned int *a, const unsigned int *b)
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

float read_half(const char *at) { return half_to_float(*(const unsigned short *)at); }
float read_bfloat(const char *at) { return bits_as<float>((unsigned)*(const unsigned short *)at << 16); }
float read_tf32(const char *at) { return bits_as<float>(*(const unsigned *)at & 0xffffe000u); }
int read_byte(const char *at) { return *(const signed char *)at; }
float read_e5m2(const char *at) { return half_to_float(*(const unsigned char *)at << 8); }
float read_e4m3(const char *at)
{
    const unsigned bits = *(const unsigned char *)at;
    if ((bits & 0x7f) == 0x7f) return bits_as<float>(0x7fc00000u);
    return half_to_float((bits & 0x80) << 8 | (bits & 0x7f) << 7) * 256.0f;  // exponents of a half are biased by 15, not 7
}

void store_opaque(const float (&c)[2][4], float *at, int pitch)
{
    together(at, 32, true);
    for (unsigned e = 0; e < 256; ++e)
        if (lane_of(e) == lane()) at[e / 16 * pitch + e % 16] = (&c[0][0])[slot_of(e)];
}

#define QUADS(Sum, Factor, bytes)                                                                                  \
    template void multiply_quads<Sum, Factor, bytes>(                                                              \
        Sum (&)[2][2], const unsigned int (&)[4], const unsigned int (&)[2], Factor (*)(const char *));
QUADS(float, float, 2)
QUADS(float, float, 4)
QUADS(int, int, 1)
QUADS(float, float, 1)
template void multiply_quad_pairs<false>(float (&)[2][4], const unsigned int *, const unsigned int *);
template void multiply_quad_pairs<true>(float (&)[2][4], const unsigned int *, const unsigned int *);
}  // namespace cuda_on_cpu

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

void copy_async(void *to, const void *from, int size, int wanted)
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

void end_copies()
{
    Groups &own = groups[current];
    own.ended.push_back(std::move(own.open));
    own.open.clear();
}

void wait_copies(size_t pending)
{
    Groups &own = groups[current];
    while (own.ended.size() > pending) {
        for (const Copy &copy : own.ended.front()) arrive(copy);
        own.hidden |= !own.ended.front().empty();
        own.ended.erase(own.ended.begin());
    }
}
}  // namespace cuda_on_cpu

// Products that run beside the program ----------------------------------------------------------------------------
//
// Of each, a thread's sums are a function of shared memory and two descriptors, whose bits are read as hardware does.
// They are added at once, or, as the mode says, not before the wait that asks for their group.  A product in a group
// that was not begun, or beside copies that arrived and were not shown to products, ends the run.

namespace cuda_on_cpu {
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

/// The factors of one row of a, or column of b, as numbers; along k 16 bytes stay together.
template <class Sum, unsigned SIZE, Sum (*READ)(const char *)>
inline void read_factors(Sum (&factors)[32 / SIZE], const Operand &operand, unsigned across)
{
    constexpr unsigned TOGETHER = 16 / SIZE;
    const char *at = nullptr;
    for (unsigned k = 0; k < 32 / SIZE; ++k) {
        at = operand.along_k && k % TOGETHER ? at + SIZE : element_at(operand, across, k, SIZE);
        factors[k] = READ(at);
    }
}

/// m64nN: warp w has rows 16 w to 16 w + 15, of each 8 columns as m16n8 above.
template <class Sum, unsigned SIZE, Sum (*READ)(const char *)> void multiply(const Product &product, unsigned thread)
{
    Sum *sums = (Sum *)product.sums, rows[2][32 / SIZE], column[32 / SIZE];
    if (product.held && memcmp(product.held, product.own, sizeof product.own)) __builtin_trap();
    for (unsigned i = 0; i < 2; ++i) {
        unsigned row = thread / 32 % 4 * 16 + i * 8 + thread % 32 / 4;
        if (product.a.descriptor) read_factors<Sum, SIZE, READ>(rows[i], product.a, row);
        else
            for (unsigned k = 0; k < 32 / SIZE; ++k) rows[i][k] = READ((const char *)product.rows[i] + k * SIZE);
    }
    for (unsigned j = 0; j < product.columns / 4; ++j) {
        read_factors<Sum, SIZE, READ>(column, product.b, j / 2 * 8 + thread % 4 * 2 + j % 2);
        for (unsigned i = 0; i < 2; ++i) {
            Sum &sum = sums[j / 2 * 4 + i * 2 + j % 2];
            for (unsigned k = 0; k < 32 / SIZE; ++k) sum += rows[i][k] * column[k];
        }
    }
}

void issue(const Product &product)
{
    if (!products[current].begun || current / 128 * 128 + 128 > blockDim.x) __builtin_trap();
    for (const Groups &one : groups)
        if (one.hidden) __builtin_trap();
    if (modes & PRODUCTS_LATE) products[current].open.push_back(product);
    else product.run(product, current);
}

/// a's rows lie in a warp's registers as those of m16n8 above; they are taken when the product is issued.
void issue_held(Product product, const unsigned int (&a)[4])
{
    product.held = a;
    for (unsigned i = 0; i < 4; ++i) product.own[i] = a[i];
    put_down(product.own);
    AT_A_PLACE(meet, ~0u);
    for (unsigned i = 0; i < 2; ++i)
        for (unsigned word = 0; word < 8; ++word)
            product.rows[i][word] = held[lane() / 4 * 4 + word % 4][word / 4 * 2 + i];
    AT_A_PLACE(meet, ~0u);
    issue(product);
}

void wait_products(size_t pending)
{
    std::vector<std::vector<Product>> &ended = products[current].ended;
    while (ended.size() > pending) {
        for (const Product &one : ended.front()) one.run(one, current);
        ended.erase(ended.begin());
    }
}

void show_to_products() { groups[current].hidden = false; }
void begin_products() { products[current].begun = true; }

void end_products(size_t pending)
{
    Products &own = products[current];
    own.ended.push_back(std::move(own.open));
    own.open.clear();
    own.begun = false;
    wait_products(pending);
}

uint64_t descriptor_of(const void *at, unsigned panel)
{
    if ((size_t)__start_cuda_shared % 1024) __builtin_trap();
    uint64_t from = (const char *)at - __start_cuda_shared;
    return 1ull << 62 | (uint64_t)(1024 >> 4) << 32 | (panel >> 4) << 16 | (from & 0x3ffff) >> 4;
}

template void multiply<float, 2, read_half>(const Product &, unsigned);
template void multiply<float, 2, read_bfloat>(const Product &, unsigned);
template void multiply<float, 4, read_tf32>(const Product &, unsigned);
template void multiply<int, 1, read_byte>(const Product &, unsigned);
template void multiply<float, 1, read_e4m3>(const Product &, unsigned);
template void multiply<float, 1, read_e5m2>(const Product &, unsigned);
}  // namespace cuda_on_cpu

#include "cuda_boxes_on_cpu.cpp"

// Launching -----------------------------------------------------------------------------------------------------

namespace cuda_on_cpu {
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
}

/// Block `r` of the cluster runs; the one that ran is put away.
inline void enter(unsigned r)
{
    if (r == rank) return;
    blockIdx.x += r - rank;
    std::vector<char> &away = cluster[rank].memory, &back = cluster[r].memory;
    memcpy(away.data(), __start_cuda_shared, away.size());
    memcpy(__start_cuda_shared, back.data(), back.size());
    exchange_with(cluster[rank]);
    exchange_with(cluster[r]);
    rank = r;
}

inline void start_block(unsigned threads)
{
    if (!stacks)  // all blocks of a launch use them: their pages come once
        stacks = (char *)mmap(nullptr, threads * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fibers.assign(threads, Fiber());
    groups.assign(threads, Groups());
    products.assign(threads, Products());
    barriers.clear();
    moved = false;
    if (__start_cuda_shared)  // all bits set: a NaN of every width, and -1
        memset(__start_cuda_shared, 0xff, __stop_cuda_shared - __start_cuda_shared);
    for (unsigned i = 0; i < threads; ++i) make(i);
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
int launch(
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
        enter(0);
    }
    for (unsigned r = 0; r < clustered; ++r) {
        enter(r);
        if (stacks) munmap(stacks, threads * STACK);
        stacks = nullptr;
    }
    enter(0);
    strcpy(message, error);
    return good ? 0 : 1;
}
}  // namespace cuda_on_cpu
