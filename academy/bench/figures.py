"""Numbers out of the committed results: what `[[bench: KEY]]` shows, and what plots and tables are drawn from.

A key is `<operation>[:<variant>]/<shape>[@<dtype>]/<pass>/<figure>`, for example `layernorm/32768x4096/backward/share`.

| figure | is |
|---|---|
| `ms` | the median time, with its unit |
| `share` | share of the limit |
| `rate` | TFLOP/s of a matrix product, TB/s of everything else |
| `memory` | the most memory that the pass held beyond its inputs |
| `speedup` | how many times as fast as the best peer |
| `best_peer` | that peer's name |
| `<provider>.ms`, `.share`, `.rate`, `.memory` | the same of a provider: `lesson.ms`, `eager.share` |
| `<provider>.speedup` | how many times as fast as that provider ours is |

Ours is the fast file, or the lesson where there is none.

`<operation>/ladder/<rung>/<field>` is a number of its ladder; `device/copy` and `device/matrix` are the card's rates;
`measuring/<name>` and `profiling/<name>` are results of those guides' experiments (files of that name in benchmarks/).
Nothing here needs torch.
"""

from __future__ import annotations

import json
import statistics
from functools import lru_cache
from pathlib import Path

from academy.bench import store

#: Prose quotes this device; without results of it, the first one that has any.
PROSE_DEVICE = "nvidia-h200"
NOT_YET = "not measured yet"
#: Guides whose experiments have results of their own, in `experiments/`.
EXPERIMENTS = ("measuring", "profiling")
#: Our own providers, the one that is meant by "ours" first.
OURS = ("fast", "lesson")
#: Operations per byte from which a rate is quoted in TFLOP/s.
MATRIX_INTENSITY = 16


@lru_cache(maxsize=512)
def _parsed(path: Path, modified: int) -> dict:
    return json.loads(path.read_text("utf-8"))


def _json(path: Path) -> dict | None:
    return _parsed(path, path.stat().st_mtime_ns) if path.is_file() else None


def devices(root: Path) -> list[str]:
    """Folders under benchmarks/results, the one that prose quotes first."""
    folders = sorted(path.name for path in (root / "benchmarks" / "results").glob("*") if path.is_dir())
    return sorted(folders, key=lambda name: name != PROSE_DEVICE)


def record(root: Path, device: str, operation: str) -> dict | None:
    return _json(root / "benchmarks" / "results" / device / f"{operation}.json")


def ladder(root: Path, device: str, operation: str) -> dict | None:
    return _json(root / "benchmarks" / "results" / device / "ladder" / f"{operation}.json")


def measured(key: str, root: Path) -> str | None:
    """The text for a key; `NOT_YET` while the operation has no committed results; None for a key that is wrong."""
    parts = [part.strip() for part in key.split("/")]
    if parts[0] == "device":
        return _card(root, parts[1:])
    if parts[0] in EXPERIMENTS:
        return _experiment(root, parts[0], "/".join(parts[1:]))
    operation, _, variant = parts[0].partition(":")
    if not (root / "benchmarks" / f"{operation}.py").is_file():
        return None
    if len(parts) == 4 and parts[1] == "ladder":
        return _rung(root, operation, parts[2], parts[3])
    if len(parts) != 4:
        return None
    found = next((r for r in (record(root, d, operation) for d in devices(root)) if r), None)
    if found is None:
        return NOT_YET
    shape, _, dtype = parts[1].partition("@")
    for case in found["cases"]:
        if case["variant"] == variant and label(case["shape"]) == shape and dtype in ("", case["dtype"]):
            entry = case["passes"].get(parts[2])
            return figure(entry, parts[3]) if entry else None
    return None


def _card(root: Path, parts: list[str]) -> str | None:
    fields = {"copy": ("copy_tb_s", "{:.2f} TB/s"), "matrix": ("matrix_tflop_s", "{:.0f} TFLOP/s")}
    if len(parts) != 1 or parts[0] not in fields:
        return None
    field, form = fields[parts[0]]
    for device in devices(root):
        records = [r for path, r in store.committed(root) if path.parent.name == device]
        values = [c[field] for r in records for c in r["cases"] if field == "copy_tb_s" or c["dtype"] == "bfloat16"]
        if values:
            return form.format(statistics.median(values))
    return NOT_YET


def _experiment(root: Path, guide: str, name: str) -> str | None:
    """A value that the machine couldn't measure, for lack of a tool, is None in the file."""
    for device in devices(root):
        content = _json(root / "benchmarks" / "results" / device / "experiments" / f"{guide}.json")
        if content:
            value = content["values"].get(name)
            if value is None:
                return None
            return NOT_YET if value["value"] is None else f"{value['value']:.3g} {value['unit']}"
    return NOT_YET


def _rung(root: Path, operation: str, name: str, field: str) -> str | None:
    found = next((r for r in (ladder(root, d, operation) for d in devices(root)) if r), None)
    if found is None:
        return NOT_YET
    for rung in found["rungs"]:
        if rung["name"] == name and field in rung:
            return milliseconds(rung[field]) if field.endswith("_ms") else str(rung[field])
    return None


def figure(entry: dict, name: str) -> str | None:
    """A figure of a pass as text, or None if there is no such provider or figure."""
    provider, _, what = name.rpartition(".")
    times, main = entry["providers"], ours(entry)
    if provider in OURS and provider not in times:
        return NOT_YET
    if provider and provider not in times or main is None:
        return None
    mine = times[provider or main]
    if what == "ms":
        return milliseconds(mine["ms"])
    if what == "share":
        return percent(entry["limit_ms"] / mine["ms"])
    if what == "rate":
        value, unit = rate(entry, mine)
        return f"{value:.3g} {unit}"
    if what == "memory":
        return memory(mine["peak_bytes"])
    best = best_peer(entry)
    if what == "best_peer" and not provider:
        return best
    if what == "speedup" and (provider or best):
        return f"{times[provider or best]['ms'] / times[main]['ms']:.2f}x"
    return None


def ours(entry: dict) -> str | None:
    """The provider that a pass is about: the fast file, the lesson where there is none, None if neither was right."""
    return next((name for name in OURS if name in entry["providers"]), None)


def ours_ms(entry: dict) -> float:
    return entry["providers"][ours(entry)]["ms"]


def best_peer(entry: dict) -> str | None:
    """The fastest provider that isn't ours."""
    peers = {name: value["ms"] for name, value in entry["providers"].items() if name not in OURS}
    return min(peers, key=peers.get) if peers else None


def rate(entry: dict, measurement: dict) -> tuple[float, str]:
    """Operations per second where there are many to a byte, else bytes per second; and the unit."""
    if entry["operations"] > MATRIX_INTENSITY * entry["bytes"]:
        return entry["operations"] / measurement["ms"] / 1e9, "TFLOP/s"
    return entry["bytes"] / measurement["ms"] / 1e9, "TB/s"


def label(shape: list[int]) -> str:
    return "x".join(map(str, shape))


def milliseconds(value: float) -> str:
    return f"{value:.3g} ms" if value >= 0.1 else f"{value * 1e3:.3g} µs"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.095 else f"{100 * value:.1f} %"


def memory(count: int) -> str:
    return f"{count / (1 << 20):,.4g} MiB" if count >= 1 << 20 else f"{count / 1024:.3g} KiB"
