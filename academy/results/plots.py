"""Plots of results as SVG that follows the page's colours, light or dark, and reads aloud.

matplotlib draws with placeholder colours; they are exchanged for CSS variables (`--bench-0` … in the site's style
sheet), so one SVG serves both schemes. Text stays text. A plot is drawn twice, for a wide window and for a phone; the
style sheet shows one of them. Every point says what it stands for. A table with the numbers follows each plot.
"""

from __future__ import annotations

import html
import io
import itertools
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Placeholders, and what they become.
INK, GRID = "#010101", "#020202"
SERIES = [f"#0303{i:02x}" for i in range(8)]
MARKERS = "osD^vPX*"
#: Inches of a character in a label.
CHARACTER = 0.085
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
    """A provider's values: one per x, None where it has none."""

    name: str
    values: list[float | None]


def dots(name: str, title: str, labels: list[str], series: list[Series], unit: str, limit: float | None = None) -> str:
    """One row per label, one mark per series: for shapes that have no common scale. The limit is a named line."""
    said = [
        [f"{line.name}, {label}: {value:.3g} {unit}" for label, value in zip(labels, line.values) if value is not None]
        for line in series
    ]
    return "".join(_svg(_dots(size, labels, series, unit, limit), name, title, size, said) for size in SIZES)


def _dots(size: Size, labels: list[str], series: list[Series], unit: str, limit: float | None) -> tuple[Any, Any]:
    labels = _wrapped(labels, size)
    figure, axes = _axes(1.1 + 0.34 * len(labels), size, labels)
    for index, line in enumerate(series):
        known = [(value, row) for row, value in enumerate(line.values) if value is not None]
        if known:
            axes.plot(*zip(*known), **_style(index), linestyle="", label=line.name, zorder=10 - index)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(unit)
    axes.set_xlim(0, max([v for s in series for v in s.values if v is not None] + [limit or 0]) * 1.04)
    axes.grid(True, axis="both", color=GRID, linewidth=0.8)
    if limit is not None:
        axes.axvline(limit, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        axes.text(limit, -0.55, f"limit, {limit:.0f} %", ha="right", va="bottom", color=INK, fontsize=8.5)
    return figure, axes


def lines(name: str, title: str, xs: list[float], x_name: str, series: list[Series], unit: str) -> str:
    """Lines over a size."""
    said = [
        [f"{line.name}, {x_name} {x:g}: {value:.3g} {unit}" for x, value in zip(xs, line.values) if value is not None]
        for line in series
    ]
    return "".join(_svg(_lines(size, xs, x_name, series, unit), name, title, size, said) for size in SIZES)


def _lines(size: Size, xs: list[float], x_name: str, series: list[Series], unit: str) -> tuple[Any, Any]:
    figure, axes = _axes(3.4, size)
    for index, line in enumerate(series):
        known = [(x, value) for x, value in zip(xs, line.values) if value is not None]
        if known:
            axes.plot(*zip(*known), **_style(index, size=4), linewidth=1.6, label=line.name, zorder=10 - index)
    axes.set_xlabel(x_name)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.grid(True, color=GRID, linewidth=0.8)
    return figure, axes


def bars(name: str, title: str, labels: list[str], series: list[Series], unit: str) -> str:
    """Horizontal bars, a group per label: for ladders."""
    return "".join(_svg(_bars(size, labels, series, unit), name, title, size) for size in SIZES)


def _bars(size: Size, labels: list[str], series: list[Series], unit: str) -> tuple[Any, Any]:
    labels, height = _wrapped(labels, size), 0.8 / max(len(series), 1)
    of_label = 0.18 * max((label.count("\n") + 1 for label in labels), default=1)
    figure, axes = _axes(0.9 + max(0.3 * max(len(series), 1), of_label) * len(labels), size, labels)
    for index, line in enumerate(series):
        rows = [row + (index - (len(series) - 1) / 2) * height for row in range(len(labels))]
        found = axes.barh(
            rows, [v or 0 for v in line.values], height * 0.9, color=SERIES[index], label=line.name, zorder=2
        )
        axes.bar_label(found, [f"{v:.3g}" if v else "" for v in line.values], padding=4, color=INK)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(unit)
    known = [value for line in series for value in line.values if value]
    if known and max(known) > MOST_LINEAR * min(known):
        axes.set_xscale("log")
        axes.set_xlim(min(known) / 3, max(known) * (4 if size.width > 5 else 20))
        axes.set_xlabel(f"{unit}, logarithmic")
    else:
        axes.margins(x=0.12 if size.width > 5 else 0.25)
    axes.grid(True, axis="x", color=GRID, linewidth=0.8)
    return figure, axes


def _wrapped(labels: list[str], size: Size) -> list[str]:
    """Labels in lines that are short enough; a long name breaks after an underscore."""
    return [
        textwrap.fill(re.sub(r"_(?=\w)", "_ ", label) if len(label) > size.label else label, size.label).replace(
            "_ ", "_"
        )
        for label in labels
    ]


def _legend_columns(names: Sequence[str], size: Size) -> int:
    """The most columns whose names stand inside the figure; matplotlib fills one column after the other."""
    around = 0.65 if size.name == "wide" else 0.45  # mark and gaps
    for columns in range(min(5, len(names)), 1, -1):
        rows, longer = divmod(len(names), columns)
        starts = [n * rows + min(n, longer) for n in range(columns + 1)]
        widths = [around + CHARACTER * max(map(len, names[a:b])) for a, b in itertools.pairwise(starts)]
        if sum(widths) <= size.width:
            return columns
    return 1


def _style(index: int, size: float = 6.5) -> dict:
    colour = SERIES[index % len(SERIES)]
    return dict(
        color=colour, gid=f"points-{index}", marker=MARKERS[index % len(MARKERS)], markersize=size, markeredgewidth=0
    )


def _axes(height: float, size: Size, labels: Sequence[str] = ()):
    """A figure of this height with axes that leave room for these labels of rows (for numbers if there are none).

    The margins come from the number of characters: matplotlib's own layout draws everything twice to measure it, and in
    another font than the page's.
    """
    import matplotlib

    matplotlib.use("svg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(size.width, height))
    left = 0.15 + CHARACTER * max(len(line) for label in labels for line in label.split("\n")) if labels else 0.7
    figure.subplots_adjust(
        left=left / size.width, right=1 - 0.15 / size.width, bottom=0.5 / height, top=1 - 0.1 / height
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


def _svg(drawn, name: str, title: str, size: Size, said: Sequence[Sequence[str]] = ()) -> str:
    """The finished figure as an `<svg>` element: ids unique to `name` and size, colours and font from the page.

    said: what each point of each series stands for.
    """
    import matplotlib

    figure, axes = drawn

    _, names = axes.get_legend_handles_labels()
    if names:
        columns = _legend_columns(names, size)
        rows = -(-len(names) // columns)
        named = 0.2 if axes.texts else 0  # the name of the limit stands above the axes
        figure.subplots_adjust(top=1 - (0.12 + named + 0.24 * rows) / figure.get_figheight())
        legend = dict(columnspacing=1, handletextpad=0.2) if size.name == "narrow" else {}
        figure.legend(loc="upper left", ncols=columns, frameon=False, labelcolor=INK, borderaxespad=0, **legend)
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
    prefix = re.sub(r"\W+", "-", f"{name}-{size.name}")
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)
    text = text.replace(INK, "currentColor").replace(GRID, "var(--bench-grid)")
    for index, colour in enumerate(SERIES):
        text = text.replace(colour, f"var(--bench-{index})")
    return re.sub(r"\n\s*", "\n", text).replace("\n\n", "\n")


def _told(text: str, group: str, sentences: Sequence[str]) -> str:
    """The points of a series with what they stand for, as their titles."""
    before, found, points = text.partition(group)
    for sentence in sentences:
        point = re.search(r"<use ([^>]*)/>", points)
        if not point:
            break
        title = f'<use class="bench-point" {point[1]}><title>{html.escape(sentence)}</title></use>'
        before, found, points = before + found + points[: point.start()] + title, "", points[point.end() :]
    return before + found + points
