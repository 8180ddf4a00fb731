"""Reader 3: rProgram -> kernel IR.  Decides nothing: how to write what the program says."""

from rollergen.lower.stage import OpenAxes, lower, lower_all

__all__ = ["OpenAxes", "lower", "lower_all"]
