"""The page of all operations: a picture for each pass, and a table with a row for each operation."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from academy.book import facts
from academy.results import store
from academy.results.figures import OURS, Pass, between, passes, results
from academy.results.pages import PASS_NAMES, above_the_limit, by_variant, figure, kinds, providers_of
from academy.results.plots import MARKS, Limit, Series, dots
from academy.results.tables import Table


def summary(root: Path) -> list[str]:
    """A table of all operations per device: share of the limit and standing against the best peer."""
    found = results(root, "*")
    out: list[str] = []
    for device in dict.fromkeys(device for device, _ in found):
        records = [record for other, record in found if other == device]
        rows = [row for record in records for row in _summary_rows(record, root)]
        head = ["operation", "pass", "cases", "share of the limit", "against the best peer"]
        out += [
            "",
            f"## {records[0]['device']}",
            "",
            _rates(records),
            "",
            _provenance(records),
            "",
            *overview(records, device),
        ]
        out += ["", *Table("", head, rows).markdown(), ""]
    if not out:
        out = ['!!! note "Not measured yet"', "", "    No results are committed.", ""]
    have = {record["operation"] for _, record in found}
    waiting = [path.stem for path in facts.measured(root) if path.stem not in have]
    if waiting:
        out += ["", f"Not measured yet: {', '.join(f'`{name}`' for name in waiting)}.", ""]
    return out


def overview(records: list[dict], device: str) -> list[str]:
    """A picture for each pass: a row an operation, ours and each peer as dots, the middle one of its cases."""
    out: list[str] = []
    every: list[Pass] = []
    drawn: dict[str, tuple[list[str], dict[str, dict[str, float]]]] = {}
    for which in PASS_NAMES:
        found = {each["operation"]: passes(each["cases"], which) for each in records}
        found = {name: next(iter(by_variant(some).values())) for name, some in found.items() if some}
        every += [each for some in found.values() for each in some]
        shares: dict[str, dict[str, float]] = {}
        for name, some in found.items():
            for provider in providers_of(some):
                known = [100 * each.share(provider) for each in some if provider in each.providers]
                ours = provider == some[0].ours
                if ours or provider not in OURS:
                    shares.setdefault("ours" if ours else provider, {})[name] = median(known)
        if shares:
            drawn[which] = list(found), shares
    # A provider that a pass lacks keeps its place: the same mark means the same provider in every picture.
    names = list(dict.fromkeys(name for _, shares in drawn.values() for name in shares))[: len(MARKS)]
    for which, (rows, shares) in drawn.items():
        series = [Series(name, [shares.get(name, {}).get(row) for row in rows]) for name in names]
        text = f"{PASS_NAMES[which]}: share of the limit, each operation's middle case"
        limit = Limit(100, "limit, 100 %")
        out += [figure(text, dots(f"{device}-{which}", text, rows, series, "% of the limit", limit)), ""]
    return out + above_the_limit(every)


def _rates(records: list[dict]) -> str:
    cases = [case for record in records for case in record["cases"]]
    rates = [case["matrix_tflop_s"] for case in cases if case["dtype"] == "bfloat16"]
    multiplied = f" and multiplied bf16 matrices at {between(rates, '{:.0f}')} TFLOP/s" if rates else ""
    return f"In these runs the card copied {between((c['copy_tb_s'] for c in cases), '{:.2f}')} TB/s{multiplied}."


def _provenance(records: list[dict]) -> str:
    """When it was measured, and with which version of every library."""
    cases = [case for record in records for case in record["cases"]]
    dates = sorted({case["date"] for case in cases})
    when = f"on {dates[0]}" if len(dates) == 1 else f"from {dates[0]} to {dates[-1]}"
    versions: dict[str, set[str]] = {}
    for case in cases:
        for library, version in case["versions"].items():
            versions.setdefault(library, set()).add(version)
    listed = ", ".join(f"{library} {' and '.join(sorted(some))}" for library, some in versions.items())
    return f"Measured {when} with {listed}. `make bench` measures the same on your card."


def _summary_rows(record: dict, root: Path) -> list[list[str]]:
    stale = " (stale)" if store.stale(record, root) else ""
    rows = []
    for variant in dict.fromkeys(case["variant"] for case in record["cases"]):
        cases = [case for case in record["cases"] if case["variant"] == variant]
        for which in kinds(record):
            if found := passes(cases, which):
                shares = between((100 * each.share() for each in found), "{:.0f}")
                ratios = [each.against_best for each in found if each.against_best]
                name = f"[{record['operation']}]({record['operation']}.md) {variant}".rstrip()
                against = f"{between(ratios, '{:.2f}')}x" if ratios else "–"
                rows.append([name, PASS_NAMES[which].lower(), str(len(found)), f"{shares} %", against + stale])
    return rows
