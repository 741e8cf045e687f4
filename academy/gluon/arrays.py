"""Where the simulator makes an array, or takes one from torch or gives it there.

Names: `full()`, `from_torch()`, `to_torch()`; `carrier`, in whose place somebody may put one of their own, whose arrays
carry something beside their numbers (`academy.exact.gluon`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class Plain:
    def full(self, shape: Any, value: float, dtype: Any) -> np.ndarray:
        return np.full(shape, value, dtype)

    def from_torch(self, tensor: torch.Tensor) -> np.ndarray:
        return tensor.numpy()

    def to_torch(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values))


carrier: Any = Plain()


def full(shape: Any, value: float, dtype: Any) -> np.ndarray:
    """An array that is filled with one number."""
    return carrier.full(shape, value, dtype)


def from_torch(tensor: torch.Tensor) -> np.ndarray:
    """What a tensor holds, of a dtype that numpy has."""
    return carrier.from_torch(tensor)


def to_torch(values: np.ndarray) -> torch.Tensor:
    return carrier.to_torch(values)
