// The part of `cuda_on_cpu.cpp` that is a copy engine: boxes of tensors, and barriers that count their bytes.
// A box may go to all blocks of a cluster, whose shared memory and barriers are then those of the block that it names.
//
// Boxes of results are read, and stored, when they are asked for, or not before the wait that asks for it.
//
// A box arrives when it is asked for, or, as the mode says, not before no thread can run: the oldest first, or the
// newest.  Until then its place holds garbage.  Where nothing can run and no box is left, threads wait for ever.

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

void count(unsigned long long *barrier, unsigned arrivals, long bytes)
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

void start_barrier(unsigned long long *barrier, unsigned arrivals) { barriers[barrier] = {arrivals, arrivals, 0, 0}; }
unsigned phase_of(unsigned long long *barrier) { return counted(barrier).phase; }

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

void count_in_each(unsigned long long *barrier, unsigned ranks)
{
    in_each(ranks, [&] { count(barrier, 1, 0); });
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

void end_stores()
{
    for (BoxStore &one : stores)
        if (one.rank == rank && one.thread == current) one.ended = true;
}

/// All that this thread's ended groups are to store is stored.
void end_own_stores()
{
    std::vector<BoxStore> left;
    for (const BoxStore &one : stores) {
        if (one.rank != rank || one.thread != current || !one.ended) left.push_back(one);
        else if (!(modes & COPIES_AT_ONCE)) store(one);
    }
    stores = left;
}

/// All 128 threads of a warpgroup wait for each other.
void meet_group()
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

#define BOXES_OF(RANK)                                                                                             \
    template void copy_box<RANK>(void *, const TensorMap &, unsigned long long *, unsigned, const int (&)[RANK]);  \
    template void store_box<RANK>(const TensorMap &, const void *, const int (&)[RANK]);
BOXES_OF(2)
BOXES_OF(3)
BOXES_OF(4)
BOXES_OF(5)
}  // namespace cuda_on_cpu
