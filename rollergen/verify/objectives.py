"""What a verifier's trees may learn, and which of it is meant where nothing is said."""

from __future__ import annotations

SHRUNK = ("cautious", "foremost")
"""Half of the residual that fewer trees with larger leaves find; `rankers.Boosted` says how they differ."""

RESIDUALS = ("residual", *SHRUNK)
"""The log of time over predicted time."""

OBJECTIVES = (*RESIDUALS, "lambdarank")
"""Of verifiers that can be kept; an evaluation compares others with them (`rankers.RANKERS`)."""

DEFAULT_OBJECTIVE = "foremost"
"""What nested folds choose most often (`nested`; benches/results/verifier/evaluation.json).  How good it is on
structures that had no say in the choice, the line "nested" there tells."""
