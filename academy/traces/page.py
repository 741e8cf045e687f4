"""The viewer on a kernel's page: its data, its static start state, and a self-contained HTML file.

The HTML of the Run side of a page can be read without JavaScript. The viewer fetches its data when the reader first
switches to Run: a script rather than JSON, so that it also loads from a folder on disk.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import logging
from html import escape
from pathlib import Path

import numpy as np

from academy.book import layout, syntax
from academy.traces import quotes, store
from academy.traces.recording import Pointer, Program, Recording, in_digits, places, program_name, without_end

log = logging.getLogger("mkdocs.academy.site")

STATIC = Path(__file__).parent / "static"
#: In the order in which a page loads them; site/theme/main.html has the same list.
SCRIPTS = ("recording", "memory", "listing", "controls", "viewer", "start")
#: What overlaps in a Gluon kernel: loaded by a recording that has such lanes.
LANES = "lanes"
#: Largest size of one kernel's data, compressed.
MAX_BYTES = 40 * 1024
_MAX_ROWS = 60
_MAX_CELLS = 512
#: Shorter lists of numbers are kept as they are.
_MIN_BOX = 32


def run(path: str) -> list[str]:
    """The recorded run of a kernel file: the HTML for its page, the viewer's data and their place under assets/traces.

    Empty if there is none: the file has no EXAMPLE, the run fails, or triton is not installed here.
    """
    recording = _recording(path)
    if recording is None or not recording.launches:
        return []
    name = layout.dotted(path.removeprefix(f"{layout.KERNELS}/"))
    data = json.dumps(viewer_data(store.ROOT / path, recording), separators=(",", ":"))
    panel = f'<div class="t-view" data-run="{escape(name)}">{_static(store.ROOT / path, recording)}</div>'
    return [panel, f"academyRun({json.dumps(name)},{data})", f"data/{name}.js"]


def standalone(path: Path, recording: Recording, before: str = "") -> str:
    """One HTML file with the code and the viewer, for any kernel file; no request leaves it. before: HTML above it."""
    run = viewer_data(path, recording)
    lanes = [LANES] if any("orders" in launch for launch in run["launches"]) else []
    style = "".join((STATIC / f"{name}.css").read_text() for name in ["viewer", *lanes])
    code = "".join((STATIC / f"{name}.js").read_text() for name in [*SCRIPTS, *lanes])
    shown = json.dumps({"data": run, "source": path.read_text()}, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(path.name)}, recorded</title>'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{style}</style>'
        f'<body class="t-alone"><main><h1>{escape(path.name)}</h1>{before}'
        f'<div id="run"><noscript>{_static(path, recording)}</noscript></div></main>'
        f"<script>{code}</script><script>{{const{{data,source}}={shown};"
        f'academyViewer.mount(document.querySelector("#run"),data,{{source,address:true}})}}</script></body></html>'
    )


def _recording(path: str) -> Recording | None:
    """From the cache, or made together with those of all other kernels. None, and logged, where the run fails."""
    file = store.ROOT / path
    if importlib.util.find_spec("triton") is None or not store.has_example(file):
        return None
    if not store.is_kept(file):
        store.load(store.kernel_files())
    recording = store.load([file])[file]
    error = recording.data["error"]
    if error:
        log.warning("%s:%d: %s", error["file"], recording.line(error["file"], error["line"]), error["message"])
        return None
    return recording


def number(key: str) -> tuple[str, str, int, str]:
    """A number of a recorded run for any text: its digits, the kernel file, the line, and the address of that moment.

    key: `classics/layernorm: layernorm_forward_kernel, pid=0: mean[0]`, the file under annotated_examples, then the
    left side of a claim. Raises ValueError with a sentence if there is no such number.
    """
    file, _, asked = key.partition(":")
    path = store.shorten(layout.module_path(store.ROOT, layout.dotted(file.strip())))
    recording = _recording(path) if (store.ROOT / path).is_file() else None
    if recording is None:
        raise ValueError(f"{path} has no recorded run")
    text = (store.ROOT / path).read_text()
    try:
        claim = quotes.question(text, asked.strip())
        value = quotes.computed(claim, recording, text)
        launch, pid, position = quotes.locate(claim, recording, text)
    except (LookupError, SyntaxError) as error:
        raise ValueError(str(error.args[0])) from error
    step = (recording.steps(recording.launches[launch], pid) or [])[position]
    numbers = ",".join(map(str, without_end(pid, 0)))
    loops = "".join(f"&{name}={n}" for name, n in claim.loops.items())
    address = f"pid={numbers}&line={step.line}{loops}" + (f"&launch={launch}" if launch else "")
    return brief(value, 400), path, step.line, address


# ---- data -----------------------------------------------------------------------------------------------------------


def viewer_data(path: Path, recording: Recording) -> dict:
    """What the viewer needs of a recording: lines as they are now, floats to the four digits that it shows, the claims
    with their places.

    Places in another file than the page's have line 0 and carry their file and line as text.
    """
    shown, text = store.shorten(path), path.read_text()
    places = [
        [function, line, depth, loops] if file == shown else [function, 0, depth, [], f"{file}:{line}"]
        for function, file, line, depth, loops in recording.places
    ]
    names = ("kernel", "direction", "grid", "traffic", "tensors", "programs", "repairs")
    launches = [
        {name: launch[name] for name in names}
        | (
            {"orders": [_order(order, launch["file"], recording) for order in launch["orders"]]}
            if "orders" in launch
            else {}
        )
        | {"line": recording.line(launch["file"], launch["line"]) if launch["file"] == shown else 0}
        for launch in recording.launches
    ]
    return {
        "launches": launches,
        "main": _main(path, recording),
        "places": places,
        "pool": [_short(entry) for entry in recording.data["pool"]],
        "loops": {str(node.lineno): ast.unparse(node.target) for node in syntax.loops(text)},
        "claims": _claims(text, shown, recording),
    }


def _order(order: dict, file: str, recording: Recording) -> dict:
    """An order of a Gluon kernel's steps, with lines as they are now."""
    spans = [span | {"line": recording.line(file, span["line"])} if "line" in span else span for span in order["spans"]]
    told = [[lane, recording.line(file, line) if line else line, *words] for lane, line, *words in order["told"]]
    return order | {"spans": spans, "told": told}


def _main(path: Path, recording: Recording) -> int:
    """The launch that a reader sees first: of the kernel named after the file, else of one that stands in it."""
    kernels, text = [launch["kernel"] for launch in recording.launches], path.read_text()
    named = [i for i, name in enumerate(kernels) if name.startswith(path.stem)]
    here = [i for i, name in enumerate(kernels) if f"def {name}(" in text]
    return next(iter(named + here), 0)


def _short(entry: dict) -> dict:
    """Floats to four digits; numbers of the elements of a box as that box."""
    if "d" in entry and entry["t"] == "i8" and len(entry["d"]) >= _MIN_BOX:
        return _box(entry) or entry
    if not entry["t"].startswith("f") or "d" not in entry:
        return entry
    return {**entry, "d": [d if isinstance(d, str) or d == int(d) else float(f"{d:.4g}") for d in entry["d"]]}


def _box(entry: dict) -> dict | None:
    """`x: [first, strides, sizes]` for `d`, if that counts evenly along each axis up to a size, and is -1 beyond it."""
    array = np.array(entry["d"], np.int64).reshape(entry["s"])
    if array.flat[0] < 0 or array.min() < -1:
        return None
    lines = [np.moveaxis(array, axis, -1).reshape(-1, size)[0] for axis, size in enumerate(array.shape)]
    sizes = [int((line >= 0).sum()) for line in lines]
    strides = [int(line[1] - line[0]) if size > 1 else 0 for line, size in zip(lines, sizes)]
    index = np.indices(array.shape, np.int64)  # a browser counts with 32 bits
    inside = np.logical_and.reduce([axis < size for axis, size in zip(index, sizes)])
    made = np.where(inside, array.flat[0] + sum(axis * stride for axis, stride in zip(index, strides)), -1)
    if (made != array).any():
        return None
    return {name: value for name, value in entry.items() if name != "d"} | {"x": [entry["d"][0], strides, sizes]}


def _claims(text: str, shown: str, recording: Recording) -> list[list]:
    """[text of the span, launch, program, step] for every claim that can be found in the recording."""
    found = []
    for claim in quotes.parse(text, shown)[0]:
        try:
            launch, pid, step = quotes.locate(claim, recording, text)
        except LookupError:
            continue
        found.append([claim.span, launch, list(pid), step])
    return found


# ---- the static start state -----------------------------------------------------------------------------------------


def _static(path: Path, recording: Recording) -> str:
    """The main launch in words and tables: its tensors, and program 0 (or the one that prose follows) line by line."""
    launch = recording.launches[_main(path, recording)]
    pid = _followed(path, recording, launch)
    steps = recording.steps(launch, pid) or []
    code = path.read_text().split("\n")
    shown = store.shorten(path)
    rows, seen = [], 0
    for step in steps:
        if step.file != shown or not (step.values or step.accesses):
            continue
        seen += 1
        if seen > _MAX_ROWS:
            continue
        values = "".join(
            f"<li><code>{escape(name)}</code> {escape(brief(recording.value(number)))}</li>"
            for name, number in step.values.items()
        )
        values += "".join(f"<li>{escape(touched(recording, launch, access))}</li>" for access in step.accesses)
        where = "".join(f", iteration {iteration}" for _, iteration in step.loops[-1:])
        line = code[step.line - 1].strip()
        rows.append(
            f'<tr><th scope="row"><a href="#L{step.line}">{step.line}</a>{where}</th>'
            f"<td><code>{escape(line)}</code></td><td><ul>{values}</ul></td></tr>"
        )
    more = f"<p>… and {seen - _MAX_ROWS} more steps.</p>" if seen > _MAX_ROWS else ""
    grid = " × ".join(map(str, without_end(launch["grid"], 1)))
    return (
        f'<div class="t-static"><p><strong>A recorded run.</strong> <code>{escape(launch["kernel"])}</code> on a small '
        f"example: {grid} programs. This is program {program_name(pid)}, line by line.</p>"
        f'<div class="t-tensors">{"".join(_tensor(recording, tensor) for tensor in launch["tensors"])}</div>'
        f'<table class="t-steps"><thead><tr><th scope="col">Line</th><th scope="col">Code</th>'
        f'<th scope="col">What it gives</th></tr></thead><tbody>{"".join(rows)}</tbody></table>{more}</div>'
    )


def _followed(path: Path, recording: Recording, launch: dict) -> Program:
    """The program that the comments of this kernel speak of first, else the first one."""
    claims, _ = quotes.parse(path.read_text(), store.shorten(path))
    pids = {tuple(pid) for pid, _ in launch["programs"]}
    return next((c.pid for c in claims if c.function == launch["kernel"] and c.pid in pids), min(pids))


def _tensor(recording: Recording, tensor: dict) -> str:
    """One tensor as a table, as it was before the launch."""
    value = recording.value(tensor["before"])
    size = "×".join(str(n) for n in tensor["shape"]) or "scalar"
    caption = f"<caption><code>{escape(tensor['name'])}</code> {tensor['dtype']}, {size}</caption>"
    if value is None or np.size(value) > _MAX_CELLS or not np.size(value):
        return f'<table class="t-grid">{caption}</table>'
    if tensor["fresh"]:
        return f'<table class="t-grid">{caption}<tbody><tr><td>allocated, nothing in it yet</td></tr></tbody></table>'
    rows = np.reshape(value, (-1, np.shape(value)[-1] if np.ndim(value) else 1))
    body = "".join("<tr>" + "".join(f"<td>{in_digits(item)}</td>" for item in row) + "</tr>" for row in rows)
    return f'<table class="t-grid">{caption}<tbody>{body}</tbody></table>'


def touched(recording: Recording, launch: dict, access: list) -> str:
    """`reads 5 of 8 in x_ptr[1, 0:5]`."""
    operation, tensor, elements, _, undefined = access
    verb = {"load": "reads", "store": "writes"}.get(operation, operation)
    where = launch["tensors"][tensor]
    if recording.value(elements) is None:
        return f"{verb} a block of {'×'.join(map(str, recording.shape(elements)))} in {where['name']}"
    lanes = np.atleast_1d(recording.value(elements)).reshape(-1)
    active = int((lanes >= 0).sum())
    count = str(active) if active == lanes.size else f"{active} of {lanes.size}"
    text = f"{verb} {count} in {where['name']}{places(lanes, where['shape'])}"
    return text + (", the other lanes are undefined" if undefined else "")


def brief(value, width: int = 58) -> str:
    """A value in one line."""
    if isinstance(value, Pointer):
        many = np.size(value.offsets) > 1 or np.any(value.offsets)
        return f"{value.base} + {brief(value.offsets, width)}" if many else value.base
    if value is None:
        return "…"
    if isinstance(value, tuple):
        return "(" + ", ".join(brief(item, width) for item in value) + ")"
    text = in_digits(value)
    whole = len(text) <= width or not np.ndim(value)
    return text if whole else f"{'×'.join(map(str, np.shape(value)))} {text[: width - 8]}…"
