"""NumPy, imported where it is first used.

A process that finds its kernel in the cache needs NumPy no sooner than it calls the kernel, and to import it takes a
third of what finding takes.  (Chains of stages and sizes, where an expression may have them, import it all the same.)
So modules that finding imports have ``from rollergen.hal.late import np``, and ask it for nothing while they are
imported themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:

    class _NumPy:
        """Stands in for the module, and holds what it was asked for."""

        def __getattr__(self, name: str) -> Any:
            import numpy

            value = getattr(numpy, name)
            setattr(self, name, value)
            return value

    np = _NumPy()

__all__ = ["np"]
