"""Plots of results as SVG that follows the page's colours, light or dark, and reads aloud.

matplotlib draws with placeholder colours; they are exchanged for CSS variables (`--bench-0` … in the site's style
sheet), so one SVG serves both schemes. Text stays text. A plot is drawn twice, for a wide window and for a phone; the
style sheet shows one of them. Every point says what it stands for; `bench.js` shows it beside all others of its row,
and shows a series alone when its entry of the legend is pressed. A table with the numbers follows each plot.
"""

from __future__ import annotations

import html
import io
import itertools
import json
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

#: Placeholders, and what they become.
INK, GRID = "#010101", "#020202"
SERIES = [f"#0303{i:02x}" for i in range(8)]
MARKERS = "osD^vPX*"
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


def _plot(drawn: Callable[[Size], tuple[Any, Any]], name: str, title: str, series: list[Series], rows=()) -> Plot:
    """Both sizes; `rows`: (heading of the readout, what a value's unit is) of each row."""
    said = [
        [(row, f"{line.name}, {rows[row][0]}: {value:.3g} {rows[row][1]}") for row, value in line.known()]
        for line in (series if rows else ())
    ]
    svgs = [_svg(drawn(size), name, title, size, said) for size in SIZES]
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
    return _plot(lambda size: _dots(size, labels, series, unit, limit), name, title, series, rows)


def _dots(size: Size, labels: list[str], series: list[Series], unit: str, limit: Limit | None) -> tuple[Any, Any]:
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
    figure, axes = _axes(0.62 + tops[-1] + (0.2 if limit else 0), size, labels, named=bool(limit))
    for index, line in enumerate(series):
        if known := [(value, middles[row] + MARK * lanes[row][index]) for row, value in line.known()]:
            axes.plot(*zip(*known), **_style(index), linestyle="", zorder=10 - index, clip_on=False)
    axes.set_yticks(middles, labels)
    axes.set_ylim(tops[-1], 0)
    axes.set_xlabel(unit)
    axes.set_xlim(0, most)
    axes.grid(True, axis="both", color=GRID, linewidth=0.8)
    if limit:
        axes.axvline(limit.value, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        side = "right" if limit.value > most / 2 else "left"
        axes.text(limit.value, -0.03, limit.name, ha=side, va="bottom", color=INK, fontsize=8.5)
    return figure, axes


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
    return _plot(lambda size: _lines(size, xs, x_name, series, unit, log), name, title, series, rows)


def _lines(size: Size, xs: list[float], x_name: str, series: list[Series], unit: str, log: bool) -> tuple[Any, Any]:
    figure, axes = _axes(3.4, size)
    for index, line in enumerate(series):
        known = [(x, value) for x, value in zip(xs, line.values) if value is not None]
        if known:
            axes.plot(*zip(*known), **_style(index, size=4), linewidth=1.6, zorder=10 - index)
    axes.set_xlabel(x_name)
    axes.set_ylabel(unit)
    axes.set_yscale("log") if log else axes.set_ylim(bottom=0)
    axes.grid(True, color=GRID, linewidth=0.8)
    return figure, axes


def bars(name: str, title: str, labels: list[str], series: list[Series], unit: str) -> Plot:
    """Horizontal bars, a group per label, with their numbers: for ladders."""
    return _plot(lambda size: _bars(size, labels, series, unit), name, title, series)


def _bars(size: Size, labels: list[str], series: list[Series], unit: str) -> tuple[Any, Any]:
    labels, count = _wrapped(labels, size), max(len(series), 1)
    heights = [max(0.3 * count, LINE * (label.count("\n") + 1) + 0.1) for label in labels]
    tops = [0.0, *itertools.accumulate(heights)]
    middles = [top + height / 2 for top, height in zip(tops, heights)]
    figure, axes = _axes(0.62 + tops[-1], size, labels)
    values = [value for line in series for value in line.values if value]
    axes.set_xlabel(unit)
    if values and max(values) > MOST_LINEAR * min(values):
        axes.set_xscale("log")
        axes.set_xlim(*_ends(values, size.width - _left(labels) - RIGHT, log=True))
        axes.set_xlabel(f"{unit}, logarithmic")
    elif values:
        axes.set_xlim(*_ends(values, size.width - _left(labels) - RIGHT, log=False))
    for index, line in enumerate(series):
        rows = [middle + 0.27 * (index - (count - 1) / 2) for middle in middles]
        found = axes.barh(rows, [value or 0 for value in line.values], 0.24, color=SERIES[index], zorder=2)
        told = axes.bar_label(found, [_barred(value) for value in line.values], padding=4, color=INK)
        for drawn in (*found.patches, *told):
            drawn.set_gid(f"points-{index}")
    axes.set_yticks(middles, labels)
    axes.set_ylim(tops[-1], 0)
    axes.grid(True, axis="x", color=GRID, linewidth=0.8)
    return figure, axes


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


def _style(index: int, size: float = 6.5) -> dict:
    colour = SERIES[index % len(SERIES)]
    return dict(
        color=colour, gid=f"points-{index}", marker=MARKERS[index % len(MARKERS)], markersize=size, markeredgewidth=0
    )


#: Inches to the right of the axes: half a tick's label.
RIGHT = 0.24


def _left(labels: Sequence[str]) -> float:
    """Inches for the labels of rows, for numbers if there are none."""
    return 0.15 + CHARACTER * max(len(line) for label in labels for line in label.split("\n")) if labels else 0.7


def _mark(index: int) -> str:
    """A series' mark, for the legend."""
    from matplotlib.markers import MarkerStyle

    style = MarkerStyle(MARKERS[index % len(MARKERS)])
    path = style.get_path().transformed(style.get_transform())
    drawn = []
    for points, code in path.iter_segments(curves=True, simplify=False):
        letter = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}[int(code)]
        places = [] if letter == "Z" else [(-10 if n % 2 else 10) * place for n, place in enumerate(points)]
        drawn.append(letter + " ".join(f"{place:.4g}" for place in places))
    shape = f'<path fill="var(--bench-{index % len(SERIES)})" d="{"".join(drawn)}"/>'
    return f'<svg width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true">{shape}</svg>'


def _axes(height: float, size: Size, labels: Sequence[str] = (), named: bool = False):
    """A figure of this height with axes that leave room for these labels of rows, and for the name of a line above.

    The margins come from the number of characters: matplotlib's own layout draws everything twice to measure it, and in
    another font than the page's.
    """
    import matplotlib

    matplotlib.use("svg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size.width, height))
    figure.subplots_adjust(
        left=_left(labels) / size.width,
        right=1 - RIGHT / size.width,
        bottom=0.52 / height,
        top=1 - (0.3 if named else 0.1) / height,
    )
    axes = figure.add_subplot()
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID)
    axes.tick_params(colors=INK, length=0)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(drawn, name: str, title: str, size: Size, said: Sequence[Sequence[tuple[int, str]]]) -> str:
    """The finished figure as an `<svg>` element: ids unique to `name` and size, colours and font from the page.

    said: (row, what it stands for) of each point of each series.
    """
    import matplotlib

    figure, _ = drawn
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", text, flags=re.S)
    view = re.findall(r'viewBox="([^"]+)"', text)[0]
    hidden = ' style="display:none"' if size.name == "narrow" else ""  # until a style sheet knows the window
    kind = f'class="bench bench-{size.name}"{hidden} viewBox="{view}" role="img" aria-label="{html.escape(title)}"'
    start = f'<svg {kind} xmlns:xlink="http://www.w3.org/1999/xlink">'
    text = start + text[text.index(">") + 1 :]
    for index, sentences in enumerate(said):
        text = _told(text, f'id="points-{index}"', sentences)
    text = re.sub(r'id="points-(\d+)"', r'data-series="\1"', text)
    prefix = re.sub(r"\W+", "-", f"{name}-{size.name}")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)
    text = text.replace(INK, "currentColor").replace(GRID, "var(--bench-grid)")
    for index, colour in enumerate(SERIES):
        text = text.replace(colour, f"var(--bench-{index})")
    return re.sub(r"\n\s*", "\n", text).replace("\n\n", "\n")


def _told(text: str, group: str, sentences: Sequence[tuple[int, str]]) -> str:
    """The points of a series with what they stand for, as their titles, and their rows."""
    before, found, points = text.partition(group)
    for row, sentence in sentences:
        point = re.search(r"<use ([^>]*)/>", points)
        if not point:
            break
        title = f'<use class="bench-point" data-row="{row}" {point[1]}><title>{html.escape(sentence)}</title></use>'
        before, found, points = before + found + points[: point.start()] + title, "", points[point.end() :]
    return before + found + points
