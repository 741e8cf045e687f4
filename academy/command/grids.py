"""How many programs a launch may have."""

from __future__ import annotations

from collections.abc import Sequence

#: What a GPU takes on each axis: "Technical Specifications per Compute Capability" in NVIDIA's CUDA C++ Programming
#: Guide.
MOST = (2**31 - 1, 65_535, 65_535)


class GridTooLarge(RuntimeError):
    """A launch that a GPU refuses ("Triton Error [CUDA]: invalid argument")."""


def excess(sizes: Sequence[int]) -> str:
    """What is too much about a grid, in words; "" for one that a GPU takes."""
    for axis, (size, most) in enumerate(zip(sizes, MOST)):
        if size > most:
            instead = ". What may be many goes on axis 0, or is counted by axis 0 together with another" if axis else ""
            return f"{size:,} programs on axis {axis} of the grid, and a GPU takes at most {most:,} there{instead}"
    return ""
