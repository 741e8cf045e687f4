"""The page "Beside its rivals": one run of `benchmarks/record.py` as a picture and tables.

A row of the record has the form of a measured case (docs/benchmarks/index.md, "What is in the files"), with its
`operation` beside it; a backward pass also has `both_wall_ms`, the time of a plain call forward and backward.
Nothing here needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from academy.book.layout import ROOT
from academy.results import plots, store
from academy.results.figures import OURS, Pass, label, milliseconds, passes, percent
from academy.results.pages import LEVEL, NOTES, PASS_NAMES, above_the_limit, figure
from academy.results.tables import Html, Table


@dataclass(frozen=True)
class Line:
    """A pass of a row beside its best rival."""

    measured: Pass

    @property
    def name(self) -> str:
        case = self.measured.case
        return f"{case['operation']} {case['variant']}".replace(" backward", "").strip()

    @property
    def where(self) -> str:
        return label(self.measured.case["shape"])

    @property
    def which(self) -> str:
        return PASS_NAMES[self.measured.which].lower()

    @property
    def link(self) -> str:
        return f"[{self.name}]({self.measured.case['operation']}.md), {self.which}"

    @property
    def order(self) -> tuple[bool, float]:
        """Where we are furthest behind comes first, what has no rival last."""
        return (not self.measured.best_peer, self.measured.against_best or 0)

    def walls(self) -> dict[str, float]:
        """Provider -> time of a plain call; with a backward pass that of both."""
        field = "both_wall_ms" if self.measured.which == "backward" else "wall_ms"
        return {name: entry[field] for name, entry in self.measured.providers.items() if field in entry}

    def waited(self) -> str:
        """How many times as long the best rival is waited for."""
        walls = self.walls()
        rivals = [ms for name, ms in walls.items() if name not in OURS]
        return ratio(min(rivals) / walls[self.measured.ours]) if rivals and self.measured.ours in walls else "–"

    def cells(self) -> list[str]:
        each, peer = self.measured, self.measured.best_peer
        best = f"{peer} {unbroken(milliseconds(each.ms(peer)))}" if peer else "–"
        ours = unbroken(milliseconds(each.ms()))
        against = ratio(each.against_best) if each.against_best else "–"
        return [self.link, against, ours, best, self.waited(), unbroken(percent(each.share())), self.where]


def ratio(value: float) -> str:
    """Marked where a rival is ahead."""
    return f'<span class="bench-behind">{value:.2f}</span>' if value < LEVEL else f"{value:.2f}"


def unbroken(text: str) -> str:
    """A number and its unit in one line."""
    return text.replace(" ", "\u00a0")


def markdown(content: dict) -> list[str]:
    """The picture, the table, every rival's time, the rivals' versions, and what didn't run."""
    lines = sorted((Line(each) for each in passes(content["rows"])), key=lambda line: line.order)
    known = [line for line in lines if line.measured.best_peer]
    return [
        summary(known),
        "",
        picture(known),
        "",
        *above_the_limit([line.measured for line in known]),
        *Table("", HEAD, [line.cells() for line in lines]).markdown(),
        "",
        *every_time(lines),
        "",
        *conditions(content),
        "",
        "### Rivals",
        "",
        *Table("", RIVALS, [who(name, found, lines) for name, found in content["rivals"].items()]).markdown(),
        "",
        *notes(content),
    ]


HEAD = ["operation, pass", "its time / ours", "ours", "best rival", "as one waits", "of the limit", "shape"]
RIVALS = ["rival", "version", "passes in which it was measured"]


def summary(lines: list[Line]) -> str:
    behind = [line for line in lines if (line.measured.against_best or 1) < LEVEL]
    text = f"In {len(behind)} of {len(lines)} passes the best rival's kernels are faster than ours by more than 1 %."
    if not behind:
        return text
    first = [f"{line.name}, {line.which} ({percent(line.measured.against_best or 0)} of our time)" for line in behind]
    return f"{text} It is furthest ahead at {'; '.join(first[:3])}."


def picture(lines: list[Line]) -> Html:
    """Share of the limit, ours and the best rival's, in the order of the table."""
    shares: dict[str, list[float | None]] = {
        "ours": [100 * line.measured.share() for line in lines],
        "best rival": [100 * line.measured.share(line.measured.best_peer) for line in lines],
    }
    told = {
        "ours": [milliseconds(line.measured.ms()) for line in lines],
        "best rival": [f"{line.measured.best_peer}, {milliseconds(line.measured.ms(line.measured.best_peer))}"
                       for line in lines],
    }  # fmt: skip
    series = [plots.Series(name, values, told[name]) for name, values in shares.items()]
    names = [f"{line.name}, {line.which}" for line in lines]
    rows = [name + f", {line.where}" * (names.count(name) > 1) for name, line in zip(names, lines)]
    title = "Share of the card's limit; where a rival is furthest ahead of us comes first"
    limit = plots.Limit(100, "limit, 100 %")
    return figure(title, plots.dots("record", title, rows, series, "% of the limit", limit))


def every_time(lines: list[Line]) -> list[str]:
    """Time of the kernels, and in brackets of a plain call, of every provider."""
    rows = []
    for line in lines:
        walls = line.walls()
        times = [
            f"{name} {milliseconds(line.measured.ms(name))}"
            + (f" ({milliseconds(walls[name])})" if name in walls else "")
            for name in sorted(line.measured.providers, key=line.measured.ms)
        ]
        limit = milliseconds(line.measured.entry["limit_ms"])
        rows.append([line.name, line.where, line.which, limit, "; ".join(times)])
    title = "Data: every time, the fastest first; in brackets that of a plain call, with a backward pass of both"
    return [Table(title, ["operation", "shape", "pass", "limit", "kernels (a plain call)"], rows).html()]


FLA = "flash-linear-attention"
RATES = {"copy_tb_s": "{:.2f}", "matrix_tflop_s": "{:.0f}"}


def conditions(content: dict) -> list[str]:
    """What the card gave that day, and what is to be known of single rows."""
    runs = content["runs"]
    copied, multiplied = (", then ".join(form.format(each[key]) for each in runs) for key, form in RATES.items())
    said = [
        f"The card copied {copied} TB/s, and multiplied bf16 matrices at {multiplied} TFLOP/s; the calls were made by "
        f"an {runs[0]['processor']}."
    ]
    if len(runs) > 1:
        rows = " and ".join(str(each["rows"]) for each in runs)
        said.append(f"The run stopped and was continued on such a card on the same day, with {rows} rows.")
    rates = [f"`{row['operation']}` as {row['rate']}" for row in content["rows"] if "rate" in row]
    if rates:
        said.append(
            f"The limit of {', '.join(dict.fromkeys(rates))} is that dtype's rate, where the operation's page has the "
            "rate of what goes in or comes out."
        )
    smaller = [f"`{row['operation']}` at {label(row['checked'])}" for row in content["rows"] if "checked" in row]
    if smaller:
        listed = ", ".join(dict.fromkeys(smaller))
        said.append(f"Results were compared with float64 at the shape that is measured, but {listed}.")
    if old := [row["operation"] for row in content["rows"] if is_stale(row)]:
        said.append(f"The kernels have changed since: {', '.join(f'`{name}`' for name in dict.fromkeys(old))}.")
    if content["left"]:
        said.append(f"The run had no time for {', '.join(content['left'])}.")
    return [" ".join(said)]


def is_stale(row: dict) -> bool:
    return bool(store.stale({"operation": row["operation"], "cases": [row]}, ROOT))


def who(name: str, found: dict, lines: list[Line]) -> list[str]:
    count = sum(any(rival_of(each) == name for each in line.measured.providers if each not in OURS) for line in lines)
    why = found.get("why", "")
    return [name, found["version"] or "–", str(count) if count else f"none: {_plain(why)}" if why else "none yet"]


#: How the names of providers begin, of whose package they are; all others are PyTorch's.
PROVIDERS = {
    "torch.compile": "torch.compile, flex_attention", "flex": "torch.compile, flex_attention", "fla": FLA,
    "flash-linear": FLA, "flash-2": "PyTorch",
}  # fmt: skip


def rival_of(provider: str) -> str:
    """Of whose package a provider is, by the longest beginning of its name."""
    known = PROVIDERS | {name: name for name in ("cuBLAS", "cuDNN", "liger-kernel", "transformers", "quack", "gemlite")}
    known |= {name: name for name in ("FlashAttention-3", "FlashAttention-4")}
    found = [beginning for beginning in known if provider.startswith(beginning)]
    return known[max(found, key=len)] if found else "PyTorch"


def notes(content: dict) -> list[str]:
    """What failed or was outside the error rule, row by row."""
    said: dict[str, list[str]] = {}
    for row in content["rows"]:
        for provider, note in row["notes"].items():
            for kind in ("failed", "inaccurate"):
                if kind in note:
                    kind_said = "other" if kind == "inaccurate" and "integers differ" in note[kind] else kind
                    detail = note[kind].partition(" Set TORCHDYNAMO_VERBOSE=")[0]
                    text = f"{provider} {NOTES[kind_said].format(f'`{detail}`')}"
                    place = f"{row['operation']} {row['variant']}".strip()
                    said.setdefault(text, []).append(place)
    lines = [f"- {', '.join(dict.fromkeys(places))}: {text}" for text, places in said.items()]
    return ["### Notes", "", *lines, ""] if lines else []


def _plain(text: str) -> str:
    return text.replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|")
