"""How many threads, repetitions and lanes are worth trying."""

from __future__ import annotations

from rollergen.hal.spec import Device
from rollergen.program.assemble.nest import ceil_div
from rollergen.tile.rules import AlignmentRules, thread_multiple

POWERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def thread_counts(device: Device, limit: int = 1024) -> list[int]:
    """Numbers of threads of a block; [1] where a block is one thread."""
    if not device.kind.threads:
        return [1]
    most = min(device.limits.threads_per_block, limit)
    return [count for count in POWERS if count <= most] if device.kind.lockstep else sorted({1, most})


def least_threads(device: Device, rules: AlignmentRules) -> int:
    """The least threads of a block that the execution unit rule admits."""
    return 1 if not device.kind.threads else thread_multiple(device, rules)


def item_counts(device: Device, extent: int) -> list[int]:
    """Serial repetitions of a block: powers of two, and the count that gives each unit one block."""
    even = max(1, ceil_div(extent, device.units))
    return sorted({count for count in (*POWERS[:9], even) if count <= max(1, extent)})


def power_below(extent: int) -> int:
    return 1 << (max(1, extent).bit_length() - 1)


def private_limit(device: Device) -> int:
    """Bytes that a private array may have: it stays within the second cache, and well within a stack."""
    caches = [layer for layer in device.layers[1:-1] if not layer.managed]
    return min(caches[min(1, len(caches) - 1)].capacity_bytes // 2, 1 << 19) if caches else 0
