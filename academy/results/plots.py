"""Plots of results as SVG that follows the page's colours, light or dark, and reads aloud.

Colours are CSS variables (`--bench-0` … in the site's style sheet), so one SVG serves both schemes. Text stays text. A
plot is drawn twice, for a wide window and for a phone; the style sheet shows one of them. Every point says what it
stands for; `bench.js` shows it beside all others of its row, and shows a series alone when its entry of the legend is
pressed. A table with the numbers follows each plot.

Written by hand: matplotlib took 36 s of each build of the site for what takes 4 s here, in four times as many bytes.
"""

from __future__ import annotations

import html
import itertools
import json
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

#: Outlines of marks, 10 across.
MARKS = [
    "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1-5 0Z",
    "M-5-5H5V5H-5Z",
    "M0-7 7 0 0 7-7 0Z",
    "M0-5 5 5H-5Z",
    "M0 5-5-5H5Z",
    "M-1.7-5H1.7V-1.7H5V1.7H1.7V5H-1.7V1.7H-5V-1.7H-1.7Z",
    "M-2.5-5 0-2.5 2.5-5 5-2.5 2.5 0 5 2.5 2.5 5 0 2.5-2.5 5-5 2.5-2.5 0-5-2.5Z",
    "M0-5 1.12-1.55 4.76-1.55 1.82.59 2.94 4.05 0 1.91-2.94 4.05-1.82.59-4.76-1.55-1.12-1.55Z",
]
#: Points in an inch; a plot's unit.
INCH = 72
#: Inches of a character in a label, of a line of it, and of a mark.
CHARACTER, LINE, MARK = 0.085, 0.175, 0.1
#: Bars that differ by more than this have a logarithmic axis: the short ones would not be seen.
MOST_LINEAR = 50


@dataclass(frozen=True)
class Size:
    """Width in inches, characters in a line of a row's label."""

    name: str
    width: float
    label: int


SIZES = Size("wide", 7.2, 60), Size("narrow", 3.6, 18)


@dataclass(frozen=True)
class Series:
    """A provider's values: one per x, None where it has none. `notes`: what the readout adds to each of them."""

    name: str
    values: list[float | None]
    notes: Sequence[str] = ()

    def known(self) -> list[tuple[int, float]]:
        """(row, value) of what was measured."""
        return [(row, value) for row, value in enumerate(self.values) if value is not None]

    def note(self, row: int) -> str:
        """More about a value, behind a comma."""
        return f", {self.notes[row]}" if self.notes and self.notes[row] else ""


#: Heading of the readout and unit of the values, of each row.
Rows = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Limit:
    """A named line across the rows of `dots`: copy speed, at 100 %."""

    value: float
    name: str


@dataclass(frozen=True)
class Plot:
    """A drawn plot. `svg`: for a wide window and for a phone. `legend`: (series, its mark as SVG), none for one series.
    `rows`: what the readout says of a row: a heading, then for each series its value, "" where it has none."""

    svg: str
    legend: list[tuple[str, str]]
    rows: list[list[str]]

    def html(self, title: str) -> str:
        """What stands in a plot's frame. The legend's entries show their series alone, where the script is loaded."""
        entries = "".join(
            f'<button type="button" aria-pressed="false" data-series="{place}">{mark}{html.escape(name)}</button>'
            for place, (name, mark) in enumerate(self.legend)
            if name
        )
        legend = f'<div class="bench-legend" role="group" aria-label="Show only">{entries}</div>' if entries else ""
        data = html.escape(json.dumps(self.rows, ensure_ascii=False)) if self.rows else ""
        kind = f'class="bench-plot" role="group" aria-label="{html.escape(title)}"'
        told = f' tabindex="0" data-rows="{data}"' if data else ""
        return f"{legend}<div {kind}{told}>{self.svg}</div>"


def _plot(drawn: Callable[[Size], _Drawing], name: str, title: str, series: list[Series], rows: Rows = ()) -> Plot:
    """Both sizes."""
    svgs = [drawn(size).svg(name, title) for size in SIZES]
    told = [
        [heading, *(f"{s.values[row]:.3g} {unit}{s.note(row)}" if s.values[row] is not None else "" for s in series)]
        for row, (heading, unit) in enumerate(rows)
    ]
    names = [line.name if line.known() else "" for line in series]
    bar = '<i style="background:var(--bench-{})"></i>'
    marks = [_mark(index) if rows else bar.format(index) for index in range(len(names))]
    return Plot("".join(svgs), list(zip(names, marks)) if sum(map(bool, names)) > 1 else [], told)


def dots(
    name: str,
    title: str,
    labels: list[str],
    series: list[Series],
    unit: str,
    limit: Limit | None = None,
    words: Sequence[str] = (),
) -> Plot:
    """One row per label, one mark per series: for shapes that have no common scale. `words`: the labels in words."""
    rows = [(text, unit) for text in words or labels]
    return _plot(lambda size: _dots(size, labels, series, rows, limit), name, title, series, rows)


def _dots(size: Size, labels: list[str], series: list[Series], rows: Rows, limit: Limit | None) -> _Drawing:
    labels = _wrapped(labels, size)
    most = max([v for s in series for v in s.values if v is not None] + [limit.value if limit else 0]) * 1.04 or 1
    room = size.width - _left(labels) - RIGHT
    lanes = [_lanes([_inches(s.values[row], room / most) for s in series]) for row in range(len(labels))]
    heights = [
        max(0.3, LINE * (label.count("\n") + 1), MARK * (max(of_row) - min(of_row) + 1) + 0.06)
        for label, of_row in zip(labels, lanes)
    ]
    tops = [0.0, *itertools.accumulate(heights)]
    middles = [top + height / 2 for top, height in zip(tops, heights)]
    drawing = _Drawing(size, 0.62 + tops[-1] + (0.2 if limit else 0), labels, above=0.3 if limit else 0.1)
    x = drawing.x(Axis(0, most), rows[0][1] if rows else "")
    drawing.rows(labels, middles, lined=True)
    if limit:
        at, side = x(limit.value), "end" if limit.value > most / 2 else "start"
        drawing.add(
            f'<path stroke="currentColor" stroke-dasharray="4 3" d="M{at:.1f} {drawing.top:.1f}V{drawing.bottom:.1f}"/>'
        )
        drawing.text(at, drawing.top - 3, limit.name, side, ' font-size="8.5"')
    for index, line in reversed([*enumerate(series)]):
        places = [
            (x(value), drawing.top + INCH * (middles[row] + MARK * lanes[row][index])) for row, value in line.known()
        ]
        drawing.points(index, line, places, rows)
    return drawing


def _inches(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale


def _lanes(places: list[float | None]) -> list[float]:
    """How many marks above or below the middle of its row each one stands, so that none hides another.

    places: of the marks along the row, in inches; None for one that isn't there.
    """
    found: list[float] = [0.0] * len(places)
    groups: list[list[tuple[float, int]]] = []
    last = -math.inf
    for place, index in sorted((place, index) for index, place in enumerate(places) if place is not None):
        if place - last >= MARK:
            groups.append([])
        groups[-1].append((place, index))
        last = place
    for group in groups:
        ends: list[float] = []  # of the last mark in each lane
        lanes = []
        for place, _ in group:
            lane = next((n for n, end in enumerate(ends) if place - end >= MARK), len(ends))
            ends[lane : lane + 1] = [place]
            lanes.append(lane)
        for (_, index), lane in zip(group, lanes):
            found[index] = lane - (len(ends) - 1) / 2
    return found


def lines(
    name: str, title: str, xs: list[float], x_name: str, series: list[Series], unit: str, log: bool = False
) -> Plot:
    """Lines over a size. `log`: a logarithmic axis of values, which are above 0."""
    rows = [(f"{x_name} {x:g}", unit) for x in xs]
    return _plot(lambda size: _lines(size, xs, x_name, series, rows, log), name, title, series, rows)


def _lines(size: Size, xs: list[float], x_name: str, series: list[Series], rows: Rows, log: bool) -> _Drawing:
    drawing = _Drawing(size, 3.4)
    known = [(xs[row], value) for line in series for row, value in line.known()] or [(1.0, 1.0)]
    (first, last), (least, most) = ((min(some), max(some)) for some in zip(*known))
    margin = (last - first or 1) / 20
    x = drawing.x(Axis(first - margin, last + margin), x_name)
    y = drawing.y(Axis(least / 1.1, most * 1.1, True) if log else Axis(0, most * 1.05 or 1), rows[0][1] if rows else "")
    for index, line in reversed([*enumerate(series)]):
        places = [(x(xs[row]), y(value)) for row, value in line.known()]
        drawing.points(index, line, places, rows, diameter=4, joined=True)
    return drawing


def bars(name: str, title: str, labels: list[str], series: list[Series], unit: str) -> Plot:
    """Horizontal bars, a group per label, with their numbers: for ladders."""
    return _plot(lambda size: _bars(size, labels, series, unit), name, title, series)


def _bars(size: Size, labels: list[str], series: list[Series], unit: str) -> _Drawing:
    labels, count = _wrapped(labels, size), max(len(series), 1)
    heights = [max(0.3 * count, LINE * (label.count("\n") + 1) + 0.1) for label in labels]
    tops = [0.0, *itertools.accumulate(heights)]
    middles = [top + height / 2 for top, height in zip(tops, heights)]
    drawing = _Drawing(size, 0.62 + tops[-1], labels)
    values = [value for line in series for value in line.values if value] or [1.0]
    log = max(values) > MOST_LINEAR * min(values)
    axis = Axis(*_ends(values, size.width - _left(labels) - RIGHT, log), log)
    x = drawing.x(axis, f"{unit}, logarithmic" if log else unit)
    drawing.rows(labels, middles)
    for index, line in enumerate(series):
        for row, value in line.known():
            if value:
                y, end = drawing.top + INCH * (middles[row] + 0.27 * (index - (count - 1) / 2)), x(value)
                box = f'x="{drawing.left:.1f}" y="{y - 8.6:.1f}" width="{end - drawing.left:.1f}" height="17.3"'
                drawing.add(f'<rect data-series="{index}" fill="var(--bench-{index})" {box}/>')
                drawing.text(end + 4, y + 3.5, _barred(value), "start", f' data-series="{index}"')
    return drawing


def _barred(value: float | None) -> str:
    return f"{value:.3g}" if value else ""


def _ends(values: list[float], room: float, log: bool) -> tuple[float, float]:
    """Ends of an axis this many inches long, so that each bar has room for its number behind it."""
    first = min(values) / 3 if log else 0.0
    scale = math.log if log else float
    start = scale(first) if log else 0.0
    lengths = [(scale(v) - start) * room / (room - CHARACTER * len(_barred(v)) - 0.15) for v in values]
    return first, (math.exp(start + max(lengths)) if log else max(lengths))


def _wrapped(labels: list[str], size: Size) -> list[str]:
    """Labels in lines that are short enough; a long name breaks after an underscore."""
    return [
        textwrap.fill(re.sub(r"_(?=\w)", "_ ", label) if len(label) > size.label else label, size.label).replace(
            "_ ", "_"
        )
        for label in labels
    ]


#: Inches to the right of the axes: half a tick's label.
RIGHT = 0.24


def _left(labels: Sequence[str]) -> float:
    """Inches for the labels of rows, for numbers if there are none."""
    return 0.15 + CHARACTER * max(len(line) for label in labels for line in label.split("\n")) if labels else 0.7


def _mark(index: int) -> str:
    """A series' mark, for the legend."""
    shape = f'<path fill="var(--bench-{index % len(MARKS)})" d="{MARKS[index % len(MARKS)]}"/>'
    return f'<svg width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true">{shape}</svg>'


@dataclass(frozen=True)
class Axis:
    """From which value to which an axis leads."""

    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """How far along the axis a value stands: 0 at its start, 1 at its end."""
        low, high, at = map(math.log, (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        return (at - low) / (high - low)

    def ticks(self, most: float) -> list[float]:
        """The closest round values that are at most so many."""
        within = ([value for value in values if self.low <= value <= self.high] for values in self._round_values())
        return next(values for values in within if len(values) <= most)

    def _round_values(self) -> Iterator[list[float]]:
        """Some about as far as the axis leads, the closest first."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps, every in itertools.chain([((1, 2, 5), 1), ((1, 3), 1)], (((1,), n) for n in itertools.count(1))):
                yield [step * 10.0**power for power in powers if power % every == 0 for step in steps]
        for power in itertools.count(math.floor(math.log10(self.high - self.low)) - 2):
            for step in (first * 10.0**power for first in (1, 2, 2.5, 5)):
                yield [step * n for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


class _Drawing:
    """A plot in the making, in points. It leaves room for these labels of rows, whose width comes from their number of
    characters, and so many inches above the axes."""

    def __init__(self, size: Size, height: float, labels: Sequence[str] = (), above: float = 0.1):
        self.size, self.width, self.height = size, INCH * size.width, INCH * height
        self.left, self.right = INCH * _left(labels), self.width - INCH * RIGHT
        self.top, self.bottom = INCH * above, self.height - INCH * 0.52
        self.lines = f"M{self.left:.1f} {self.top:.1f}V{self.bottom:.1f}H{self.right:.1f}"
        self.parts: list[str] = []
        self.marks: list[str] = []

    def add(self, part: str) -> None:
        self.parts.append(part)

    def text(self, x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> None:
        self.add(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>')

    def x(self, axis: Axis, name: str) -> Callable[[float], float]:
        """Draw the axis; where a value stands on it."""
        room = self.right - self.left
        for tick in axis.ticks(room / 36):
            at = self.left + room * axis.share(tick)
            self.lines += f"M{at:.1f} {self.top:.1f}V{self.bottom:.1f}"
            self.text(at, self.bottom + 12, f"{tick:g}")
        self.text((self.left + self.right) / 2, self.bottom + 29, name)
        return lambda value: self.left + room * axis.share(value)

    def y(self, axis: Axis, name: str) -> Callable[[float], float]:
        """Draw the axis; where a value stands on it."""
        room = self.bottom - self.top
        for tick in axis.ticks(room / 24):
            at = self.bottom - room * axis.share(tick)
            self.lines += f"M{self.left:.1f} {at:.1f}H{self.right:.1f}"
            self.text(self.left - 4, at + 3.5, f"{tick:g}", "end")
        x, y = 10, (self.top + self.bottom) / 2
        self.text(x, y, name, more=f' transform="rotate(-90 {x} {y:.1f})"')
        return lambda value: self.bottom - room * axis.share(value)

    def rows(self, labels: Sequence[str], middles: Sequence[float], lined: bool = False) -> None:
        """Labels of rows, in the middle of each; inches below the top of the axes."""
        for label, middle in zip(labels, middles):
            written, at = label.split("\n"), self.top + INCH * middle
            self.lines += f"M{self.left:.1f} {at:.1f}H{self.right:.1f}" * lined
            for number, words in enumerate(written):
                below = INCH * LINE * (number - (len(written) - 1) / 2)
                self.text(self.left - 4, at + below + 3.5, words, "end")

    def points(self, index: int, line: Series, places, rows: Rows, diameter: float = 6.5, joined: bool = False) -> None:
        """A mark at each place of a series' known values, which says what it stands for."""
        colour, made = f"var(--bench-{index % len(MARKS)})", []
        if joined:
            path = " ".join(f"{x:.1f} {y:.1f}" for x, y in places)
            made.append(f'<path fill="none" stroke="{colour}" stroke-width="1.6" d="M{path}"/>')
        for (row, value), (x, y) in zip(line.known(), places):
            said = html.escape(f"{line.name}, {rows[row][0]}: {value:.3g} {rows[row][1]}")
            use = f'<use class="bench-point" data-row="{row}" href="#MARK-{index}" x="{x:.1f}" y="{y:.1f}">'
            made.append(f"{use}<title>{said}</title></use>")
        if places:
            self.add(f'<g data-series="{index}" fill="{colour}">\n' + "\n".join(made) + "\n</g>")
            self.marks.append(
                f'<path id="MARK-{index}" transform="scale({diameter / 10:g})" d="{MARKS[index % len(MARKS)]}"/>'
            )

    def svg(self, name: str, title: str) -> str:
        """The finished plot as an `<svg>` element, ids unique to `name` and size."""
        hidden = ' style="display:none"' if self.size.name == "narrow" else ""  # until a style sheet knows the window
        told = f'role="img" aria-label="{html.escape(title)}" font-size="10" fill="currentColor"'
        view = f'viewBox="0 0 {self.width:g} {self.height:.1f}"'
        grid = f'<path fill="none" stroke="var(--bench-grid)" stroke-width=".8" d="{self.lines}"/>'
        inner = "\n".join([f"<defs>{''.join(self.marks)}</defs>", grid, *self.parts])
        inner = inner.replace("MARK-", re.sub(r"\W+", "-", f"{name}-{self.size.name}-"))
        return f'<svg class="bench bench-{self.size.name}"{hidden} {view} {told}>\n{inner}\n</svg>'
