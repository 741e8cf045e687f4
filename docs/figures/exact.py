"""The same function, or nearly? What a tolerance sees of a planted mistake, and what residues see."""

from functools import cache

import numpy as np
from draw import Axes, Panel, Picture, bars, picture

from academy.book import layout
from academy.results import changes

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


def _seen(kind: str, title: str, kinds: str, only_floats: str) -> Picture:
    """A table of `academy mutate --seen --write`."""
    files, n = changes.read(kind, layout.ROOT), changes.counted(kind, layout.ROOT)
    both, floats, exact, neither, stopped = (n[kind] for kind in next(iter(files.values()))["counts"])
    wrong = n["changed"]
    panel = Panel(240, title)
    rows = [
        ("seen by both", both),
        ("only in floats, within twice PyTorch's error", floats),
        ("only without rounding", exact),
    ]
    bars(panel, 40, [(name, count, str(count)) for name, count in rows], ("g", "b", "a"))
    panel.text(0, 182, f"seen in floats: {both + floats} of {wrong}", "small")
    panel.text(0, 202, f"seen without rounding: {both + exact} of {wrong}", "small")
    panel.text(0, 222, f"seen by neither: {neither} more", "small")
    dates = sorted({each["date"] for each in files.values()})
    return Picture(
        f"{wrong + neither + stopped} changes of {len(files)} kernel files, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, made by "
        f"academy mutate: {kinds}. {stopped} of them end with an error. {only_floats}",
        f"Of {wrong} changes that give another result, {both} are seen by both comparisons, {floats} only in floats and {exact} "
        f"only without rounding; {neither} are seen by neither.",
        [panel],
    )


@picture
def mutants():
    less = "What only floats see is less accurate, or reads memory that it shouldn't."
    return _seen("coarse", "Coarse changes of kernels that give another result", "a sign, a mask, a factor", less)


@picture
def fine():
    kinds = "one in the seventh digit, or the last bit, of a factor, a constant or an exponent; no eps; a term left out"
    same = "What neither sees is the same function, or lies where no case looks."
    return _seen("fine", "Fine changes of kernels that give another result", kinds, same)
