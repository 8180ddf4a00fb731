"""An array of no known library: it has DLPack and nothing else."""

from __future__ import annotations

import numpy as np


class Exporter:
    """A NumPy array's memory behind the two methods of DLPack; ``device`` is what it claims."""

    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **settings):
        return self.array.__dlpack__(**settings)

    def __dlpack_device__(self):
        return self.device


class Interface:
    """A NumPy array's memory behind ``__array_interface__``."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__
