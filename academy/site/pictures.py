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
from functools import cache
from pathlib import Path

from markupsafe import Markup

from academy.book import layout, syntax
from academy.book.directives import on_line, pattern
from academy.book.texts import digest, read
from academy.files import cache as store
from academy.files import dependencies

FOLDER = "docs/figures"
KIND = "pictures"
FIGURE = re.compile(pattern("figure"))
CODE = ["academy.site.pictures"]

#: What explorables are drawn with and by; docs/figures/moving.py runs it for their stills.
MODULES = "academy/site/static/explore"
SLIDER = '<input type="range" name="{name}" min="{low:g}" max="{high:g}" step="{step:g}" value="{value:g}"{more}>'
TYPED = '<input type="number" name="{name}" min="{low:g}" max="{high:g}" step="any" value="{value:g}" required>'
#: A range of more values than these is typed, not dragged.
DRAGGED = 1024
#: A slider with named stops lists them all below it, if they aren't more than these.
LISTED = 8
BUTTONS = (("start", "To the start", "|◀"), ("back", "Step back", "◀"), ("play", "", "Play"), ("next", "Step", "▶"))


class NoPicture(ValueError):
    """The key names no picture."""


def first(text: str) -> tuple[str, int]:
    """The key of a kernel file's first picture and its line; "" and 0 if it shows none."""
    directives = ((on_line(line.strip().removeprefix("# ")), number) for number, line in enumerate(text.split("\n"), 1))
    shown = ((each.argument, number) for each, number in directives if each and each.name == "figure")
    return next(shown, ("", 0))


def found(root: Path, key: str) -> dict | None:
    """A picture: the fields of `Picture` in docs/figures/draw.py, panels as SVG. None: it can't be drawn here."""
    scripts = {path.stem: read(path) for path in sorted((root / FOLDER).glob("*.py"))}
    script, _, name = key.partition("/")
    if not re.search(rf"^@picture\ndef {name}\(", scripts.get(script, ""), re.M):
        raise NoPicture(f"[[figure: {key}]]: {FOLDER} has no such picture")
    drawn = store.get(KIND, _key(root, script))
    if drawn is None:  # all that are missing in one process: most of its time goes into starting
        missing = [other for other, text in scripts.items() if "\n@picture\n" in text]
        missing = [other for other in missing if store.get(KIND, _key(root, other)) is None]
        made = _drawn(root, missing)
        for other in missing:
            store.put(KIND, _key(root, other), {k: v for k, v in made.items() if k.startswith(f"{other}/")})
        drawn = made
    return drawn.get(key)


def begin() -> None:
    """A build of the site begins: what pictures depend on may have changed, and doesn't until the next one."""
    _key.cache_clear()


@cache  # pages ask hundreds of times, and hundreds of files are looked at
def _key(root: Path, script: str) -> list:
    """What a script's pictures are made from."""
    files = sorted((root / FOLDER).glob("[!_]*.py"))
    files = [path for path in files if path.stem == script or "\n@picture\n" not in read(path)]
    for path in files:  # grows while it is walked
        files += [other for other in syntax.imported_kernels(read(path), root) if other not in files]
    files += sorted((root / layout.DOCS / "guides/snippets").glob("*.py"))
    files += sorted((root / layout.BENCHMARKS).rglob("*.json"))
    files += sorted((root / MODULES).glob("*.js"))
    files = [path for path in files if path.is_file()]
    used = {module for path in files if path.suffix == ".py" for module in dependencies.of_academy(read(path))}
    named = [[path.relative_to(root).as_posix(), digest(path)] for path in files]
    return [script, named, dependencies.made_by(*CODE, *sorted(used))]


def _drawn(root: Path, scripts: list[str]) -> dict:
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-B", FOLDER, *scripts]
    made = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(f"{FOLDER} cannot be drawn:\n{made.stderr[-2000:]}")
    return json.loads(made.stdout)


def html(root: Path, key: str) -> str:
    """The picture as a `<figure>`."""
    drawn = found(root, key)
    if drawn is None:
        return Markup('<figure class="drawn"><figcaption>{}</figcaption></figure>').format(alternative(root, key))
    panels = Markup('<div class="panels" role="img" aria-label="{}">{}</div>').format(
        drawn["alt"], Markup("".join(drawn["panels"]))
    )
    caption = Markup("<figcaption>{}</figcaption>").format(drawn["caption"])
    single = " single" if len(drawn["panels"]) == 1 else ""
    if not drawn["moves"]:
        return Markup('<figure class="drawn{}">{}{}</figure>').format(single, panels, caption)
    return Markup(
        '<figure class="drawn explore{}" data-moves="{}" data-facts="{}">'
        '<p class="asked"><strong>{}</strong> {}</p>{}'
        '<div class="beside"><form hidden>{}</form><p class="state" role="status" aria-live="polite">{}</p></div>'
        "{}</figure>"
    ).format(
        single,
        drawn["moves"],
        json.dumps(drawn["facts"]),
        drawn["question"],
        drawn["hint"],
        panels,
        Markup("").join(map(_control, drawn["controls"])),
        drawn["state"],
        caption,
    )


def thumbnail(root: Path, key: str) -> Markup:
    """Its first panel, for the eye alone: the words stand where the picture does."""
    drawn = found(root, key)
    panel = Markup(drawn["panels"][0]) if drawn else ""
    return Markup('<span class="drawn thumb" aria-hidden="true">{}</span>').format(panel)


def _control(control: dict) -> Markup:
    label = Markup("<span>{}</span>").format(control["label"])
    if control["ticks"]:
        checked = Markup(" checked") if control["value"] else ""
        return Markup('<label class="tick"><input type="checkbox" name="{}"{}> {}</label>').format(
            control["name"], checked, label
        )
    if control["choices"]:
        chosen = Markup("").join(
            Markup("<option{}>{}</option>").format(Markup(" selected") if each == control["value"] else "", each)
            for each in control["choices"]
        )
        field = Markup('<select name="{}">{}</select>').format(control["name"], chosen)
        return Markup("<label>{} {}</label>").format(label, field)
    stops = control["stops"]
    if not stops and control["high"] - control["low"] > DRAGGED * control["step"]:
        return Markup("<label>{} {}</label>").format(label, Markup(TYPED).format(**control))
    places = dict(low=0, high=len(stops) - 1, step=1, value=stops.index(control["value"])) if stops else {}
    more = Markup(' data-stops="{}"').format(json.dumps(stops)) if stops else ""
    if control["plays"]:
        more += Markup(' data-plays="{}"').format(control["plays"])
    field = Markup(SLIDER).format(**control | places, more=more)
    made = Markup("<label{}>{} {}<output>{}</output>{}</label>").format(
        Markup(' class="listed"') if stops else "", label, field, control["value"], _ends(stops)
    )
    if not control["plays"]:
        return made
    buttons = Markup("").join(
        Markup('<button type="button" data-do="{}"{}>{}</button>').format(
            what, Markup(' aria-label="{}"').format(name) if name else "", sign
        )
        for what, name, sign in BUTTONS
    )
    return Markup('<div class="time">{}{}</div>').format(buttons, made)


def _ends(stops: list) -> Markup:
    """What a slider offers, below it: each of its stops in its place, or of many the two ends."""
    if not stops:
        return Markup("")
    shown = stops if len(stops) <= LISTED else [stops[0], "…", stops[-1]]
    each = Markup("").join(Markup("<span>{}</span>").format(stop) for stop in shown)
    return Markup('<small class="stops" aria-hidden="true">{}</small>').format(each)


def alternative(root: Path, key: str) -> str:
    """What the picture says, in words: for Markdown, notebooks and machines that can't draw it."""
    drawn = found(root, key)
    if drawn is None:
        return f"The picture {key} needs Triton, which is not installed here."
    return f"{drawn['alt']} {drawn['caption']}"
