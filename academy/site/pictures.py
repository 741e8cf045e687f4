"""The pictures `[[figure: script/name]]`, drawn by docs/figures/<script>.py in a process of its own, and kept.

A picture is a function there; `docs/figures/draw.py` has what it draws with, and says what it gives. Nothing is drawn
where a script needs Triton and that is not installed: its description stands there instead.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from markupsafe import Markup

from academy import syntax
from academy.cache import kept, made_by
from academy.directives import pattern
from academy.site.texts import read

FOLDER = "docs/figures"
FIGURE = re.compile(pattern("figure"))
CODE = ["site/pictures.py", "bench", "device.py", "interpreter.py", "package:triton", "package:torch", "package:numpy"]

RANGE = '<input type="range" name="{name}" min="{low:g}" max="{high:g}" step="{step:g}" value="{value:g}">'
NUMBER = '<input type="number" name="{name}" min="{low:g}" max="{high:g}" step="any" value="{value:g}">'
#: A range of more values than these is typed, not dragged.
DRAGGED = 1000


class NoPicture(ValueError):
    """The key names no picture."""


def found(root: Path, key: str) -> dict | None:
    """A picture: `caption`, `alt`, `panels` as SVG, `moves`, `controls`, `facts`. None: it can't be drawn here."""
    script, _, _ = key.partition("/")
    folder = root / FOLDER
    file = folder / f"{script}.py"
    names = re.findall(r"^@picture\ndef (\w+)", read(file), re.M) if file.is_file() else []
    if key not in [f"{script}/{name}" for name in names]:
        raise NoPicture(f"[[figure: {key}]]: {FOLDER} has no such picture")
    files = [*sorted(folder.glob("*.py")), *syntax.imported_kernels(read(file), root)]
    for other in files:  # grows while it is walked
        files += [more for more in syntax.imported_kernels(read(other), root) if more not in files]
    files += [*sorted((root / "docs/guides/snippets").glob("*.py")), *sorted((root / "benchmarks").rglob("*.json"))]
    texts = [(path.relative_to(root).as_posix(), read(path)) for path in files if path.is_file()]
    drawn = kept("pictures", [script, texts, made_by(*CODE)], lambda: _drawn(root, script))
    return drawn.get(key)


def _drawn(root: Path, script: str) -> dict:
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-B", FOLDER, script]
    made = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"{FOLDER}/{script}.py cannot be drawn:\n{made.stderr[-2000:]}")
    return json.loads(made.stdout)


def html(root: Path, key: str) -> str:
    """The picture as a `<figure>`."""
    drawn = found(root, key)
    if drawn is None:
        return Markup('<figure class="drawn"><figcaption>{}</figcaption></figure>').format(alternative(root, key))
    panels = Markup('<div class="panels" role="img" aria-label="{}">{}</div>').format(
        drawn["alt"], Markup("".join(drawn["panels"]))
    )
    data = Markup(' class="drawn single"' if len(drawn["panels"]) == 1 else ' class="drawn"')
    if drawn["moves"]:
        data += Markup(' data-moves="{}" data-facts="{}"').format(drawn["moves"], json.dumps(drawn["facts"]))
    controls = Markup("").join(map(_control, drawn["controls"]))
    form = Markup('<form class="moves" hidden>{}</form>').format(controls) if controls else ""
    caption = Markup("<figcaption>{}</figcaption>").format(drawn["caption"])
    return Markup('<figure{}>{}{}{}</figure>').format(data, form, panels, caption)


def _control(control: dict) -> Markup:
    if control["choices"]:
        chosen = Markup("").join(
            Markup("<option{}>{}</option>").format(Markup(" selected") if each == control["value"] else "", each)
            for each in control["choices"]
        )
        field = Markup('<select name="{}">{}</select>').format(control["name"], chosen)
    else:
        is_dragged = control["high"] - control["low"] <= DRAGGED
        field = Markup(RANGE if is_dragged else NUMBER).format(**control)
        field += Markup('<output>{}</output>').format(control["value"]) if is_dragged else ""
    return Markup("<label><span>{}</span> {}</label>").format(control["label"], field)


def alternative(root: Path, key: str) -> str:
    """What the picture says, in words: for Markdown, notebooks and machines that can't draw it."""
    drawn = found(root, key)
    return f"{drawn['alt']} {drawn['caption']}" if drawn else f"The picture {key} needs Triton, which is not installed here."
