"""How well the model has to rank each measured space: least Kendall's tau, most regret of its first and ten first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benches.ranking import Ranking


@dataclass(frozen=True, slots=True)
class Bar:
    """``top1``, ``top10``: best time among so many first choices, over the best of all."""

    tau: float
    top1: float
    top10: float

    def __str__(self) -> str:
        return f"at least {self.tau}; at most {self.top1}, {self.top10}"

    def met(self, found: Ranking) -> bool:
        return found.tau >= self.tau and found.top1 <= self.top1 and found.top10 <= self.top10


_SQUARE, _SKINNY = Bar(0.70, 1.15, 1.05), Bar(0.55, 1.8, 1.05)
BARS: Mapping[tuple[str, str], Bar] = {
    ("titan_rtx", "4096x4096x4096"): Bar(0.89, 1.15, 1.02),
    ("rtx_3060_laptop", "4096x4096x4096"): Bar(0.84, 1.20, 1.02),
    ("a100-pcie-40gb", "15x15-over-4096x4096"): Bar(0.72, 1.20, 1.05),
    ("mi50-hip", "15x15-over-4096x4096"): Bar(0.75, 1.50, 1.05),
    ("cpu_avx512_2mb", "1024x1024x1024"): _SQUARE,
    ("cpu_avx512_2mb", "997x997x997"): _SQUARE,
    ("cpu_avx512_2mb", "512x512x2048"): _SQUARE,
    ("cpu_avx512_2mb", "128x4096x4096"): _SKINNY,
    ("cpu_avx512_2mb", "8x4096x4096"): _SKINNY,
    ("cpu_avx512_2mb", "1x4096x4096"): Bar(0.50, 1.8, 1.05),
}
"""By device and shape; shapes that were held back have none."""
