// The part of `cuda_on_cpu.h` that is a copy engine: boxes of tensors, and barriers that count their bytes.
// A box may go to all blocks of a cluster, whose shared memory and barriers are then those of the block that it names.
//
// Boxes of results are read, and stored, when they are asked for, or not before the wait that asks for it.
//
// A box arrives when it is asked for, or, as the mode says, not before no thread can run: the oldest first, or the
// newest.  Until then its place holds garbage.  Where nothing can run and no box is left, threads wait for ever.

struct alignas(64) TensorMap { unsigned words[32]; };
#define __grid_constant__

namespace cuda_on_cpu {
struct Counted { unsigned arrivals, left; long bytes; unsigned phase; };
struct BoxCopy { char *to; TensorMap map; int at[5]; unsigned long long *barrier; unsigned ranks; };
static std::map<unsigned long long *, Counted> barriers;
static std::vector<BoxCopy> boxes;
struct BoxStore { const char *from; TensorMap map; int at[5]; unsigned rank, thread; bool ended; };
static std::vector<BoxStore> stores;
struct Meeting { unsigned came, number; };
static std::map<unsigned, Meeting> meetings;  // of the warpgroups of the blocks of a cluster

inline void enter(unsigned r);

inline Counted &counted(unsigned long long *barrier)
{
    auto found = barriers.find(barrier);
    if (found == barriers.end()) __builtin_trap();  // not started
    return found->second;
}

inline void count(unsigned long long *barrier, unsigned arrivals, long bytes)
{
    Counted &one = counted(barrier);
    if (one.left < arrivals) __builtin_trap();
    one.left -= arrivals;
    one.bytes += bytes;
    if (one.left || one.bytes) return;
    one.left = one.arrivals;
    ++one.phase;
    moved = true;
}

/// A tensor map's fields (see rollergen/hal/tensor_maps.py for where they are documented).
struct Fields {
    unsigned rank, size, swizzle, extent[5], side[5];
    uint64_t address, stride[5];
    explicit Fields(const TensorMap &map)
    {
        const unsigned *w = map.words;
        address = (uint64_t)w[1] << 32 | w[0];
        rank = (w[2] >> 4 & 7) + 1;
        size = 1u << (w[2] >> 7 & 15);
        swizzle = w[2] >> 13 & 3;
        for (unsigned d = 0; d < 5; ++d) {
            stride[d] = d ? ((uint64_t)(w[7] >> 4 * (d - 1) & 15) << 32 | w[2 + d]) * 16 : size;
            extent[d] = w[8 + d] + 1;
            side[d] = (d ? w[14] >> 8 * (d - 1) & 255 : w[13] >> 24) + 1;
        }
    }
    unsigned elements() const
    {
        unsigned product = 1;
        for (unsigned d = 0; d < rank; ++d) product *= side[d];
        return product;
    }
};

/// Where element `e` of a box lies: rows of 128 bytes, whose pieces of 16 change places by the address.
inline char *swizzled(char *to, unsigned e, unsigned size)
{
    uint64_t at = to - __start_cuda_shared + (uint64_t)e * size;
    return __start_cuda_shared + (at ^ (at >> 7 & 7) << 4);
}

/// Does something in each block of the cluster that `ranks` has a bit of; one that ended is none any more.
template <class F> void in_each(unsigned ranks, F what)
{
    unsigned self = rank;
    for (unsigned r = 0; ranks >> r; ++r) {
        if (!(ranks >> r & 1)) continue;
        enter(r);
        if (r != self && count_of(ENDED) == fibers.size()) __builtin_trap();
        what();
    }
    enter(self);
}

inline void deliver(const BoxCopy &copy)
{
    Fields map(copy.map);
    in_each(copy.ranks, [&] {
        for (unsigned e = 0; e < map.elements(); ++e) {
            uint64_t from = map.address;
            bool inside = true;
            for (unsigned d = 0, left = e; d < map.rank; left /= map.side[d], ++d) {
                int64_t at = copy.at[d] + (int64_t)(left % map.side[d]);
                inside &= at >= 0 && at < (int64_t)map.extent[d];
                from += at * map.stride[d];
            }
            char *to = swizzled(copy.to, e, map.size);
            if (inside) memcpy(to, (const char *)from, map.size);
            else memset(to, 0, map.size);
        }
        count(copy.barrier, 0, -(long)map.elements() * map.size);
    });
}

template <unsigned RANK>
void copy_box(void *to, const TensorMap &tensor, unsigned long long *barrier, unsigned ranks, const int (&at)[RANK])
{
    Fields map(tensor);
    unsigned bytes = map.elements() * map.size;
    char *first = (char *)to;
    if (map.rank != RANK || map.swizzle != 3 || map.side[0] * map.size != 128 || map.address % 16) __builtin_trap();
    if ((first - __start_cuda_shared) % 128 || first < __start_cuda_shared || first + bytes > __stop_cuda_shared)
        __builtin_trap();
    BoxCopy copy = {first, tensor, {}, barrier, ranks};
    for (unsigned d = 0; d < RANK; ++d) copy.at[d] = at[d];
    bool late = !(modes & COPIES_AT_ONCE);
    in_each(ranks, [&] {
        counted(barrier);
        if (late) memset(first, 0xff, bytes);
    });
    if (late) boxes.push_back(copy);
    else deliver(copy);
}

inline void store(const BoxStore &one)
{
    Fields map(one.map);
    for (unsigned e = 0; e < map.elements(); ++e) {
        uint64_t to = map.address;
        bool inside = true;
        for (unsigned d = 0, left = e; d < map.rank; left /= map.side[d], ++d) {
            int64_t at = one.at[d] + (int64_t)(left % map.side[d]);
            inside &= at >= 0 && at < (int64_t)map.extent[d];
            to += at * map.stride[d];
        }
        if (inside) memcpy((char *)to, swizzled((char *)one.from, e, map.size), map.size);
    }
}

template <unsigned RANK> void store_box(const TensorMap &tensor, const void *from, const int (&at)[RANK])
{
    Fields map(tensor);
    const char *first = (const char *)from;
    if (map.rank != RANK || map.swizzle != 3 || map.side[0] * map.size != 128 || map.address % 16) __builtin_trap();
    if ((first - __start_cuda_shared) % 128 || first < __start_cuda_shared
        || first + map.elements() * map.size > __stop_cuda_shared)
        __builtin_trap();
    BoxStore one = {first, tensor, {}, rank, current, false};
    for (unsigned d = 0; d < RANK; ++d) one.at[d] = at[d];
    if (modes & COPIES_AT_ONCE) store(one);
    stores.push_back(one);
}

/// All that this thread's ended groups are to store is stored.
inline void end_own_stores()
{
    std::vector<BoxStore> left;
    for (const BoxStore &one : stores) {
        if (one.rank != rank || one.thread != current || !one.ended) left.push_back(one);
        else if (!(modes & COPIES_AT_ONCE)) store(one);
    }
    stores = left;
}

/// All 128 threads of a warpgroup wait for each other.
inline void meet_group()
{
    unsigned key = rank << 8 | threadIdx.x / 128;
    Meeting &one = meetings[key];
    unsigned number = one.number;
    if (++one.came == 128) {
        one.came = 0;
        ++one.number;
        moved = true;
    } else {
        while (meetings[key].number == number) leave(WAITS, &one);
    }
}

/// One box that is on its way arrives; false: there is none.
inline bool deliver_next()
{
    if (boxes.empty()) return false;
    auto next = modes & NEWEST_FIRST ? boxes.end() - 1 : boxes.begin();
    BoxCopy copy = *next;
    boxes.erase(next);
    deliver(copy);
    in_each(copy.ranks, [] { moved = true; });
    return true;
}

/// Whether a block ended with all that it asked for in place.
inline bool is_settled()
{
    for (const auto &one : barriers)
        if (one.second.bytes || one.second.left != one.second.arrivals) return false;
    return boxes.empty() && stores.empty();
}
}  // namespace cuda_on_cpu

inline void start_barriers(unsigned long long *at, int count, unsigned arrivals)
{
    for (int i = 0; threadIdx.x == 0 && i < count; ++i) cuda_on_cpu::barriers[at + i] = {arrivals, arrivals, 0, 0};
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
    while ((cuda_on_cpu::counted(barrier).phase & 1) == (unsigned)parity)
        cuda_on_cpu::leave(cuda_on_cpu::WAITS, barrier);
}

template <unsigned BLOCKS> inline void free_tile_of(unsigned long long *barrier)
{
    using namespace cuda_on_cpu;
    if (threadIdx.x % 32 < BLOCKS) in_each(1u << threadIdx.x % 32, [&] { count(barrier, 1, 0); });
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
inline void end_stores()
{
    for (auto &one : cuda_on_cpu::stores)
        if (one.rank == cuda_on_cpu::rank && one.thread == cuda_on_cpu::current) one.ended = true;
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
