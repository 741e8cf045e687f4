"""Measured gains in the notebooks: from the committed results, or measured here, or from what the package brings along.

A notebook runs in three places: in the repository, whose results it shows; on somebody's GPU elsewhere, where a few
shapes are measured on the spot; and elsewhere without a GPU, where it shows the results of the repository from which
the package was installed. Interpreter times are never shown as speed.
"""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from pathlib import Path

from academy.bench import ROOT, figures, pages, plots, store

#: The repository's benchmarks and results, inside the package: a link, which becomes a folder where that is installed.
BROUGHT = Path(__file__).with_name("brought")

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
        name: of the operation: that of its file in `benchmarks/`, without `.py`.
        which: "forward", "backward" or "forward+backward".
        variants: names of the `BENCH` variants to show; "" is the one without a name.
        live: the shapes that are measured where no results are committed but a GPU is there.
        seconds: no further shape is begun once these have passed.
    """
    record = _recorded(name, ROOT) or _measured_here(name, which, variants, live, seconds) or _recorded(name, BROUGHT)
    if record is None:
        return _nothing(name)
    cases = pages.with_ours([case for case in record["cases"] if case["variant"] in variants], which)
    if not cases:
        return _nothing(name)
    sentence = pages.sentence(cases, which)
    where = f"{record['device']}, {cases[0]['date']}. {sentence}"
    if "operation" in record and store.is_stale(record, ROOT):
        where = f"Stale: the kernel has changed since this was measured. {where}"
    drawn = pages.plots_of_pass(cases, which, f"notebook-{name}")
    return Shown([*drawn, pages.table(cases, which), f"<p>{html.escape(where)}</p>"], where)


def ladder(name: str, live: dict[str, Callable[[], Callable]] | None = None, title: str = "Ladder: ms") -> Shown:
    """The steps under `benchmarks/results/<device>/ladder/<name>.json`: a plot and a table of what each changed.

    Args:
        name: the file's name without `.json`.
        live: rung -> a function that makes the call to time, measured where no such file is there but a GPU is.
        title: of the plot that is measured live.
    """
    if committed := _recorded_ladder(name, ROOT):
        return committed
    times = _timed_here(live or {})
    if not times:
        return _recorded_ladder(name, BROUGHT) or _nothing(name)
    drawn = plots.bars(f"notebook-{name}", title, list(times), [plots.Series("ms", list(times.values()))], "ms")
    return Shown([pages.figure(title, drawn)], ", ".join(f"{k}: {figures.milliseconds(v)}" for k, v in times.items()))


def _recorded(name: str, root: Path) -> dict | None:
    return next((r for d in figures.devices(root) if (r := figures.record(root, d, name))), None)


def _recorded_ladder(name: str, root: Path) -> Shown | None:
    for device in figures.devices(root):
        if ladder := figures.ladder(root, device, name):
            where = pages.ladder_source(ladder)
            drawn = [p for p in pages.ladder(name, device, "##", root) if isinstance(p, pages.Html)]
            return Shown([*drawn, f"<p>{html.escape(where)}</p>"], where)
    return None


def _timed_here(live: dict[str, Callable[[], Callable]]) -> dict[str, float]:
    from academy import device

    if device.INTERPRET:
        return {}
    from academy.bench import measure

    gpu = measure.Gpu(warmup_ms=10, measure_ms=40)
    times = {}
    for rung, make in live.items():
        call = make()
        times[rung] = gpu.milliseconds(lambda _, call=call: call()).median
    return times


def _measured_here(name: str, which: str, variants, live, seconds: float) -> dict | None:
    from academy import device

    file = next((f for root in (ROOT, BROUGHT) if (f := root / "benchmarks" / f"{name}.py").is_file()), None)
    if device.INTERPRET or not live or file is None:
        return None
    from academy.bench import measure, operation, run

    begin, gpu = time.monotonic(), measure.Gpu(warmup_ms=10, measure_ms=40)
    quick = operation.Operation.from_file(file)
    record: dict = {"device": gpu.name, "cases": []}
    for variant in quick.variants:
        for shape in live if variant.name in variants and which in variant.passes else ():
            if time.monotonic() - begin < seconds:
                alone = operation.without_peers(variant)
                record["cases"].append(run.measure_case(quick, alone, shape, variant.dtypes[0], gpu))
    return record


def _nothing(name: str) -> Shown:
    text = (
        f"Nothing measured: no results of {name} are here, and no GPU to measure on. "
        "The interpreter's times say nothing about a GPU, so none are shown."
    )
    return Shown([f"<p>{text}</p>"], text)
