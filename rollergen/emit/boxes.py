"""Tiles that a copy engine brings in CUDA (TMA, from sm_90 on): the functions that a kernel brings, by inline PTX.

A barrier in shared memory counts arrivals, and bytes of which arrivals tell (PTX ISA, "mbarrier" and
"cp.async.bulk.tensor").  Their names are defined for NVIDIA's compilers only: a host that runs the text
brings its own.
"""

from __future__ import annotations

from rollergen.emit.c_expressions import INDENT
from rollergen.emit.cuda_vectors import CudaVectors
from rollergen.lower.box_ir import (
    Box,
    BoxStatement,
    FillTile,
    FreeResults,
    FreeTile,
    Leave,
    MeetCluster,
    ShowResults,
    StartBarriers,
    StoreBoxes,
    WaitStores,
    WaitTile,
)

BARRIERS = """#ifdef __CUDACC__
/* What the copy engine knows of a tensor; a kernel's parameter. */
struct __align__(64) TensorMap { unsigned long long words[16]; };

__device__ __forceinline__ void start_barriers(unsigned long long *barriers, const int count, const int arrivals)
{
    if (threadIdx.x == 0) {
        for (int i = 0; i < count; ++i) {
            const unsigned int at = (unsigned int)__cvta_generic_to_shared(barriers + i);
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at), "r"(arrivals) : "memory");
        }
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Of one thread of a warp.  Written otherwise, ptxas puts a loop over lanes around each copy. */
template <int WARP> __device__ __forceinline__ bool is_issuer()
{
    unsigned int elected;
    asm volatile("{ .reg .pred is; elect.sync _|is, 0xffffffff; selp.u32 %0, 1, 0, is; }" : "=r"(elected));
    return (elected != 0) & (threadIdx.x / 32 == WARP);
}

__device__ __forceinline__ void expect_bytes(unsigned long long *barrier, const int bytes)
{
    const unsigned int at = (unsigned int)__cvta_generic_to_shared(barrier);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at), "r"(bytes) : "memory");
}

__device__ __forceinline__ void free_tile(unsigned long long *barrier)
{
    const unsigned int at = (unsigned int)__cvta_generic_to_shared(barrier);
    if (threadIdx.x % 32 == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(at) : "memory");
}

__device__ __forceinline__ void wait_tile(unsigned long long *barrier, const int parity)
{
    const unsigned int at = (unsigned int)__cvta_generic_to_shared(barrier);
    unsigned int came;
    do {
        asm volatile("{ .reg .pred is; mbarrier.try_wait.parity.shared::cta.b64 is, [%1], %2; selp.u32 %0, 1, 0, is; }"
                     : "=r"(came) : "r"(at), "r"(parity) : "memory");
    } while (!came);
}
#endif
"""

CLUSTERS = """#ifdef __CUDACC__
__device__ __forceinline__ void meet_cluster()
{
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

template <int BLOCKS> __device__ __forceinline__ void free_tile_of(unsigned long long *barrier)
{
    const unsigned int at = (unsigned int)__cvta_generic_to_shared(barrier);
    const unsigned int block = threadIdx.x % 32;
    if (block < BLOCKS) {
        asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; "
                     "mbarrier.arrive.shared::cluster.b64 _, [there]; }" :: "r"(at), "r"(block) : "memory");
    }
}
#endif
"""
"""Of blocks that run side by side (PTX ISA, "barrier.cluster", "mapa")."""


RESULTS = """#ifdef __CUDACC__
/* The thread of each warpgroup that stores its results. */
__device__ __forceinline__ bool is_storing()
{
    unsigned int elected;
    asm volatile("{ .reg .pred is; elect.sync _|is, 0xffffffff; selp.u32 %0, 1, 0, is; }" : "=r"(elected));
    return (elected != 0) & (threadIdx.x / 32 % 4 == 0);
}

__device__ __forceinline__ void meet_group()
{
    asm volatile("bar.sync %0, 128;" :: "r"(threadIdx.x / 128 + 1) : "memory");
}

__device__ __forceinline__ void free_results()
{
    if (is_storing()) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    meet_group();
}

__device__ __forceinline__ void show_results()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    meet_group();
}

__device__ __forceinline__ void end_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ __forceinline__ void wait_stores() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
#endif
"""
"""Of results that leave in boxes (PTX ISA, "cp.async.bulk.wait_group", "fence.proxy", "bar")."""


def store_box(dimensions: int) -> tuple[str, str]:
    """(name, definition) of ``name(map, from, ...)``: the box in shared memory goes to so many coordinates."""
    name, every = f"store_box_{dimensions}", range(dimensions)
    parameters = ", ".join(f"const int c{i}" for i in every)
    slots, bound = ", ".join(f"%{i + 2}" for i in every), ", ".join(f'"r"(c{i})' for i in every)
    return name, f"""#ifdef __CUDACC__
__device__ __forceinline__ void {name}(const TensorMap &map, const void *from, {parameters})
{{
    const unsigned int at = (unsigned int)__cvta_generic_to_shared(from);
    asm volatile("cp.async.bulk.tensor.{dimensions}d.global.shared::cta.bulk_group [%0, {{{slots}}}], [%1];"
                 :: "l"(&map), "r"(at), {bound} : "memory");
}}
#endif
"""


def copy_box(dimensions: int, shared: bool) -> tuple[str, str]:
    """(name, definition) of ``name(to, map, barrier, ...)``: the box at so many coordinates goes to shared memory, and
    the barrier counts its bytes; ``shared``: of as many blocks of the cluster as its template says."""
    name, every = f"copy_{'shared_' if shared else ''}box_{dimensions}", range(dimensions)
    parameters = ", ".join(f"const int c{i}" for i in every)
    slots, bound = ", ".join(f"%{i + 3}" for i in every), ", ".join(f'"r"(c{i})' for i in every)
    to = f"cp.async.bulk.tensor.{dimensions}d.shared::cluster.global.mbarrier::complete_tx::bytes"
    mask, head = "", ""
    if shared:
        to, mask, head = f"{to}.multicast::cluster", f", %{dimensions + 3}", "template <int BLOCKS> "
        bound += ', "h"((unsigned short)((1 << BLOCKS) - 1))'
    return name, f"""#ifdef __CUDACC__
{head}__device__ __forceinline__ void {name}(
    void *to, const TensorMap &map, unsigned long long *barrier, {parameters})
{{
    const unsigned int at = (unsigned int)__cvta_generic_to_shared(to);
    const unsigned int counted = (unsigned int)__cvta_generic_to_shared(barrier);
    asm volatile("{to} [%0], [%1, {{{slots}}}], [%2]{mask};"
                 :: "r"(at), "l"(&map), "r"(counted), {bound} : "memory");
}}
#endif
"""


class CudaBoxes(CudaVectors):
    """CUDA's words for what has to do with a copy engine."""

    def boxes(self, statement: BoxStatement) -> list[str]:
        self.types.setdefault("boxes", BARRIERS)
        match statement:
            case Leave():
                return ["return;"]
            case StartBarriers(pointer, count, arrivals):
                return [f"start_barriers({pointer.name}, {count}, {arrivals});"]
            case MeetCluster():
                self.types.setdefault("clusters", CLUSTERS)
                return ["meet_cluster();"]
            case FreeTile(pointer, number, _, blocks):
                of = f"_of<{blocks}>" if blocks > 1 else ""
                return [f"free_tile{of}({self.address(pointer, number, 1, False)});"]
            case WaitTile(pointer, number, parity):
                return [f"wait_tile({self.address(pointer, number, 1, False)}, {self.index(parity)});"]
            case FillTile(pointer, number, bytes_, every, width):
                barrier = self.address(pointer, number, 1, False)
                lines = [f"expect_bytes({barrier}, {bytes_});", *(self._box(one, barrier) for one in every)]
                return [f"if (is_issuer<{width}>()) {{", *(INDENT + line for line in lines), "}"]
            case FreeResults() | ShowResults() | StoreBoxes() | WaitStores():
                self.types.setdefault("results", RESULTS)
                return self._results(statement)

    def _results(self, statement: FreeResults | ShowResults | StoreBoxes | WaitStores) -> list[str]:
        match statement:
            case FreeResults():
                return ["free_results();"]
            case ShowResults():
                return ["show_results();"]
            case WaitStores():
                return ["wait_stores();"]
            case StoreBoxes(every):
                lines = [*map(self._stored_box, every), "end_stores();"]
                return ["if (is_storing()) {", *(INDENT + line for line in lines), "}"]

    def _stored_box(self, box: Box) -> str:
        name, text = store_box(len(box.coordinates))
        self.types.setdefault(name, text)
        at = ", ".join(map(self.index, box.coordinates))
        return f"{name}({box.map}, {self.address(box.pointer, box.offset, 1, False)}, {at});"

    def _box(self, box: Box, barrier: str) -> str:
        name, text = copy_box(len(box.coordinates), box.blocks > 1)
        self.types.setdefault(name, text)
        at = ", ".join(map(self.index, box.coordinates))
        of = f"<{box.blocks}>" if box.blocks > 1 else ""
        return f"{name}{of}({self.address(box.pointer, box.offset, 1, False)}, {box.map}, {barrier}, {at});"
