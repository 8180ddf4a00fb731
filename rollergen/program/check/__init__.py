"""The invariants that every rProgram meets."""

from rollergen.program.check.program import check

__all__ = ["check"]
