"""The invariants that every rProgram meets."""

from rollergen.program.check.program import check, check_each

__all__ = ["check", "check_each"]
