"""Group C: how each role's axes are cut into loops."""

from __future__ import annotations

from math import prod

from rollergen.program.rprogram import GRID, LANE, PARALLEL, SERIAL, UNROLL
from rollergen.verify.features.view import ROLES, StageView, slog


def tiling_features(view: StageView) -> dict[str, float]:
    found: dict[str, float] = {}
    for role in ROLES:
        axes = [a for a in view.definition.axes if view.role_of[a.name] == role]
        covered = prod(_covered(view, a.name) for a in axes)
        extent = prod(a.extent for a in axes)
        found |= {
            f"{role} extent": slog(extent),
            f"{role} register tile": slog(view.inside(role, UNROLL, LANE)),
            f"{role} block tile": slog(view.inside(role, UNROLL, LANE, SERIAL, *PARALLEL)),
            f"{role} trips": slog(view.inside(role, GRID)),
            f"{role} waste": (covered - extent) / extent,
        }
    found |= {f"{role} threads": slog(view.inside(role, *PARALLEL)) for role in ROLES[:3]}
    waves = float(view.predicted.waves)
    found |= {
        "block threads": slog(view.stage.threads),
        "grid": slog(view.stage.blocks),
        "waves": slog(waves),
        "tail": waves - int(waves),
        "vector": slog(view.of_kinds(LANE)),
        "unroll": slog(view.of_kinds(UNROLL)),
    }
    return found | {
        f"{name} contiguous bytes": slog(view.contiguous(chain.load) * chain.itemsize if chain is not None else 0)
        for name, chain in view.chains.items()
    }


def _covered(view: StageView, axis: str) -> int:
    return prod(loop.extent for loop in view.loops if loop.axis == axis)
