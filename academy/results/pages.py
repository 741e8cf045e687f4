"""The page of an operation's results, made from the committed JSON while the site is built.

Each function returns a page's pieces in order: lines of Markdown (`str`) and finished HTML (`Html`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from markupsafe import escape

from academy.book import facts, layout
from academy.results import figures, plots, store
from academy.results import ladder as runnable
from academy.results.figures import OURS, Pass, between, label, memory, milliseconds, passes, percent, results
from academy.results.tables import Html, Table

PASS_NAMES = {"forward": "Forward", "backward": "Backward", "forward+backward": "Forward and backward"}
#: From this many square sizes on, a line over the size says more than a row for each.
ENOUGH_FOR_A_LINE = 8
#: The memory plot shows this many shapes, the largest; its table shows all.
MEMORY_ROWS = 10
#: A peer that takes at least this part of our time isn't ahead: two runs of one kernel differ as much.
LEVEL = 0.99
#: A share from here on is shown as more than 100 %.
ABOVE = 1.005
#: What is said of a provider beside its times.
NOTES = {
    "missing": "was not installed: {}",
    "failed": "failed: {}",
    "inaccurate": "is outside the error rule (twice PyTorch's error against float64): {}",
    "other": "gives other whole numbers than the reference, or the same ones in another order: {}",
    "writes_inputs": "overwrites its inputs ({}); they are restored before each timed call",
}


def operation(name: str, root: Path) -> list[str]:
    """Everything about an operation: a section per device, or how to measure it when there is none."""
    found = results(root, name)
    out: list[str] = []
    for device, record in found:
        out += ["", f"## {record['device']}", ""] if len(found) > 1 else []
        out += _device(name, device, record, "###" if len(found) > 1 else "##", root)
    if not found:
        out += ['!!! note "Not measured yet"', "", f"    No results of `{name}` are committed.", ""]
        for device, steps in results(root, f"ladder/{name}"):
            out += ladder(steps, f"{device}-{name}", "##", facts.axes(layout.facts(root, name)))
    files = list(facts.kernels(layout.facts(root, name)).values())
    out += ["", "## Measure it yourself", ""]
    if files:
        out += ["Its script shows the main numbers within seconds:", "", "```sh", f"python {files[-1]}", "```", ""]
    out += ["The whole measurement, written to `benchmarks/results/<your device>/`:", ""]
    return [*out, "```sh", f"academy bench --only {name}", "```", ""]


def _device(name: str, device: str, record: dict, level: str, root: Path) -> list[str]:
    axes = facts.axes(layout.facts(root, name))
    out = [_provenance(record), ""]
    if old := store.stale(record, root):
        out += ['!!! warning "Stale"', "", f"    {_stale(record, old)}", ""]
    for which in kinds(record):
        out += ["", f"{level} {PASS_NAMES[which]}", ""]
        out += _pass(passes(record["cases"], which), f"{device}-{name}", axes)
    out += ["", f"{level} Memory", "", "The most memory that a pass held beyond its inputs, outputs included.", ""]
    out += [memory_plot(record, f"{device}-{name}", axes), "", _memory_table(record).html(), ""]
    out += _host(record, level)
    if name in runnable.names(root):
        out += _runnable_ladder(name, level, root)
    else:
        for other, steps in results(root, f"ladder/{name}"):
            out += ladder(steps, f"{device}-{name}", level, axes) if other == device else []
    return out + _notes(record, level)


def _runnable_ladder(name: str, level: str, root: Path) -> list[str]:
    """Where the rungs are that can be run."""
    fast = facts.kernels(layout.facts(root, name)).get("fast", "")
    page = f"/kernels/{facts.module_name(fast).replace('.', '/')}.md" if fast else ""
    where = f"[the fast version's page]({page}#the-ladder)" if page else "the fast version's page"
    text = (
        f"Each step on the way here can be run: {where} shows them, and `academy bench --ladder {name}` measures them."
    )
    return ["", f"{level} The ladder", "", text, ""]


def _stale(record: dict, old: list[dict]) -> str:
    text = "The kernel has changed since these numbers were measured"
    if all(case in old for case in record["cases"]):
        return f"{text}."
    names = [_name(entry) if "passes" in entry else "host time" for entry in old]
    return f"{text}: {_listed(names)}. The others were measured with the current kernel."


def _listed(names: list[str], most: int = 6) -> str:
    *shown, last = names if len(names) <= most else [*names[:most], f"{len(names) - most} more"]
    return f"{', '.join(shown)} and {last}" if shown else last


def _name(case: dict) -> str:
    return f"{label(case['shape'])} {case['variant']}".rstrip()


def kinds(record: dict) -> list[str]:
    return [which for which in PASS_NAMES if passes(record["cases"], which, measured=False)]


def _provenance(record: dict) -> str:
    dates = between((case["date"] for case in record["cases"]), "{}")
    versions = sorted({f"{k} {v}" for case in record["cases"] for k, v in case["versions"].items()})
    copies = between((case["copy_tb_s"] for case in record["cases"]), "{:.2f}")
    return (
        f"Measured on an {record['device']} on {dates}, with {', '.join(versions)}. The card copied "
        f"{copies} TB/s in these runs; the limit of a pass is a copy of as many bytes, or its "
        "operations at the card's matrix rate, whichever takes longer."
    )


# ---------------------------------------------------------------- one pass


def _pass(found: list[Pass], name: str, axes: Sequence[str]) -> list[str]:
    if not found:
        return ["None of our kernels gave a right result here; see the notes below.", ""]
    found = sorted(found, key=lambda each: each.case["shape"])
    plotted = [line for plot in plots_of_pass(found, name, axes) for line in (plot, "")]
    above = above_the_limit(found)
    return [sentence(found), "", *plotted, *above, table(found, axes).html(), "", *called_from_python(found)]


def plots_of_pass(found: list[Pass], name: str, axes: Sequence[str] = ()) -> list[Html]:
    """Rates of squares over their size where there are many, shares of the limit of everything else.

    axes: the names of a shape's axes.
    """
    which = found[0].which
    squares = [each for each in found if len(each.case["shape"]) > 1 and len(set(each.case["shape"])) == 1]
    if len({tuple(each.case["shape"]) for each in squares}) < ENOUGH_FOR_A_LINE:
        squares = []
    drawn = [_lines(squares, f"{name}-{which}-lines")] if squares else []
    for variant, some in by_variant([each for each in found if each not in squares]).items():
        yardstick = figures.yardstick(some)
        limit = plots.Limit(100, f"{yardstick}, 100 %")
        title = f"{pass_name(which, variant)}: share of the limit"
        rows, words = _rows(some), in_words(some, axes)
        if len({each.waits_for_memory for each in some}) > 1:
            words = [f"{text}; the limit: {figures.yardstick([each])}" for text, each in zip(words, some)]
        dots = plots.dots(f"{name}-{which}-{variant}", title, rows, _shares(some), f"% of {yardstick}", limit, words)
        drawn.append(figure(title, dots, rows_are(some, axes)))
    return drawn


def _shares(found: list[Pass]) -> list[plots.Series]:
    """Each provider's share of the limit in percent, with its time and rate for the readout."""
    return [
        plots.Series(
            provider,
            [100 * each.share(provider) if provider in each.providers else None for each in found],
            [
                f"{milliseconds(each.ms(provider))}, {each.rate(provider)}" if provider in each.providers else ""
                for each in found
            ],
        )
        for provider in providers_of(found)
    ]


def above_the_limit(found: list[Pass]) -> list[str]:
    """Why some values stand above 100 %, where some do."""
    over = [each for each in found if any(each.share(provider) >= ABOVE for provider in each.providers)]
    return why_above({each.waits_for_memory for each in over})


def why_above(kinds: set[bool]) -> list[str]:
    """The same, of passes that wait for memory (True) or for the arithmetic (False) and are faster than their limit."""
    why = {
        True: "A value above 100 % beats copy speed: a plain copy of as many bytes, measured in the same run. That is "
        "less than the memory's bandwidth. Half of what a copy moves is written; a pass that writes less, or keeps "
        "more bytes in flight, can be faster.",
        False: "A value above 100 % beats the matrix rate: that of one large cuBLAS product, measured in the same run. "
        "At another size, or on a cooler card, a product can be faster.",
    }
    said = " ".join(why[kind] for kind in (True, False) if kind in kinds)
    more = "[More about the yardsticks](/guides/measuring.md#the-cards-own-limits-measured)."
    return [f"{said} {more}", ""] if kinds else []


def _lines(squares: list[Pass], name: str) -> Html:
    """Rate over the size of a square, one line per provider and variant."""
    sizes = sorted({each.case["shape"][0] for each in squares})
    series = []
    for variant, some in by_variant(sorted(squares, key=lambda each: each.case["shape"][0])).items():
        suffix = "" if variant in ("", "none") else f" + {variant}"
        for provider in providers_of(some):
            known = [each for each in some if provider in each.providers]
            rates = {each.case["shape"][0]: each.entry["operations"] / each.ms(provider) / 1e9 for each in known}
            series.append(plots.Series(provider.removesuffix(suffix) + suffix, [rates.get(size) for size in sizes]))
    title = f"{PASS_NAMES[squares[0].which]}: TFLOP/s over the size of a square"
    return figure(title, plots.lines(name, title, sizes, "size", series, "TFLOP/s"))


def by_variant(found: list[Pass]) -> dict[str, list[Pass]]:
    groups: dict[str, list[Pass]] = {}
    for each in found:
        groups.setdefault(each.case["variant"], []).append(each)
    return groups


def providers_of(found: list[Pass]) -> list[str]:
    return list(dict.fromkeys(name for each in found for name in each.providers))


def _rows(found: list[Pass]) -> list[str]:
    """A label per case; the dtype is named where there are several."""
    several = len({each.case["dtype"] for each in found}) > 1
    return [label(each.case["shape"]) + (f" {each.case['dtype']}" if several else "") for each in found]


def in_words(found: list[Pass], axes: Sequence[str]) -> list[str]:
    """The cases with the names of their axes: `rows 4096, columns 1000`, and the dtype where there are several."""
    several = len({each.case["dtype"] for each in found}) > 1
    return [shape_in_words(each.case["shape"], axes) + (f", {each.case['dtype']}" if several else "") for each in found]


def shape_in_words(shape: Sequence[int], axes: Sequence[str]) -> str:
    """`batch 4, heads 32`; the shape alone if its axes have no names."""
    return ", ".join(f"{name} {size:,}" for name, size in zip(axes, shape)) if len(axes) == len(shape) else label(shape)


def rows_are(found: list[Pass], axes: Sequence[str]) -> str:
    """What the numbers of a row's label are."""
    several = len({each.case["dtype"] for each in found}) > 1
    return f"Rows: {' x '.join(axes)}{' and dtype' if several else ''}." if axes else ""


def pass_name(which: str, variant: str) -> str:
    """`Forward, leaky_relu`; a variant that is there for this pass alone, and named like it, adds nothing."""
    return PASS_NAMES[which] + (f", {variant}" if variant not in ("", which) else "")


def figure(title: str, plot: plots.Plot, key: str = "") -> Html:
    """A plot under its title, and under what its rows are."""
    said = Html('<span class="bench-key">{}</span>').format(key) if key else ""
    return Html('<figure class="bench"><figcaption>{}{}</figcaption>{}</figure>').format(
        title, said, Html(plot.html(title))
    )


def sentence(found: list[Pass]) -> str:
    """What the numbers say, in words: range of shares, and where a peer is ahead."""
    shares = between((100 * each.share() for each in found), "{:.0f}")
    text = f"The kernel reaches {shares} % of {figures.yardstick(found)}"
    compared = [(each, each.against_best) for each in found if each.against_best]
    if not compared:
        return f"{text}."
    behind = [
        f"{_name(each.case)} ({each.best_peer} takes {100 * ratio:.0f} % of its time)"
        for each, ratio in compared
        if ratio < LEVEL
    ]
    if not behind:
        everywhere = {1: "the one case", 2: "both cases"}.get(len(compared), f"all {len(compared)} cases")
        return f"{text}. It is at least level with the best peer (within 1 %) in {everywhere}."
    return (
        f"{text}. It is at least level with the best peer (within 1 %) in {len(compared) - len(behind)} of "
        f"{len(compared)} cases; it falls behind at {_listed(behind)}. The notes in the kernel's file say more."
    )


def table(found: list[Pass], axes: Sequence[str] = ()) -> Table:
    """The numbers behind a pass's plots: time and share of the limit of every provider."""
    providers = providers_of(found)
    columns = ["variant"] if any(each.case["variant"] for each in found) else []
    rows = []
    for each in found:
        facts = [label(each.case["shape"]), *(each.case[name] for name in columns), each.case["dtype"]]
        rows.append([*facts, milliseconds(each.entry["limit_ms"]), *(_timed(each, name) for name in providers)])
    title = f"Data: {PASS_NAMES[found[0].which].lower()}, time and share of the limit"
    shape = f"shape: {' x '.join(axes)}" if axes else "shape"
    return Table(title, [shape, *columns, "dtype", "limit", *providers], rows)


def _timed(each: Pass, provider: str) -> str:
    if provider not in each.providers:
        return "–"
    text = f"{milliseconds(each.ms(provider))}, {percent(each.share(provider))}, {each.rate(provider)}"
    if provider != each.ours or (each.against_best or 1) >= LEVEL:
        return text
    return Html('<span class="bench-behind" title="{} is ahead">{}</span>').format(each.best_peer, text)


def called_from_python(found: list[Pass]) -> list[str]:
    """Wall time of plain calls, where it was measured, and where a peer is ahead only there."""
    timed = [each for each in found if "wall_ms" in each.providers.get(each.ours, {})]
    if not timed:
        return []
    providers, behind, rows = providers_of(timed), [], []
    for each in timed:
        walls = {name: entry["wall_ms"] for name, entry in each.providers.items() if "wall_ms" in entry}
        peers = [name for name in walls if name not in OURS]
        best = min(peers, key=walls.__getitem__) if peers else ""
        if best and walls[best] < LEVEL * walls[each.ours] and (each.against_best or 0) >= LEVEL:
            behind.append(f"{_name(each.case)} ({best} takes {100 * walls[best] / walls[each.ours]:.0f} % of its time)")
        shape = [_name(each.case), each.case["dtype"]]
        rows.append([*shape, *(milliseconds(walls[name]) if name in walls else "–" for name in providers)])
    text = "In plain calls from Python, one after another, a small kernel takes as long as its launch."
    if behind:
        text += f" That is why a peer is ahead at {_listed(behind)} although its kernels are not."
    title = f"Data: {PASS_NAMES[found[0].which].lower()}, wall time of a plain call"
    return [text, "", Table(title, ["shape", "dtype", *providers], rows).html(), ""]


# ---------------------------------------------------------------- memory, host time, ladder, notes


def memory_plot(record: dict, name: str, axes: Sequence[str] = ()) -> Html:
    """Memory of the last pass, per shape and provider: the first variant that has it, its largest shapes."""
    which = kinds(record)[-1]
    variant, found = next(iter(by_variant(passes(record["cases"], which, measured=False)).items()))
    largest = sorted(found, key=lambda each: each.entry["bytes"])[-MEMORY_ROWS:]
    found = sorted((each for each in found if each in largest), key=lambda each: each.case["shape"])
    series = [
        plots.Series(
            p, [each.providers[p]["peak_bytes"] / (1 << 20) if p in each.providers else None for each in found]
        )
        for p in providers_of(found)
    ]
    title = f"Peak memory, {pass_name(which, variant).lower()}"
    drawn = plots.dots(f"{name}-memory", title, _rows(found), series, "MiB", words=in_words(found, axes))
    return figure(title, drawn, rows_are(found, axes))


def _memory_table(record: dict) -> Table:
    found = passes(record["cases"], measured=False)
    providers = list(
        dict.fromkeys(p for which in kinds(record) for p in providers_of(passes(record["cases"], which, False)))
    )
    rows = [
        [_name(each.case), each.case["dtype"], PASS_NAMES[each.which].lower()]
        + [memory(each.providers[p]["peak_bytes"]) if p in each.providers else "–" for p in providers]
        for each in found
    ]
    return Table("Data: peak memory", ["shape", "dtype", "pass", *providers], rows)


def _host(record: dict, level: str) -> list[str]:
    """Host time of a small call: what Python costs before the GPU starts."""
    rows = []
    for host in record.get("host", []):
        for provider, times in host["providers"].items():
            absent = "not installed" if "missing" in times else "failed"
            forward, both = times.get("forward_us"), times.get("forward+backward_us")
            values = [f"{forward:.3g} µs" if forward else absent, f"{both:.3g} µs" if both else "–"]
            rows.append([provider, *values, label(host["shape"]), host["variant"] or "–"])
    if not rows:
        return []
    drawn = Table("Data: host time", ["provider", "forward", "forward and backward", "shape", "variant"], rows)
    text = "What a call costs the CPU before the GPU has anything to do. On small tensors that is most of its time."
    return ["", f"{level} Host time of a small call", "", text, "", drawn.html(is_open=True), ""]


def ladder(steps: dict, name: str, level: str, axes: Sequence[str]) -> list[str]:
    """The steps from the naive kernel to the final one, as they were measured while it was written."""
    return ["", f"{level} The ladder", "", ladder_source(steps), "", *ladder_pieces(steps, f"{name}-ladder", axes), ""]


def ladder_source(steps: dict) -> str:
    """Where and when the rungs were measured."""
    return (
        "The steps on the way here, each measured on the same card "
        f"({steps.get('date', 'no date')}, torch {steps.get('torch', '?')}, triton {steps.get('triton', '?')}). "
        "A ladder is a record of that day: it isn't measured again, and later changes aren't in it."
    )


def ladder_pieces(steps: dict, name: str, axes: Sequence[str] = ()) -> list[str]:
    """Its figures, and the table of what each rung changed.

    One figure if every rung has every time, otherwise one for each time, with the rungs that have it. `shape_<time>`
    beside the ladder's `shape` is that of one time alone.
    """
    rungs = steps["rungs"]
    fields = {key: key.removesuffix("_ms").replace("_", " ") for rung in rungs for key in rung if key.endswith("_ms")}
    complete = all(key in rung for rung in rungs for key in fields)
    out: list[str] = []
    for shown in [list(fields)] if complete else [[key] for key in fields]:
        some = [rung for rung in rungs if any(key in rung for key in shown)]
        series = [plots.Series(fields[key], [rung.get(key) for rung in some]) for key in shown]
        shape = steps.get(f"shape_{shown[0]}", steps.get("shape"))
        place = f" at {label(shape)} {steps.get('dtype', '')}".rstrip() if shape else ""
        title = f"Ladder: ms{place}" if complete else f"Ladder, {fields[shown[0]]}: ms{place}"
        stem = name if complete else f"{name}-{fields[shown[0]].replace(' ', '-')}"
        drawn = plots.bars(stem, title, [rung["name"] for rung in some], series, "ms")
        said = shape_in_words(shape, axes) if shape and len(axes) == len(shape) else ""  # not what the title has
        out += [figure(title, drawn, said), ""]
    rows = [
        [rung["name"], _words(rung.get("what", "")), *(_rung_time(rung.get(k), steps.get(f"copy_{k}")) for k in fields)]
        for rung in rungs
    ]
    return [*out, Table("Data: the ladder", ["rung", "what changed", *fields.values()], rows).html(is_open=True)]


def _rung_time(ms: float | None, copy_ms: float | None) -> str:
    """Time of a rung, with its share of a copy of as many bytes if that was measured beside it."""
    return (milliseconds(ms) + (f", {percent(copy_ms / ms)}" if copy_ms else "")) if ms else "–"


def _words(text: str) -> Html:
    """A cell of prose, with `code` set as such."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Html('<span class="bench-words">{}</span>').format(Html(marked))


def _notes(record: dict, level: str) -> list[str]:
    """Missing peers, results outside the error rule, overwritten inputs: said, not hidden."""
    said: dict[str, list[str]] = {}
    for case in record["cases"]:
        for provider, note in case["notes"].items():
            for kind, detail in note.items():
                detail = ", ".join(detail) if isinstance(detail, list) else detail
                detail = detail.partition(" Set TORCHDYNAMO_VERBOSE=")[0]  # advice for whoever ran it
                by_case = kind in ("inaccurate", "failed")  # what was wrong differs from case to case
                kind = "other" if kind == "inaccurate" and "integers differ" in detail else kind
                text = f"- {provider} {NOTES[kind] if by_case else NOTES[kind].format(detail)}"
                said.setdefault(text, []).append(f"{_name(case)}: {detail}")
    lines = [
        text.replace("{}", "`" + places[0].replace("`", "") + "`")
        + (f" and in {len(places) - 1} more case{'s' * (len(places) > 2)}" if "{}" in text and places[1:] else "")
        for text, places in said.items()
    ]
    return ["", f"{level} Notes", "", *lines, ""] if lines else []
