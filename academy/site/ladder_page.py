"""`[[ladder: NAME]]`: a ladder rung by rung, with the reason, the change to the code and what it gained.

Code and reasons come from the rungs' files, numbers from the committed results: nothing is typed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from academy.book import facts
from academy.results import figures, ladder, pages, plots
from academy.results.tables import Html
from academy.site.rung_code import Line, code_of, difference

#: A change of more lines than this is folded.
MOST_LINES = 40
MARKS = {"+": ("ins", "r-add"), "-": ("del", "r-cut"), " ": ("span", "r-same")}
BAR = Html('<span class="r-bar" aria-hidden="true"><span style="width:{:.1f}%"></span></span>')


def pieces(name: str, root: Path) -> list[str]:
    """Lines of Markdown (`str`) and finished HTML (`Html`). Raises ValueError naming what is wrong with the ladder."""
    found = ladder.rungs(name, root)
    function = ladder.function_name(name, root)
    results = figures.results(root, f"ladders/{name}")
    device, record = results[0] if results else ("", None)
    out: list[str] = [_where(name, record, root)]
    axes = facts.axes(root / ladder.BENCHMARKS / f"{name}.py")
    out += _charts(record, found, f"{device}-{name}", axes) if record else []
    before: list[Line] = []
    for rung in found:
        if not rung.number:
            continue
        after = code_of(rung.path, function, root)
        changed = difference(before, after) if before else after
        out += ["", f"### {rung.number}. {rung.name} {{: #{name}-{rung.word} .r-name }}", ""]
        out += [_gain(record, rung), "", _about(rung), "", _code(changed, rung, bool(before)), ""]
        before = after
    return out + _tried(name, record, [rung for rung in found if not rung.number], root)


def _where(name: str, record: dict | None, root: Path) -> str:
    again = f"`academy bench --ladder {name}` measures it again."
    if record is None:
        return f"Each rung runs and is tested. It isn't measured yet: `academy bench --ladder {name}` does that."
    versions = record["versions"]
    places = " and ".join(f"{figures.label(case['shape'])} in {case['dtype']}" for case in record["cases"])
    text = (
        f"Each rung runs and is tested. Measured in one run on an {record['device']}, {record['date']}, torch "
        f"{versions['torch']}, triton {versions['triton']}, at {places}. {again}"
    )
    if old := ladder.stale(record, root):
        text += f" **Stale:** the code of {len(old)} of these has changed since: {', '.join(old)}."
    return text


def _charts(record: dict, found: list[ladder.Rung], name: str, axes: Sequence[str]) -> list[str]:
    """A picture for each shape: the rungs, what was tried, and PyTorch. Why some are above 100 %, if some are."""
    out: list[str] = []
    above: set[bool] = set()
    for case in record["cases"]:
        times = figures.ladder_times(record, case)
        names = [f"{r.number}. {r.name}" if r.number else f"tried: {r.name}" for r in found] + ["PyTorch"]
        words = [*(rung.word for rung in found), "pytorch"]
        ms = [times[word].ms if word in times else None for word in words]
        series = [plots.Series("_", ms)]  # no legend: there is one
        place = figures.label(case["shape"])
        title = f"Ladder: ms at {place} {case['dtype']}"
        drawn = plots.bars(f"{name}-ladder-{place}", title, names, series, "ms")
        out += ["", pages.figure(title, drawn, pages.shape_in_words(case["shape"], axes)), ""]
        if any(time.share and time.share >= pages.ABOVE for time in times.values()):
            above.add(case["limit_ms"] <= case["copy_ms"])
    return out + pages.why_above(above)


def _gain(record: dict | None, rung: ladder.Rung) -> str:
    """One line: time, gain over the rung before, share of the limit; the other shapes behind it."""
    if record is None:
        return "Not measured yet."
    parts, bar = [], Html("")
    for case in record["cases"]:
        time = figures.ladder_times(record, case).get(rung.word)
        place = figures.label(case["shape"])
        if time is None or time.ms is None or time.share is None:
            parts.append(f"{place}: not measured")
            continue
        bar = bar or BAR.format(min(100, 100 * time.share))
        text = f"<strong>{figures.milliseconds(time.ms)}</strong>"
        text += f", {_compared(time.gain)} as the rung before" if time.gain else ""
        text += f", {figures.percent(time.share)} of the limit"
        parts.append(f"{text} at {place}" if len(record["cases"]) > 1 else text)
    return Html('<p class="r-gain">{}<span>{}</span></p>').format(bar, Html("<br>".join(parts)))


def _compared(gain: float) -> str:
    return f"{gain:.2f}x as fast" if gain >= 1 else f"{1 / gain:.2f}x as long"


def _about(rung: ladder.Rung) -> str:
    """The reason, its links as the page of the fast version has them, which lies one folder higher."""
    return rung.about.replace("](../../", "](../")


def _code(lines: list[Line], rung: ladder.Rung, is_change: bool) -> Html:
    shown = [line for line in lines if line.text]
    added, cut = (sum(line.mark == mark for line in shown) for mark in "+-")
    if is_change:
        title = f"What changes in the code: {added} lines added, {cut} removed"
    else:
        title = f"The code: {len(shown)} lines"
    body = Html("").join(_line(line, is_change) for line in lines)
    is_open = Markup(" open") if len(shown) <= MOST_LINES else ""
    kind = "language-diff" if is_change else "language-python"
    return Html(
        '<details class="r-diff" data-search-exclude=""{}><summary>{}</summary>'
        '<div class="{} highlight"><pre tabindex="0"><code>{}</code></pre></div>'
        '<p class="r-file">{}</p></details>'
    ).format(is_open, title, kind, body, rung.path)


def _line(line: Line, is_change: bool) -> Html:
    if not line.mark:
        return Html('<span class="r-gap">⋯\n</span>')
    if not is_change:
        return Html('<span class="r-same">{}\n</span>').format(Html(line.html))
    tag, kind = MARKS[line.mark]
    return Html(f'<{tag} class="{kind}">{{}}{{}}\n</{tag}>').format(line.mark, Html(line.html))


def _tried(name: str, record: dict | None, found: list[ladder.Rung], root: Path) -> list[str]:
    """What wasn't kept: rungs that run, then entries of older records."""
    out: list[str] = []
    for rung in found:
        case = record["cases"][0] if record else None
        time = figures.ladder_times(record, case).get(rung.word) if record and case else None
        text = figures.milliseconds(time.ms) if time and time.ms else "not measured yet"
        out += [f"**{rung.name}**: {text}. {' '.join(_about(rung).split())}", ""]
    for device, old in figures.results(root, "ladder/*"):
        for entry in old["rungs"]:
            if device == figures.PROSE_DEVICE and entry.get("tried") == name:
                times = [
                    f"{figures.milliseconds(ms)} ({key.removesuffix('_ms').replace('_', ' ')}{_at(old, key)})"
                    for key, ms in entry.items()
                    if key.endswith("_ms")
                ]
                out += [f"**{entry['name']}** ({old['date']}): {', '.join(times)}. {entry['what']}.", ""]
    return ["", "### Tried, and not kept", "", *out] if out else []


def _at(record: dict, key: str) -> str:
    shape = record.get(f"shape_{key}", record.get("shape"))
    return f" at {figures.label(shape)}" if shape else ""
