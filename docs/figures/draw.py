"""Drawing for this site's pictures: SVG in the page's own colours and font, in panels that fit a phone.

A panel is 360 units wide, about as many pixels as a phone's page has, so its text (12 units and more) can be read there.
Two panels stand side by side where there is room. Colours are classes, which `academy/site/static/figures.css` sets for
light and dark pages: `a` amber, `b` blue, `g` green, `p` purple, `off` for what is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import product

WIDTH = 360
#: Every picture of the scripts: "script/name" -> the function that draws it.
PICTURES: dict[str, Callable[[], Picture]] = {}


@dataclass(frozen=True)
class Control:
    """An input of an explorable: a slider (`low` to `high`, or over the listed `stops`), a list of `choices`, or a box to
    tick (`ticks`; its value is 0 or 1). A slider of more than 1024 values is a field to type in.

    `plays`: time passes along this slider, a step in so many milliseconds; it gets buttons to play, pause and step.
    """

    name: str
    label: str
    value: float | str
    low: float = 0
    high: float = 0
    step: float = 1
    choices: tuple[float | str, ...] = ()
    stops: tuple[float | str, ...] = ()
    ticks: bool = False
    plays: int = 0


@dataclass(frozen=True)
class Picture:
    """`alt` says in words what is drawn, with its numbers; `caption` what to see in it.

    The others are those of explorables: the module that redraws it, its inputs, what it has to know, the question that it
    answers, what to try, and what is seen at first. `moving.moving` makes one.
    """

    caption: str
    alt: str
    panels: Sequence[Panel | str]
    moves: str = ""
    controls: tuple[Control, ...] = ()
    facts: dict = field(default_factory=dict)
    question: str = ""
    hint: str = ""
    state: str = ""


def picture(draw: Callable[[], Picture]) -> Callable[[], Picture]:
    """Makes a function's picture available to `[[figure: script/function]]`."""
    PICTURES[f"{draw.__module__}/{draw.__name__}"] = draw
    return draw


def number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Panel:
    """One SVG. Everything that is drawn takes a `kind` (classes) and a `part`, by which a script finds it again."""

    def __init__(self, height: float, title: str = ""):
        self.height, self.drawn = height, []
        if title:
            self.text(0, 15, title, "bold")

    def add(self, tag: str, kind: str, part: str, content: str = "", **places: float | str) -> None:
        attributes = {name.rstrip("_").replace("_", "-"): value for name, value in places.items()}
        attributes |= {"class": kind} if kind else {}
        attributes |= {"data-part": part} if part else {}
        written = "".join(
            f' {name}="{number(value) if isinstance(value, (int, float)) else escape(value, quote=True)}"'
            for name, value in attributes.items()
        )
        self.drawn.append(f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>")

    def text(self, x: float, y: float, words: object, kind: str = "", anchor: str = "", part: str = "") -> None:
        """`anchor`: "middle" or "end" for what isn't written to the right of x."""
        self.add("text", f"{kind} {anchor}".strip(), part, escape(str(words)) or " ", x=x, y=y)

    def box(self, x, y, width, height, kind: str = "", words: object = None, part: str = "") -> None:
        """`words`: lines in its middle. None: no text at all, not even an empty one for a script to fill."""
        self.add("rect", kind, part, x=x, y=y, width=width, height=height)
        lines = str(words).split("\n") if words is not None and (words != "" or part) else []
        for row, line in enumerate(lines):
            middle = y + height / 2 + 4.5 + (row - (len(lines) - 1) / 2) * 16
            self.text(x + width / 2, middle, line, "small", "middle", part and f"{part}-text")

    def cells(
        self, x, y, rows: int, columns: int, size, kind=lambda r, c: "", words=lambda r, c: None, part=""
    ) -> None:
        """A grid; `size` is the side of a cell or (width, height). `part` names each cell `part-row-column`."""
        width, height = size if isinstance(size, tuple) else (size, size)
        for row, column in product(range(rows), range(columns)):
            place = (x + column * width, y + row * height, width, height)
            self.box(*place, kind(row, column), words(row, column), part and f"{part}-{row}-{column}")

    def line(self, points: Iterable[tuple[float, float]], kind: str = "", part: str = "") -> None:
        self.add("polyline", kind, part, points=" ".join(f"{number(x)},{number(y)}" for x, y in points))

    def arrow(self, x1: float, y1: float, x2: float, y2: float, kind: str = "") -> None:
        angle = math.atan2(y2 - y1, x2 - x1)
        head = [(x2 - 8 * math.cos(angle + turn), y2 - 8 * math.sin(angle + turn)) for turn in (-0.45, 0.45)]
        back = (x2 - 6 * math.cos(angle), y2 - 6 * math.sin(angle))
        self.line([(x1, y1), back], kind)
        self.add("polygon", kind, "", points=" ".join(f"{number(x)},{number(y)}" for x, y in [(x2, y2), *head]))

    def dot(self, x: float, y: float, kind: str = "", radius: float = 4.5, part: str = "") -> None:
        self.add("circle", kind, part, cx=x, cy=y, r=radius)

    def svg(self) -> str:
        size = f'viewBox="0 0 {WIDTH} {number(self.height)}" width="{WIDTH}" height="{number(self.height)}"'
        return f'<svg {size} aria-hidden="true">{"".join(self.drawn)}</svg>'


def short(value: float) -> str:
    """A number beside an axis: 0.01, 1000, 10k, 1M."""
    return next(
        (f"{value / unit:g}{name}" for unit, name in ((1e6, "M"), (1e3, "k")) if value >= max(unit, 1e4)), f"{value:g}"
    )


class Axes:
    """Two axes in a panel; logarithmic where asked. Calling them gives the place of a point."""

    def __init__(
        self, panel: Panel, place, xs: Sequence[float], ys: Sequence[float], names=("", ""), log=(False, False)
    ):
        """`place`: left, top, width, height. `xs`, `ys`: the ticks; the first and the last are the ends."""
        self.left, self.top, self.width, self.height = place
        self.panel, self.ends, self.log = panel, ((xs[0], xs[-1]), (ys[0], ys[-1])), log
        for x in xs:
            at = self(x, ys[0])[0]
            panel.line([(at, self.top), (at, self.top + self.height)], "rule")
            is_long = len(short(x)) > 2
            anchor = "end" if is_long and x == xs[-1] else "" if is_long and x == xs[0] else "middle"
            panel.text(at, self.top + self.height + 16, short(x), "small", anchor)
        for y in ys:
            at = self(xs[0], y)[1]
            panel.line([(self.left, at), (self.left + self.width, at)], "rule")
            panel.text(self.left - 6, at + 4, short(y), "small", "end")
        panel.text(self.left + self.width, self.top + self.height + 33, names[0], "small", "end")
        panel.text(0, self.top - 10, names[1], "small")

    def __call__(self, x: float, y: float) -> tuple[float, float]:
        share = []
        for value, (low, high), log in zip((x, y), self.ends, self.log):
            scale = math.log if log else float
            share.append((scale(value) - scale(low)) / (scale(high) - scale(low)))
        return self.left + share[0] * self.width, self.top + (1 - share[1]) * self.height

    def curve(self, function: Callable[[float], float], kind: str, steps: int = 120) -> None:
        low, high = self.ends[0]
        xs = [low + (high - low) * step / steps for step in range(steps + 1)]
        self.panel.line([self(x, function(x)) for x in xs], f"curve {kind}")


def bars(panel: Panel, top: float, rows: Sequence[tuple[str, float, str]], kinds: Sequence[str] = (), left: float = 0):
    """Horizontal bars on one scale: (name, value, its text). Names stand above their bars."""
    most = max(value for _, value, _ in rows)
    for place, (name, value, words) in enumerate(rows):
        y = top + place * 40
        panel.text(left, y, name, "small")
        panel.box(left, y + 5, max(1.5, (WIDTH - 70 - left) * value / most), 15, kinds[place] if kinds else "b")
        panel.text(left + (WIDTH - 70 - left) * value / most + 6, y + 17, words, "small")
