"""Results of models that were trained beside each other (`benchmarks/capstone.py`): loss curves, speed and memory."""

from __future__ import annotations

from pathlib import Path

from academy.results import plots
from academy.results.figures import NOT_YET, results
from academy.results.pages import figure
from academy.results.tables import Table

#: Column -> the value that stands in it.
COLUMNS = {
    "1000 tokens/s": "tokens",
    "step": "step",
    "no CUDA graph": "loop",
    "peak memory": "memory",
    "last loss": "loss",
    "seed to seed": "loss_spread",
}
#: Steps from one mark of a curve to the next.
EVERY = 10


def pieces(name: str, root: Path) -> list[str]:
    """Markdown and finished HTML of `benchmarks/results/<device>/experiments/<name>.json`."""
    out: list[str] = []
    for device, content in results(root, f"experiments/{name}"):
        values = content["values"]
        contestants = list(dict.fromkeys(key.split("/")[0] for key in values if key.endswith("/step")))
        rows = [[who, *(_text(values.get(f"{who}/{key}")) for key in COLUMNS.values())] for who in contestants]
        out += [
            curves(content, f"{device}-{name}"),
            "",
            Table("Data: speed and memory", ["model", *COLUMNS], rows).html(True),
        ]
        where = [content["device"], content["date"], *(f"{k} {v}" for k, v in content["versions"].items())]
        out += ["", f"Measured on an {', '.join(where)}, with {content['batch']} sequences in a batch.", ""]
    return out or ['!!! note "Not measured yet"', "", f"    No results of `{name}` are committed.", ""]


def curves(content: dict, name: str) -> str:
    """A line for each contestant: the mean of its runs."""
    means = {who: [sum(step) / len(step) for step in zip(*runs)] for who, runs in content["losses"].items()}
    steps = range(0, max(map(len, means.values())), EVERY)
    lines = [
        plots.Series(who, [mean[step] if step < len(mean) else None for step in steps]) for who, mean in means.items()
    ]
    runs = max(len(runs) for runs in content["losses"].values())
    title = f"Loss over the steps, mean of {runs} runs"
    return figure(title, plots.lines(f"{name}-losses", title, list(steps), "step", lines, "loss"))


def _text(value: dict | None) -> str:
    if value is None:
        return "–"
    number, unit = value["value"], value["unit"]
    return NOT_YET if number is None else f"{number:.4g} {unit if unit in ('ms', 'GiB') else ''}".strip()
