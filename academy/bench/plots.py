"""Plots of results as SVG that follows the page's colours, light or dark, and reads aloud.

matplotlib draws once with placeholder colours; they are exchanged for CSS variables (`--bench-0` … in the site's style
sheet), so one SVG serves both schemes. Text stays text. Under each plot stands a table with the same numbers.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

#: Placeholders, and what they become.
INK, GRID = "#010101", "#020202"
SERIES = [f"#0303{i:02x}" for i in range(8)]
MARKERS = "osD^vPX*"
#: Inches: of a figure, and of a character in a label.
WIDTH, CHARACTER = 7.2, 0.085
LEGEND_COLUMNS = 5


@dataclass(frozen=True)
class Series:
    """A provider's values: one per x, None where it has none."""

    name: str
    values: list[float | None]


def dots(name: str, title: str, labels: list[str], series: list[Series], unit: str, limit: float | None = None) -> str:
    """One row per label, one mark per series: for shapes that have no common scale."""
    figure, axes = _axes(0.9 + 0.34 * len(labels), labels)
    for index, line in enumerate(series):
        known = [(value, row) for row, value in enumerate(line.values) if value is not None]
        axes.plot(*zip(*known), **_style(index), linestyle="", label=line.name, zorder=10 - index) if known else None
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(unit)
    axes.set_xlim(0, max([v for s in series for v in s.values if v is not None] + [limit or 0]) * 1.04)
    axes.grid(True, axis="both", color=GRID, linewidth=0.8)
    if limit is not None:
        axes.axvline(limit, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
    return _svg(figure, axes, name, title)


def lines(name: str, title: str, xs: list[float], x_name: str, series: list[Series], unit: str) -> str:
    """Lines over a size."""
    figure, axes = _axes(3.4)
    for index, line in enumerate(series):
        known = [(x, value) for x, value in zip(xs, line.values) if value is not None]
        if known:
            axes.plot(*zip(*known), **_style(index, size=4), linewidth=1.6, label=line.name, zorder=10 - index)
    axes.set_xlabel(x_name)
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.grid(True, color=GRID, linewidth=0.8)
    return _svg(figure, axes, name, title)


def bars(name: str, title: str, labels: list[str], series: list[Series], unit: str) -> str:
    """Horizontal bars, a group per label: for ladders."""
    height = 0.8 / max(len(series), 1)
    figure, axes = _axes(0.9 + 0.3 * len(labels) * max(len(series), 1), labels)
    for index, line in enumerate(series):
        rows = [row + (index - (len(series) - 1) / 2) * height for row in range(len(labels))]
        found = axes.barh(
            rows, [v or 0 for v in line.values], height * 0.9, color=SERIES[index], label=line.name, zorder=2
        )
        axes.bar_label(found, [f" {v:.3g}" if v else "" for v in line.values], color=INK)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(unit)
    axes.margins(x=0.12)
    axes.grid(True, axis="x", color=GRID, linewidth=0.8)
    return _svg(figure, axes, name, title)


def _style(index: int, size: float = 6.5) -> dict:
    colour = SERIES[index % len(SERIES)]
    return dict(color=colour, marker=MARKERS[index % len(MARKERS)], markersize=size, markeredgewidth=0)


def _axes(height: float, labels: Sequence[str] = ()):
    """A figure of this height with axes that leave room for these labels of rows (for numbers if there are none).

    The margins come from the number of characters: matplotlib's own layout draws everything twice to measure it, and in
    another font than the page's.
    """
    import matplotlib

    matplotlib.use("svg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height))
    left = 0.15 + CHARACTER * max(map(len, labels)) if labels else 0.7
    figure.subplots_adjust(left=left / WIDTH, right=1 - 0.15 / WIDTH, bottom=0.5 / height, top=1 - 0.1 / height)
    axes = figure.add_subplot()
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID)
    axes.tick_params(colors=INK, length=0)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure, axes, name: str, title: str) -> str:
    """The finished figure as an `<svg>` element: ids unique to `name`, colours and font from the page."""
    import matplotlib

    handles, _ = axes.get_legend_handles_labels()
    if handles:
        rows = -(-len(handles) // LEGEND_COLUMNS)
        figure.subplots_adjust(top=1 - (0.12 + 0.24 * rows) / figure.get_figheight())
        columns = min(len(handles), LEGEND_COLUMNS)
        figure.legend(loc="upper left", ncols=columns, frameon=False, labelcolor=INK, borderaxespad=0)
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", text, flags=re.S)
    view = re.findall(r'viewBox="([^"]+)"', text)[0]
    start = f'<svg class="bench" viewBox="{view}" role="img" aria-label="{html.escape(title)}" xmlns:xlink="http://www.w3.org/1999/xlink">'
    text = start + text[text.index(">") + 1 :]
    prefix = re.sub(r"\W+", "-", name)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)
    text = text.replace(INK, "currentColor").replace(GRID, "var(--bench-grid)")
    for index, colour in enumerate(SERIES):
        text = text.replace(colour, f"var(--bench-{index})")
    return re.sub(r"\n\s*", "\n", text).replace("\n\n", "\n")
