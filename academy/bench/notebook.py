"""Measured gains in the notebooks: from the committed results, or measured here, or from the results that come with the
package.

A notebook runs in three places: in the repository, whose results it shows; on somebody's GPU elsewhere, where a few
shapes are measured on the spot; and elsewhere without a GPU, where it shows the results of the repository from which
the package was installed. Interpreter times are never shown as speed.
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from academy.book import facts, layout
from academy.book.layout import BROUGHT, ROOT
from academy.results import figures, pages, plots, store

#: Outside the site nothing sets the plots' colours: these can be told apart on a light and on a dark ground.
FALLBACK = dict(zip("01234567", ("#3b82c4", "#d9773a", "#35a06b", "#a066c9", "#b5942b", "#d0558f", "#2a9aa5", "#888")))
FALLBACK["grid"] = "#8884"


class Shown:
    """What a cell shows: HTML in a notebook or on the site, one line of text elsewhere."""

    def __init__(self, parts: list[str], text: str):
        self.html, self.text = "\n".join(parts), text

    def _repr_html_(self) -> str:
        return re.sub(r"var\(--bench-(\w+)\)", lambda m: f"var(--bench-{m[1]}, {FALLBACK[m[1]]})", self.html)

    def __repr__(self) -> str:
        return self.text


def speed(name: str, which: str = "forward", variants=("",), live=(), seconds: float = 15) -> Shown:
    """A plot of one pass of an operation beside its peers, with its data.

    Args:
        name: of the operation: that of its file in `operations/`, without `.py`.
        which: "forward", "backward" or "forward+backward".
        variants: names of the `BENCH` variants to show; "" is the one without a name.
        live: the shapes that are measured where no results are committed but a GPU is there.
        seconds: no further shape is begun once these have passed.
    """
    record = figures.first(ROOT, name) or _measured_here(name, which, variants, live, seconds)
    record = record or figures.first(BROUGHT, name) or {"cases": []}
    found = figures.passes([case for case in record["cases"] if case["variant"] in variants], which)
    if not found:
        return _nothing(name)
    where = f"{record['device']}, {found[0].case['date']}. {pages.sentence(found)}"
    if "operation" in record and store.stale(record, ROOT):
        where = f"Stale: the kernel has changed since this was measured. {where}"
    file = _file(name)
    axes = facts.axes(file) if file else ()
    drawn = pages.plots_of_pass(found, f"notebook-{name}", axes)
    return Shown([*drawn, pages.table(found, axes).html(), f"<p>{html.escape(where)}</p>"], where)


def ladder(name: str, live: dict[str, Callable[[], Callable]] | None = None, title: str = "Ladder: ms") -> Shown:
    """The steps under `benchmarks/results/<device>/ladder/<name>.json`: a plot and a table of what each changed.

    Args:
        name: the file's name without `.json`.
        live: rung -> a function that makes the call to time, measured where no such file is there but a GPU is.
        title: of the plot that is measured live.
    """
    times: dict[str, float] = {}
    steps = figures.first(ROOT, f"ladder/{name}")
    if not steps and live and (gpu := _gpu()):
        for rung, make in live.items():
            call = make()
            times[rung] = gpu.milliseconds(lambda _, call=call: call()).median
    if times:
        drawn = plots.bars(f"notebook-{name}", title, list(times), [plots.Series("ms", list(times.values()))], "ms")
        text = ", ".join(f"{rung}: {figures.milliseconds(ms)}" for rung, ms in times.items())
        return Shown([pages.figure(title, drawn)], text)
    steps = steps or figures.first(BROUGHT, f"ladder/{name}")
    if not steps:
        return _nothing(name)
    where = pages.ladder_source(steps)
    return Shown([*pages.ladder_pieces(steps, f"notebook-{name}"), f"<p>{html.escape(where)}</p>"], where)


def curves(title: str, series: dict[str, list[float]], unit: str = "", log: bool = False) -> Shown:
    """A plot of what was measured step by step, in the notebook itself. `log`: a logarithmic axis of values."""
    steps = [float(step) for step in range(max(map(len, series.values())))]
    found = [plots.Series(name, list(values)) for name, values in series.items()]
    name = "notebook-" + re.sub(r"\W+", "-", title.lower())
    text = "; ".join(f"{each}: {values[0]:.2g} at first, {values[-1]:.2g} at last" for each, values in series.items())
    return Shown([pages.figure(title, plots.lines(name, title, steps, "step", found, unit, log))], text)


def _file(name: str) -> Path | None:
    """What says how an operation is measured."""
    return next((f for root in (ROOT, BROUGHT) if (f := layout.facts(root, name)).is_file()), None)


def _gpu():
    """The GPU, for a quick look; None where there is none."""
    from academy.runtime import device

    if device.INTERPRET:
        return None
    from academy.runtime import timing

    return timing.Gpu(warmup_ms=10, measure_ms=40)


def _measured_here(name: str, which: str, variants, live, seconds: float) -> dict | None:
    file = _file(name)
    gpu = _gpu() if live and file else None
    if gpu is None or file is None:
        return None
    from academy.bench import operation, run

    begin = time.monotonic()
    quick = operation.Operation.from_file(file)
    record: dict = {"device": gpu.name, "cases": []}
    for variant in quick.variants:
        for shape in live if variant.name in variants and which in variant.passes else ():
            if time.monotonic() - begin < seconds:
                alone = replace(variant, peers={})
                record["cases"].append(run.measure_case(quick, alone, shape, variant.dtypes[0], gpu))
    return record


def _nothing(name: str) -> Shown:
    text = (
        f"Nothing measured: no results of {name} are here, and no GPU to measure on. "
        "The interpreter's times say nothing about a GPU, so none are shown."
    )
    return Shown([f"<p>{text}</p>"], text)
