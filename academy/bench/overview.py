"""The page with all operations, made from the committed JSON while the site is built."""

from __future__ import annotations

from pathlib import Path

from academy.bench import figures, pages, store
from academy.bench.pages import between


def summary(root: Path, link=lambda operation: f"{operation}.md") -> list[str]:
    """A table of all operations per device: share of the limit and standing against the best peer."""
    out: list[str] = []
    for device in figures.devices(root):
        records = [record for path, record in store.committed(root) if path.parent.name == device]
        if not records:
            continue
        out += ["", f"## {records[0]['device']}", "", _rates(records), ""]
        out += [
            "| operation | pass | cases | share of the limit | against the best peer |",
            "|---|---|---|---|---|",
        ]
        for record in records:
            out += _summary_rows(record, link(record["operation"]), root)
        out.append("")
    if not out:
        out = ['!!! note "Not measured yet"', "", "    No results are committed.", ""]
    waiting = _waiting(root)
    if waiting:
        out += ["", f"Not measured yet: {', '.join(f'`{name}`' for name in waiting)}.", ""]
    return out


def _rates(records: list[dict]) -> str:
    cases = [case for record in records for case in record["cases"]]
    rates = [case["matrix_tflop_s"] for case in cases if case["dtype"] == "bfloat16"]
    multiplied = f" and multiplied bf16 matrices at {between(rates, '{:.0f}')} TFLOP/s" if rates else ""
    return f"In these runs the card copied {between([c['copy_tb_s'] for c in cases], '{:.2f}')} TB/s{multiplied}."


def _summary_rows(record: dict, href: str, root: Path) -> list[str]:
    stale = " (stale)" if store.is_stale(record, root) else ""
    rows = []
    for variant in dict.fromkeys(case["variant"] for case in record["cases"]):
        for which in pages.passes(record):
            cases = pages.with_ours(record["cases"], which)
            entries = [case["passes"][which] for case in cases if case["variant"] == variant]
            if not entries:
                continue
            shares = [100 * e["limit_ms"] / figures.ours_ms(e) for e in entries]
            ratios = [
                e["providers"][best]["ms"] / figures.ours_ms(e) for e in entries if (best := figures.best_peer(e))
            ]
            name = f"[{record['operation']}]({href})" + (f" {variant}" if variant else "")
            against = (f"{between(ratios, '{:.2f}')}x" if ratios else "–") + stale
            name_of_pass = pages.PASS_NAMES[which].lower()
            rows.append(f"| {name} | {name_of_pass} | {len(entries)} | {between(shares, '{:.0f}')} % | {against} |")
    return rows


def _waiting(root: Path) -> list[str]:
    """Operations with a benchmark and no result on any device."""
    have = {record["operation"] for _, record in store.committed(root)}
    return [path.stem for path in store.benchmark_files(root) if path.stem not in have]
