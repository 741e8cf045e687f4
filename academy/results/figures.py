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

`ladders/<name>[@<shape>]/<word>/<field>` is the `ms`, the `share` of the limit or the `gain` over the rung before of a
rung (`academy.results.ladder`) or of `pytorch`, at the ladder's first shape if none is given.
`<operation>/ladder/<rung>/<field>` is a number that was measured while the kernel was written. `device/copy` and
`device/matrix` are the card's rates; `<experiment>/<name>`, such as `measuring/<name>`, is a result of an experiment,
`EXPERIMENTS` below (files of that name in `benchmarks/results/<device>/experiments`).
Nothing here needs torch.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from academy.book import layout

#: Prose quotes this device; without results of it, the first one that has any.
PROSE_DEVICE = "nvidia-h200"
NOT_YET = "not measured yet"
#: Files in `experiments/`, results of scripts in `benchmarks/` that are no operation's.
EXPERIMENTS = (
    "measuring", "profiling", "huggingface", "host_time", "capstone", "capstone_options",
    "capstone_optimizers", "below_triton", "many_cards", "accumulation", "reward", "batch_invariance",
)  # fmt: skip
#: Our own providers, the one that is meant by "ours" first.
OURS = ("fast", "lesson")
#: Operations per byte from which a rate is quoted in TFLOP/s.
MATRIX_INTENSITY = 16


@dataclass(frozen=True)
class Pass:
    """One pass of a measured case. Methods without a provider are about ours."""

    case: dict
    which: str

    @property
    def entry(self) -> dict:
        return self.case["passes"][self.which]

    @property
    def providers(self) -> dict[str, dict]:
        return self.entry["providers"]

    @property
    def ours(self) -> str:
        """The provider that it is about: the fast file, the lesson where there is none; "" if neither was right."""
        return next((name for name in OURS if name in self.providers), "")

    @property
    def best_peer(self) -> str:
        """The fastest provider that isn't ours; "" if there is none."""
        peers = [name for name in self.providers if name not in OURS]
        return min(peers, key=self.ms) if peers else ""

    @property
    def against_best(self) -> float | None:
        """How many times our time the best peer takes."""
        return self.ms(self.best_peer) / self.ms() if self.best_peer else None

    def ms(self, provider: str = "") -> float:
        return self.providers[provider or self.ours]["ms"]

    @property
    def waits_for_memory(self) -> bool:
        """Whether moving the bytes takes longer than the arithmetic."""
        return self.entry["limit_ms"] <= self.entry["copy_ms"]

    def share(self, provider: str = "") -> float:
        return self.entry["limit_ms"] / self.ms(provider)

    def rate(self, provider: str = "") -> str:
        """Operations per second where there are many to a byte, else bytes per second."""
        is_matrix = self.entry["operations"] > MATRIX_INTENSITY * self.entry["bytes"]
        amount, unit = (self.entry["operations"], "TFLOP/s") if is_matrix else (self.entry["bytes"], "TB/s")
        return f"{amount / self.ms(provider) / 1e9:.3g} {unit}"

    def figure(self, name: str) -> str | None:
        """A figure as text, or None if there is no such provider or figure."""
        provider, _, what = name.rpartition(".")
        if provider in OURS and provider not in self.providers:
            return NOT_YET
        if provider and provider not in self.providers or not self.ours:
            return None
        other = provider or self.best_peer
        if other and what == "speedup":
            return f"{self.ms(other) / self.ms():.2f}x"
        if other and name == "best_peer":
            return other
        made = {
            "ms": lambda: milliseconds(self.ms(provider)),
            "share": lambda: percent(self.share(provider)),
            "rate": lambda: self.rate(provider),
            "memory": lambda: memory(self.providers[provider or self.ours]["peak_bytes"]),
        }
        return made[what]() if what in made else None


def passes(cases: Iterable[dict], which: str = "", measured: bool = True) -> list[Pass]:
    """The passes of cases, or those of one kind. measured: only those in which a provider of ours was right."""
    found = [Pass(case, name) for case in cases for name in case["passes"] if which in ("", name)]
    return [each for each in found if each.ours or not measured]


def yardstick(found: Iterable[Pass]) -> str:
    """What 100 % is in these passes."""
    kinds = {each.waits_for_memory for each in found}
    return "the limit" if len(kinds) > 1 else "copy speed" if kinds == {True} else "the matrix rate"


# ---------------------------------------------------------------- files


@lru_cache(maxsize=512)
def _parsed(path: Path, modified: int) -> dict:
    return json.loads(path.read_text("utf-8"))


def results(root: Path, name: str) -> list[tuple[str, dict]]:
    """(device, content) of `benchmarks/results/<device>/<name>.json`, the device that prose quotes first."""
    found = layout.results(root, name)
    named = [(path.relative_to(root / layout.RESULTS).parts[0], path) for path in found]
    named.sort(key=lambda entry: entry[0] != PROSE_DEVICE)
    return [(device, _parsed(path, path.stat().st_mtime_ns)) for device, path in named]


def first(root: Path, name: str) -> dict | None:
    """What prose quotes of these results."""
    return next((content for _, content in results(root, name)), None)


# ---------------------------------------------------------------- numbers in prose


def measured(key: str, root: Path) -> str | None:
    """The text for a key; `NOT_YET` while the operation has no committed results; None for a key that is wrong."""
    parts = [part.strip() for part in key.split("/")]
    if parts[0] == "ladders":
        return _of_ladder(parts[1:], root)
    if parts[0] == "device":
        return _card(root, "/".join(parts[1:]))
    if parts[0] in EXPERIMENTS and parts[1:2] != ["ladder"]:
        return _experiment(root, parts[0], "/".join(parts[1:]))
    operation, _, variant = parts[0].partition(":")
    if len(parts) != 4 or not (operation in EXPERIMENTS or layout.facts(root, operation).is_file()):
        return None
    if parts[1] == "ladder":
        return _rung(first(root, f"ladder/{operation}"), parts[2], parts[3])
    record = first(root, operation)
    if record is None:
        return NOT_YET
    shape, _, dtype = parts[1].partition("@")
    for case in record["cases"]:
        if case["variant"] == variant and label(case["shape"]) == shape and dtype in ("", case["dtype"]):
            return Pass(case, parts[2]).figure(parts[3]) if parts[2] in case["passes"] else None
    return None


def _card(root: Path, name: str) -> str | None:
    field, form = {"copy": ("copy_tb_s", "{:.2f} TB/s"), "matrix": ("matrix_tflop_s", "{:.0f} TFLOP/s")}.get(
        name, ("", "")
    )
    found = results(root, "*")
    cases = [case for device, record in found if device == found[0][0] for case in record["cases"]]
    values = [case[field] for case in cases if name == "copy" or case["dtype"] == "bfloat16"] if field else []
    return (form.format(statistics.median(values)) if values else NOT_YET) if field else None


def _experiment(root: Path, guide: str, name: str) -> str | None:
    """A value that the machine couldn't measure, for lack of a tool, is None in the file."""
    content = first(root, f"experiments/{guide}")
    if content is None:
        return NOT_YET
    value = content["values"].get(name)
    if value is None:
        return None
    return NOT_YET if value["value"] is None else f"{value['value']:.3g} {value['unit']}".rstrip()


@dataclass(frozen=True)
class Time:
    """A rung in a case: its time in ms, its share of the limit, how many times as fast it is as the one before.

    None: it wasn't measured or was wrong; a gain: it is the first one, or it isn't a rung.
    """

    ms: float | None
    share: float | None
    gain: float | None


def ladder_times(record: dict, case: dict) -> dict[str, Time]:
    """Word -> time in a case of a ladder's record, for its rungs, what was tried, and `pytorch`."""
    ms = {word: entry["ms"] for word, entry in case["providers"].items()}
    before = dict(zip(record["rungs"][1:], record["rungs"]))
    return {
        word: Time(
            ms.get(word),
            case["limit_ms"] / ms[word] if word in ms else None,
            ms[before[word]] / ms[word] if word in ms and before.get(word) in ms else None,
        )
        for word in [*record["rungs"], *record["tried"], "pytorch"]
    }


def _of_ladder(parts: list[str], root: Path) -> str | None:
    name, _, shape = parts[0].partition("@")
    if len(parts) != 3 or not layout.facts(root, f"ladders/{name}").is_file():
        return None
    forms = {"ms": milliseconds, "share": percent, "gain": "{:.2f}x".format}
    if (record := first(root, f"ladders/{name}")) is None:
        return NOT_YET if parts[2] in forms else None
    case = next((each for each in record["cases"] if shape in ("", label(each["shape"]))), None)
    time = ladder_times(record, case).get(parts[1]) if case else None
    if time is None or parts[2] not in forms:
        return None
    value = getattr(time, parts[2])
    return NOT_YET if value is None else forms[parts[2]](value)


def _rung(ladder: dict | None, name: str, field: str) -> str | None:
    if ladder is None:
        return NOT_YET
    value = next((rung.get(field) for rung in ladder["rungs"] if rung["name"] == name), None)
    return value if value is None else milliseconds(value) if field.endswith("_ms") else str(value)


def label(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape))


def milliseconds(value: float) -> str:
    return f"{value:.3g} ms" if value >= 0.1 else f"{value * 1e3:.3g} µs"


def percent(value: float) -> str:
    return f"{100 * value:.0f} %" if value >= 0.095 else f"{100 * value:.1f} %"


def memory(count: int) -> str:
    return f"{count / (1 << 20):,.4g} MiB" if count >= 1 << 20 else f"{count / 1024:.3g} KiB"


def between(values: Iterable[float], form: str) -> str:
    """The range of some values, each in this form."""
    ordered = sorted(values)
    low, high = form.format(ordered[0]), form.format(ordered[-1])
    return low if low == high else f"{low} to {high}"
