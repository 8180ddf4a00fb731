"""Reader 3: rProgram -> kernel IR.  Decides nothing: how to write what the program says."""

from rollergen.lower.stage import OpenStages, lower, lower_all

__all__ = ["OpenStages", "lower", "lower_all"]
