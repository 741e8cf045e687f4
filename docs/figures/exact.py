"""The same function, or nearly? What a tolerance sees of a planted mistake, and what residues see."""

from functools import cache

import numpy as np
from draw import Axes, Panel, Picture, picture

ROW = (1.25, -0.5, 2.0, 0.1, 3.5, -1.75)
P, M = 23, 23**7
MISTAKES = [10.0**-power for power in range(1, 13)]


def _softmax(row, error: float, kind: type) -> np.ndarray:
    x = np.array(row, kind)
    e = np.exp((x - x.max()) * kind(1 + error))
    return (e / e.sum()).astype(np.float64)


def _residues(row, error: float) -> list[int]:
    """Of the same softmax modulo 23⁷, where exp(x) is 24^x."""
    residues, largest = [residue(x) for x in row], residue(max(row))
    e = [pow(1 + P, (x - largest) * residue(1 + error) % M, M) for x in residues]
    return [each * pow(sum(e), -1, M) % M for each in e]


def residue(value: float) -> int:
    over, under = float(value).as_integer_ratio()
    return over * pow(under, -1, M) % M


@cache
def _measured() -> tuple[list[float], int]:
    """Largest error of float32, as a multiple of what is allowed; how many mistakes give other residues."""
    exact = _softmax(ROW, 0, np.float64)
    off = lambda error: float(np.abs(_softmax(ROW, error, np.float32) - exact).max())  # noqa: E731
    allowed = max(2 * off(0), 8 * 2.0**-23 * exact.max())
    return [off(error) / allowed for error in MISTAKES], sum(_residues(ROW, e) != _residues(ROW, 0) for e in MISTAKES)


@picture
def planted():
    errors, seen = _measured()
    panel = Panel(344, "Softmax with a planted mistake")
    axes = Axes(
        panel, (44, 56, 300, 190), (1e-12, 1e-9, 1e-6, 1e-3, 1e-1), (1e-2, 1, 1e2, 1e4, 1e5), ("size of the mistake", ""), (True, True)
    )  # fmt: skip
    panel.text(0, 40, "largest error of float32, in multiples of what is allowed", "small")
    points = [(mistake, max(error, 1e-2)) for mistake, error in zip(MISTAKES, errors)]
    panel.line([axes(1e-12, 1), axes(1e-1, 1)], "curve g dashed")
    panel.line([axes(*point) for point in points], "curve b")
    for mistake, error in points:
        panel.dot(*axes(mistake, error), "b" if error > 1 else "off", 4)
    panel.text(0, 304, "other residues", "small")
    for mistake in MISTAKES:
        panel.dot(axes(mistake, 1)[0], 318, "a", 4)
    panel.text(
        0, 340, f"floats see {sum(error > 1 for error in errors)} of {len(MISTAKES)} mistakes, residues {seen}", "small"
    )
    least = min(mistake for mistake, error in zip(MISTAKES, errors) if error > 1)
    return Picture(
        "A softmax whose exponents are too large by a factor of 1 + mistake. Blue, the error of float32: below the dashed "
        "line, at what is allowed, it is rounding like any other. Amber, where the results modulo 23⁷ differ: everywhere.",
        f"Twelve mistakes from a tenth to 1e-12. In float32 the error is above the limit down to a mistake of {least:.0e}: "
        f"{sum(error > 1 for error in errors)} of {len(MISTAKES)} are seen. Modulo 23⁷ the results of {seen} differ.",
        [panel],
    )
