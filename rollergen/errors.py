"""One exception class per kind of bad input; each message names the thing, its value, what would be accepted."""

from __future__ import annotations

from rollergen.hal.errors import BuildError, RollergenError, RuntimeUnavailableError, SpecError

__all__ = [
    "ArgumentError",
    "BuildError",
    "BundleError",
    "CacheWarning",
    "CheckFailedError",
    "ConstructionError",
    "DeviceError",
    "DoesNotFitError",
    "DtypeError",
    "ExpressionError",
    "MeasurementWarning",
    "NonAffineIndexError",
    "ProgramError",
    "RollergenError",
    "RuntimeUnavailableError",
    "ShapeError",
    "SpecError",
]


class CacheWarning(UserWarning):
    """The cache cannot be used; kernels are built without it, and are as right as with it."""


class MeasurementWarning(UserWarning):
    """A time that cannot be: a figure of the device's spec, or the measurement, is wrong.  It is not believed."""


class ExpressionError(RollergenError, TypeError):
    """An expression that means nothing: swapped arguments, truth of a condition, unknown name."""


class ShapeError(RollergenError, ValueError):
    """Shapes that do not go together."""


class DtypeError(RollergenError, TypeError):
    """A dtype that is unknown or not accepted here."""


class NonAffineIndexError(RollergenError, ValueError):
    """An index that is not quasi-affine, or depends on data."""


class ArgumentError(RollergenError, ValueError):
    """A call of a kernel or of the public API with arguments it cannot take."""


class DeviceError(RollergenError, RuntimeError):
    """A device that is unknown, absent, or lacks what is asked of it."""


class DoesNotFitError(RollergenError, ValueError):
    """Data that exceed a device without a backing store; the message gives the shortfall in bytes."""


class ConstructionError(RollergenError, ValueError):
    """No program meets the user's limits; the message says which constraint rejected what, and what would do."""


class ProgramError(RollergenError, ValueError):
    """An rProgram that breaks one of its invariants."""


class BundleError(RollergenError, ValueError):
    """A directory that is no saved kernel, or one that was damaged or tampered with."""


class CheckFailedError(RollergenError, RuntimeError):
    """No candidate passed the check against the oracle."""
