"""Results of models that were trained beside each other (`benchmarks/capstone.py`): loss curves, speed and memory."""

from __future__ import annotations

from pathlib import Path

from academy.results import plots
from academy.results.figures import NOT_YET, results
from academy.results.pages import figure
from academy.results.tables import Table

#: Column -> the value that stands in it. A column of which nothing was measured is left out.
COLUMNS = {
    "1000 tokens/s": "tokens",
    "step": "step",
    "no CUDA graph": "loop",
    "optimizer": "optimizer",
    "peak memory": "memory",
    "last loss": "loss",
    "seed to seed": "loss_spread",
    "from PyTorch": "apart",
}
#: Steps from one mark of a curve to the next.
EVERY = 10


def pieces(name: str, root: Path) -> list[str]:
    """Markdown and finished HTML of `benchmarks/results/<device>/experiments/<name>.json`."""
    out: list[str] = []
    for device, content in results(root, f"experiments/{name}"):
        values = content["values"]
        contestants = list(dict.fromkeys(key.rpartition("/")[0] for key in values if key.endswith(("/step", "/loss"))))
        columns = {title: key for title, key in COLUMNS.items() if any(f"{who}/{key}" in values for who in contestants)}
        rows = [[who, *(_text(values.get(f"{who}/{key}")) for key in columns.values())] for who in contestants]
        for part in dict.fromkeys(map(_part, content["losses"])):
            out += [curves(content, part, f"{device}-{name}"), ""]
        out += [Table(f"Data: {', '.join(columns)}", ["model", *columns], rows).html(True)]
        where = [content["device"], content["date"], *(f"{k} {v}" for k, v in content["versions"].items())]
        on = "on an" if content["device"].startswith("NVIDIA") else "in"
        out += ["", f"Measured {on} {', '.join(where)}, with {content['batch']} sequences in a batch.", ""]
    return out or ['!!! note "Not measured yet"', "", f"    No results of `{name}` are committed.", ""]


#: What stands before the first of these in the name of a run says which chart it belongs to: `kda: muon`.
BETWEEN = ": "


def _part(who: str) -> str:
    return who.partition(BETWEEN)[0] if BETWEEN in who else ""


def curves(content: dict, part: str, name: str) -> str:
    """A line for each contestant of a part: the mean of its runs."""
    every = {who: runs for who, runs in content["losses"].items() if _part(who) == part}
    means = {who: [sum(step) / len(step) for step in zip(*runs)] for who, runs in every.items()}
    steps = range(0, max(map(len, means.values())), EVERY)
    lines = [
        plots.Series(who.removeprefix(part + BETWEEN), [mean[step] if step < len(mean) else None for step in steps])
        for who, mean in means.items()
    ]
    runs = max(len(runs) for runs in every.values())
    model = {"": "", "kda": "KDA: "}.get(part, part.capitalize() + BETWEEN)
    title = f"{model}{'loss' if part else 'Loss'} over the steps, {f'mean of {runs} runs' if runs > 1 else 'one run'}"
    return figure(title, plots.lines(f"{name}-losses{part and '-' + part}", title, list(steps), "step", lines, "loss"))


def _text(value: dict | None) -> str:
    if value is None:
        return "–"
    number, unit = value["value"], value["unit"]
    return NOT_YET if number is None else f"{number:.4g} {unit if unit in ('ms', 'GiB') else ''}".strip()
