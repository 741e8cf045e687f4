"""Pages of results: for one operation and for all, made from the committed JSON while the site is built.

Each function returns a page's pieces in order: lines of Markdown (`str`) and finished HTML (`Html`).
"""

from __future__ import annotations

import html
import re
from pathlib import Path

from academy.bench import figures, plots, store

PASS_NAMES = {"forward": "Forward", "backward": "Backward", "forward+backward": "Forward and backward"}
#: From this many square sizes on, a line over the size says more than a row for each.
ENOUGH_FOR_A_LINE = 8
#: The memory plot shows this many shapes, the largest; its table shows all.
MEMORY_ROWS = 10
#: A peer that takes at least this part of our time isn't ahead: two runs of one kernel differ as much.
LEVEL = 0.99


class Html(str):
    """Finished HTML, to be placed as it is."""


def operation(name: str, root: Path) -> list[str]:
    """Everything about an operation: a section per device, or how to measure it when there is none."""
    found = [(device, record) for device in figures.devices(root) if (record := figures.record(root, device, name))]
    out: list[str] = []
    for device, record in found:
        level = "##"
        if len(found) > 1:
            out += ["", f"## {record['device']}", ""]
            level = "###"
        out += _device(name, device, record, level, root)
    if not found:
        out += ['!!! note "Not measured yet"', "", f"    No results of `{name}` are committed.", ""]
        for device in figures.devices(root):
            out += ladder(name, device, "##", root)
    return [*out, *_reproduce(name, root)]


def _device(name: str, device: str, record: dict, level: str, root: Path) -> list[str]:
    out = [_provenance(record), ""]
    if old := store.stale(record, root):
        out += ['!!! warning "Stale"', "", f"    {_stale(record, old)}", ""]
    for which in passes(record):
        out += ["", f"{level} {PASS_NAMES[which]}", ""]
        out += _pass(record, which, f"{device}-{name}")
    out += ["", f"{level} Memory", "", "The most memory that a pass held beyond its inputs, outputs included.", ""]
    out += [_memory_plot(record, f"{device}-{name}"), "", _memory_table(record), ""]
    out += _host(record, level)
    out += ladder(name, device, level, root)
    return out + _notes(record, level)


def _stale(record: dict, old: list[dict]) -> str:
    text = "The kernel has changed since these numbers were measured"
    if all(case in old for case in record["cases"]):
        return f"{text}."
    names = [_name(entry) if "passes" in entry else "host time" for entry in old]
    return f"{text}: {_listed(names)}. The others are those of the kernel as it is."


def _listed(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def passes(record: dict) -> list[str]:
    present = {which for case in record["cases"] for which in case["passes"]}
    return [which for which in PASS_NAMES if which in present]


def _provenance(record: dict) -> str:
    dates = sorted({case["date"] for case in record["cases"]})
    versions = sorted({f"{k} {v}" for case in record["cases"] for k, v in case["versions"].items()})
    copies = [case["copy_tb_s"] for case in record["cases"]]
    days = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return (
        f"Measured on an {record['device']} on {days}, with {', '.join(versions)}. The card copied "
        f"{between(copies, '{:.2f}')} TB/s in these runs; the limit of a pass is a copy of as many bytes, or its "
        "operations at the card's matrix rate, whichever takes longer."
    )


def between(values: list[float], form: str) -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


# ---------------------------------------------------------------- one pass


def _pass(record: dict, which: str, name: str) -> list[str]:
    cases = with_ours(record["cases"], which)
    if not cases:
        return ["No provider of ours was right here; see the notes below.", ""]
    plotted = [line for plot in plots_of_pass(cases, which, name) for line in (plot, "")]
    return [sentence(cases, which), "", *plotted, table(cases, which), ""]


def plots_of_pass(cases: list[dict], which: str, name: str) -> list[Html]:
    """Rates of squares over their size where there are many, shares of the limit of everything else."""
    squares = [case for case in cases if len(case["shape"]) > 1 and len(set(case["shape"])) == 1]
    if len({tuple(case["shape"]) for case in squares}) < ENOUGH_FOR_A_LINE:
        squares = []
    drawn = [_lines(squares, which, name)] if squares else []
    rest = [case for case in cases if case not in squares]
    for variant in dict.fromkeys(case["variant"] for case in rest):
        chosen = [case for case in rest if case["variant"] == variant]
        title = f"{pass_name(which, variant)}: share of the limit"
        drawn.append(_dots(chosen, which, title, f"{name}-{which}-{variant}"))
    return drawn


def with_ours(cases: list[dict], which: str) -> list[dict]:
    """The cases in which a file of ours was measured in this pass."""
    return [case for case in cases if which in case["passes"] and figures.ours(case["passes"][which])]


def pass_name(which: str, variant: str) -> str:
    """`Forward, leaky_relu`; a variant that is there for this pass alone, and named like it, adds nothing."""
    return PASS_NAMES[which] + (f", {variant}" if variant not in ("", which) else "")


def sentence(cases: list[dict], which: str) -> str:
    """What the numbers say, in words: range of shares, and where a peer is ahead."""
    entries = [(case, case["passes"][which]) for case in cases]
    shares = [100 * entry["limit_ms"] / figures.ours_ms(entry) for _, entry in entries]
    text = f"The kernel reaches {between(shares, '{:.0f}')} % of the limit"
    behind, compared = [], 0
    for case, entry in entries:
        best = figures.best_peer(entry)
        if best:
            compared += 1
            ratio = entry["providers"][best]["ms"] / figures.ours_ms(entry)
            if ratio < LEVEL:
                behind.append(f"{_name(case)} ({best} takes {100 * ratio:.0f} % of its time)")
    if not compared:
        return f"{text}."
    if not behind:
        return f"{text}. It is at least level with the best peer (within 1 %) in all {compared} cases."
    level = compared - len(behind)
    return (
        f"{text}. It is at least level with the best peer (within 1 %) in {level} of {compared} cases; "
        f"not at {_listed(behind)}. "
        "The notes beside the kernel's benchmark say more."
    )


def _name(case: dict) -> str:
    return f"{figures.label(case['shape'])}{' ' + case['variant'] if case['variant'] else ''}"


def _providers(cases: list[dict], which: str) -> list[str]:
    return list(dict.fromkeys(name for case in cases for name in case["passes"][which]["providers"]))


def _rows(cases: list[dict]) -> list[str]:
    """A label per case; the dtype is named where there are several."""
    several = len({case["dtype"] for case in cases}) > 1
    return [figures.label(case["shape"]) + (f" {case['dtype']}" if several else "") for case in cases]


def _dots(cases: list[dict], which: str, title: str, name: str) -> Html:
    def share(case: dict, provider: str) -> float | None:
        entry = case["passes"][which]
        timed = entry["providers"].get(provider)
        return 100 * entry["limit_ms"] / timed["ms"] if timed else None

    series = [plots.Series(p, [share(case, p) for case in cases]) for p in _providers(cases, which)]
    return figure(title, plots.dots(name, title, _rows(cases), series, "% of the limit", 100))


def _lines(cases: list[dict], which: str, name: str) -> Html:
    """Rate over the size of a square, one line per provider and variant."""
    cases = sorted(cases, key=lambda case: case["shape"][0])
    sizes = sorted({case["shape"][0] for case in cases})
    series = []
    for variant in dict.fromkeys(case["variant"] for case in cases):
        chosen = {case["shape"][0]: case["passes"][which] for case in cases if case["variant"] == variant}
        suffix = "" if variant in ("", "none") else f" + {variant}"
        for provider in _providers([case for case in cases if case["variant"] == variant], which):
            times = {n: entry["providers"].get(provider) for n, entry in chosen.items()}
            values = [chosen[n]["operations"] / times[n]["ms"] / 1e9 if times.get(n) else None for n in sizes]
            series.append(plots.Series(provider.removesuffix(suffix) + suffix, values))
    title = f"{PASS_NAMES[which]}: TFLOP/s over the size of a square"
    return figure(title, plots.lines(f"{name}-{which}-lines", title, sizes, "size", series, "TFLOP/s"))


def figure(title: str, svg: str) -> Html:
    scrolled = f'<div class="bench-scroll" tabindex="0" role="group" aria-label="plot">{svg}</div>'
    return Html(f'<figure class="bench"><figcaption>{html.escape(title)}</figcaption>{scrolled}</figure>')


def table(cases: list[dict], which: str) -> Html:
    """The numbers behind a pass's plots: time and share of the limit of every provider."""
    providers = _providers(cases, which)
    variants = any(case["variant"] for case in cases)
    head = ["shape", *(["variant"] if variants else []), "dtype", "limit", *providers]
    rows = []
    for case in cases:
        entry = case["passes"][which]
        best = figures.best_peer(entry)
        cells = [figures.label(case["shape"]), *([case["variant"]] if variants else []), case["dtype"]]
        cells.append(figures.milliseconds(entry["limit_ms"]))
        for provider in providers:
            timed = entry["providers"].get(provider)
            text = html.escape(_timed(entry, timed)) if timed else "–"
            behind = provider == figures.ours(entry) and best and entry["providers"][best]["ms"] < LEVEL * timed["ms"]
            cells.append(
                Html(f'<span class="bench-behind" title="{best} is ahead">{text}</span>') if behind else Html(text)
            )
        rows.append(cells)
    return _table(f"Data: {PASS_NAMES[which].lower()}, time and share of the limit", head, rows)


def _timed(entry: dict, timed: dict) -> str:
    value, unit = figures.rate(entry, timed)
    share = figures.percent(entry["limit_ms"] / timed["ms"])
    return f"{figures.milliseconds(timed['ms'])}, {share}, {value:.3g} {unit}"


def _table(summary: str, head: list[str], rows: list[list[str]], is_open: bool = False) -> Html:
    def cell(tag: str, text: str) -> str:
        return f"<{tag}>{text if isinstance(text, Html) else html.escape(str(text))}</{tag}>"

    body = "".join("<tr>" + "".join(cell("td", text) for text in row) + "</tr>" for row in rows)
    columns = "".join(cell("th", name) for name in head)
    return Html(
        f'<details class="bench-data"{" open" if is_open else ""}><summary>{html.escape(summary)}</summary>'
        f'<div class="bench-scroll" tabindex="0" role="group" aria-label="{html.escape(summary)}"><table>'
        f"<thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


# ---------------------------------------------------------------- memory, host time, ladder, notes


def _memory_plot(record: dict, name: str) -> Html:
    """Memory of the last pass, per shape and provider: the first variant that has it, its largest shapes."""
    which = passes(record)[-1]
    cases = _with(record, which)
    cases = [case for case in cases if case["variant"] == cases[0]["variant"]]
    largest = sorted(cases, key=lambda case: case["passes"][which]["bytes"])[-MEMORY_ROWS:]
    cases = [case for case in cases if case in largest]

    def mebibytes(case: dict, provider: str) -> float | None:
        timed = case["passes"][which]["providers"].get(provider)
        return timed["peak_bytes"] / (1 << 20) if timed else None

    series = [plots.Series(p, [mebibytes(case, p) for case in cases]) for p in _providers(cases, which)]
    title = f"Peak memory, {pass_name(which, cases[0]['variant']).lower()}"
    return figure(title, plots.dots(f"{name}-memory", title, _rows(cases), series, "MiB"))


def _memory_table(record: dict) -> Html:
    providers = list(dict.fromkeys(p for which in passes(record) for p in _providers(_with(record, which), which)))
    rows = []
    for case in record["cases"]:
        for which, entry in case["passes"].items():
            peaks = [entry["providers"].get(p) for p in providers]
            cells = [figures.memory(peak["peak_bytes"]) if peak else "–" for peak in peaks]
            rows.append([_name(case), case["dtype"], PASS_NAMES[which].lower(), *cells])
    return _table("Data: peak memory", ["shape", "dtype", "pass", *providers], rows)


def _with(record: dict, which: str) -> list[dict]:
    return [case for case in record["cases"] if which in case["passes"]]


def _host(record: dict, level: str) -> list[str]:
    """Host time of a small call: what Python costs before the GPU starts."""
    rows = []
    for host in record.get("host", []):
        for provider, times in host["providers"].items():
            both = times.get("forward+backward_us")
            values = [f"{times['forward_us']:.3g} µs"] if "forward_us" in times else [_absent(times)]
            values.append(f"{both:.3g} µs" if both else "–")
            rows.append([provider, *values, figures.label(host["shape"]), host["variant"] or "–"])
    if not rows:
        return []
    head = ["provider", "forward", "forward and backward", "shape", "variant"]
    text = "What a call costs the CPU before the GPU has anything to do. It decides how fast small tensors are."
    return ["", f"{level} Host time of a small call", "", text, "", _table("Data: host time", head, rows, True), ""]


def _absent(times: dict) -> str:
    return "not installed" if "missing" in times else "failed"


def ladder(name: str, device: str, level: str, root: Path) -> list[str]:
    """The steps from the naive kernel to the final one, as they were measured while it was written."""
    steps = figures.ladder(root, device, name)
    if not steps:
        return []
    rungs = steps["rungs"]
    fields = list(dict.fromkeys(key for rung in rungs for key in rung if key.endswith("_ms")))
    head = ["rung", "what changed", *map(_field, fields)]
    copies = [steps.get(f"copy_{key}") for key in fields]
    rows = [
        [rung["name"], words(rung.get("what", "")), *(_rung_time(rung.get(k), c) for k, c in zip(fields, copies))]
        for rung in rungs
    ]
    drawn = _ladder_figures(steps, fields, f"{device}-{name}-ladder")
    table = _table("Data: the ladder", head, rows, True)
    return ["", f"{level} The ladder", "", ladder_source(steps), "", *drawn, table, ""]


def ladder_source(ladder: dict) -> str:
    """Where and when the rungs were measured."""
    return (
        "The steps on the way here, each measured on the same card "
        f"({ladder.get('date', 'no date')}, torch {ladder.get('torch', '?')}, triton {ladder.get('triton', '?')}). "
        "A ladder is the record of that day: it isn't measured again, and what changed later is not in it."
    )


def _ladder_figures(ladder: dict, fields: list[str], name: str) -> list[str]:
    """One figure if every rung has every time, otherwise one for each time, with the rungs that have it.

    `shape_<time>` beside the ladder's `shape` is that of one time alone.
    """
    rungs = ladder["rungs"]
    complete = all(key in rung for rung in rungs for key in fields)
    out: list[str] = []
    for shown in [fields] if complete else [[key] for key in fields]:
        some = [rung for rung in rungs if any(key in rung for key in shown)]
        series = [plots.Series(_field(key), [rung.get(key) for rung in some]) for key in shown]
        shape = ladder.get(f"shape_{shown[0]}", ladder.get("shape"))
        place = f" at {figures.label(shape)} {ladder.get('dtype', '')}".rstrip() if shape else ""
        title = f"Ladder: ms{place}" if complete else f"Ladder, {_field(shown[0])}: ms{place}"
        stem = name if complete else f"{name}-{_field(shown[0]).replace(' ', '-')}"
        out += [figure(title, plots.bars(stem, title, [rung["name"] for rung in some], series, "ms")), ""]
    return out


def _rung_time(ms: float | None, copy_ms: float | None) -> str:
    """Time of a rung, with its share of a copy of as many bytes if that was measured beside it."""
    if not ms:
        return "–"
    return figures.milliseconds(ms) + (f", {figures.percent(copy_ms / ms)}" if copy_ms else "")


def words(text: str) -> Html:
    """A cell of prose, with `code` set as such."""
    escaped = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))
    return Html(f'<span class="bench-words">{escaped}</span>')


def _field(key: str) -> str:
    return key.removesuffix("_ms").replace("_", " ")


def _notes(record: dict, level: str) -> list[str]:
    """Missing peers, results outside the error rule, overwritten inputs: said, not hidden."""
    said: dict[tuple[str, str], list[str]] = {}
    texts = {
        "missing": "was not installed: {}",
        "failed": "failed: {}",
        "inaccurate": "is outside the error rule (twice PyTorch's error against float64): {}",
        "writes_inputs": "overwrites its inputs ({}); they are restored before each timed call",
    }
    for case in record["cases"]:
        for provider, note in case["notes"].items():
            for kind, detail in note.items():
                detail = ", ".join(detail) if isinstance(detail, list) else detail
                key = (provider, kind if kind in ("inaccurate", "failed") else texts[kind].format(detail))
                said.setdefault(key, []).append(f"{_name(case)}: {detail}")
    if not said:
        return []
    out = ["", f"{level} Notes", ""]
    for (provider, kind), places in said.items():
        if kind in texts:
            more = f" and in {len(places) - 1} more cases" if len(places) > 1 else ""
            out.append(f"- {provider} {texts[kind].format(f'`{places[0]}`')}{more}")
        else:
            out.append(f"- {provider} {kind}")
    return [*out, ""]


def _reproduce(name: str, root: Path) -> list[str]:
    files = list(store.kernel_files(root / "benchmarks" / f"{name}.py").values())
    scripts = [f"python {files[-1]}"] if files else []
    quick = ["Its script shows the most important of it in seconds:", "", "```sh", *scripts, "```", ""]
    quick = quick if files else []
    return [
        "",
        "## Measure it yourself",
        "",
        *quick,
        "The whole measurement, written to `benchmarks/results/<your device>/`:",
        "",
        "```sh",
        f"academy bench --only {name}",
        "```",
        "",
    ]
