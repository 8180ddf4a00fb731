"""What a verifier's trees may learn, and which of it is meant where nothing is said."""

from __future__ import annotations

SHRUNK = ("cautious", "foremost")
"""Half of the residual that fewer trees with larger leaves find; `rankers.Boosted` says how they differ."""

RESIDUALS = ("residual", *SHRUNK)
"""The log of time over predicted time."""

OBJECTIVES = (*RESIDUALS, "lambdarank")
"""Of verifiers that can be kept; an evaluation compares others with them (`rankers.RANKERS`)."""

DEFAULT_OBJECTIVE = "foremost"
"""Decided by the evaluation (benches/results/verifier/evaluation.json): of all `OBJECTIVES` it has the best Top-1 on
held-out structures and the best worst operator, and its Top-3 is within .002 of the best, a tenth of its interval."""
