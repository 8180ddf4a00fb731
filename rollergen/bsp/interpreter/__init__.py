"""Reader 2 of bulk-synchronous programs: executed across all tiles, with every transfer counted from addresses."""

from rollergen.bsp.interpreter.execute import BulkInterpretation, StepCount, interpret_bulk

__all__ = ["BulkInterpretation", "StepCount", "interpret_bulk"]
