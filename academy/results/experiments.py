"""Results of experiments as tables of a page, `[[experiment: NAME]]`, out of `benchmarks/results/<device>/experiments`.

Nothing here needs torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from academy.results import figures, record
from academy.results.tables import Table


def markdown(name: str, root: Path) -> list[str]:
    """Lines of Markdown and finished HTML, for each device; a sentence where nothing is committed. `name`: a key of
    `TABLES`."""
    out: list[str] = []
    for _, content in figures.results(root, f"experiments/{name}"):
        versions = ", ".join(f"{what} {version}" for what, version in content["versions"].items())
        out += ["", *TABLES[name](content), "", f"Measured on an {content['device']}, {content['date']}, {versions}."]
    return [*out, ""] if out else ["", f"Not measured yet: `python benchmarks/{name}.py` does it, on a GPU.", ""]


# ---------------------------------------------------------------- sanitizers
#: How a verdict is called on a page.
VERDICTS = {"right": "nothing found", "wrong": "found", "remark": "a remark", "skipped": "no verdict"}


def sanitizers(content: dict) -> list[str]:
    """How many functions passed under each sanitizer; folded away, function by function."""
    rows = content["rows"]
    names = list(dict.fromkeys(row["sanitizer"] for row in rows))
    count = Counter((row["sanitizer"], row["verdict"]) for row in rows)
    seconds = {name: sum(row["seconds"] for row in rows if row["sanitizer"] == name) for name in names}
    short = [[name, *(str(count[name, word] or "") for word in VERDICTS), f"{seconds[name]:.0f}"] for name in names]
    out = Table("", ["sanitizer", *VERDICTS.values(), "seconds"], short).markdown()
    known = {(row["function"], row["sanitizer"]): row for row in rows}

    def cell(function: str, name: str) -> str:
        row = known.get((function, name))
        return f"{VERDICTS[row['verdict']].replace('nothing found', '✓')} {row['seconds']:.0f} s" if row else ""

    functions = sorted({row["function"] for row in rows})
    long = [[f"`{function}`", *(cell(function, name) for name in names)] for function in functions]
    out += ["", '??? note "Each function"', ""]
    out += [f"    {line}" for line in Table("", ["function", *names], long).markdown()]
    told = [row for row in rows if row.get("message")]
    out += ["", "What was said of the others:", ""] if told else []
    return [*out, *(f"- `{row['function']}`, {row['sanitizer']}: {_plain(row['message'])}" for row in told)]


def _plain(message: str) -> str:
    """What stands in angle brackets or stars stays what it is."""
    return message.replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|")


# ---------------------------------------------------------------- batch invariance
def batch_invariance(content: dict) -> list[str]:
    """A line for each number of rows: both times, their ratio, and how much of a row changes."""
    values = {name: each["value"] for name, each in content["values"].items()}
    rows = []
    for key in values:
        if key.endswith("/ratio"):
            what, count, _ = key.split("/")
            usual, invariant = (values[f"{what}/{count}/{which}_ms"] for which in ("usual", "invariant"))
            changed = values[f"{what}/{count}/usual_changed"]
            times = ["–" if ms is None else figures.milliseconds(ms) for ms in (usual, invariant)]
            ratio = "–" if values[key] is None else f"{values[key]:.2f}"
            rows.append([f"{what}, {count}", *times, ratio, f"{changed:.0f}"])
    head = ["rows or sequences", "as it is", "same bits in any batch", "times as long", "elements of a row that change"]
    return Table("", head, rows).markdown()


# ---------------------------------------------------------------- the capstone writes
def capstone_generate(content: dict) -> list[str]:
    """A line for each kind of cache and each number of texts."""
    values = {name: each["value"] for name, each in content["values"].items()}
    keys = ("prefill", "decode", "bytes")
    runs = dict.fromkeys(name.rpartition("/")[0] for name in values)
    rows = [[*run.split("/"), *(f"{values[f'{run}/{key}']:,.0f}" for key in keys)] for run in runs]
    for row, run in zip(rows, runs):
        row.append(f"{values[f'{run}/same']:.1%}" if f"{run}/same" in values else "–")
    head = [
        "what is kept",
        "texts",
        "prefill, tokens/s",
        "decode, tokens/s",
        "bytes a token, all layers",
        "same tokens",
    ]
    return Table("", head, rows).markdown()


# ---------------------------------------------------------------- fewer bytes per token
def bytes_per_token(content: dict) -> list[str]:
    """A line for each cache, a column for each number of texts and tokens; shapes that had no room are left out."""
    values = {name: each["value"] for name, each in content["values"].items()}
    runs = [name.removesuffix("/ms").split("/") for name in values if name.endswith("/ms")]
    ways, shapes = (list(dict.fromkeys(found)) for found in zip(*((way, (*shape,)) for way, *shape in runs)))

    def cell(run: str) -> str:
        if f"{run}/ms" not in values:
            return "–"
        return f"{figures.milliseconds(values[f'{run}/ms'])}, {figures.percent(values[f'{run}/share'])}"

    rows = [[way, *(cell("/".join((way, *shape))) for shape in shapes)] for way in ways]
    head = [f"{texts} text{'s' * (texts != '1')} of {int(tokens):,}" for texts, tokens in shapes]
    return Table("", ["what is read", *head], rows).markdown()


TABLES: dict[str, Callable[[dict], list[str]]] = {
    "sanitizers": sanitizers, "batch_invariance": batch_invariance, "capstone_generate": capstone_generate,
    "bytes_per_token": bytes_per_token, "record": record.markdown,
}  # fmt: skip
