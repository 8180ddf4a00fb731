"""Reader 2 of the rProgram: executed in NumPy, with its traffic counted."""

from rollergen.program.interpreter.execute import Interpretation, interpret

__all__ = ["Interpretation", "interpret"]
