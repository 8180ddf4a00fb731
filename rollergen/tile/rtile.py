"""The rTile: how many elements of each axis one memory layer holds at a time (ROLLER, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RTile:
    """Tile extents by axis, in the definition's axis order; axes not named have extent 1."""

    extents: tuple[tuple[str, int], ...]

    @staticmethod
    def of(extents: Mapping[str, int]) -> RTile:
        return RTile(tuple(extents.items()))

    def __getitem__(self, axis: str) -> int:
        return dict(self.extents).get(axis, 1)

    def as_dict(self) -> dict[str, int]:
        return dict(self.extents)

    def with_extent(self, axis: str, extent: int) -> RTile:
        return RTile(tuple((a, extent if a == axis else e) for a, e in self.extents))

    def __str__(self) -> str:
        return " x ".join(f"{axis} {extent}" for axis, extent in self.extents)
