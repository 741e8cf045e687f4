"""Explorables: pictures that a reader moves. One JavaScript module draws both what moves and the still that a page is built with.

A module is a file of academy/site/static/explore, which calls `explorables.define(name, tools => parts)`. It draws with the
tools of drawing.js beside it, and touches no page, so it runs in QuickJS as well. Its parts, where `values` are the
fields' values by name and `facts` what the picture's function here gave it:

- `model(values, facts)`: what is counted, as plain data. Tests compare it with the kernels (`run` is for them).
- `draw(model, values, facts)`: a list of panels. They should keep their heights, or the page moves.
- `words(model, values, facts)`: what is seen, in a sentence or two with its numbers. It stands below the picture, is read out when
  something changes, and replaces the picture where there is none.
- `highest(values, facts)`, if the end of a slider depends on the others: {field: highest value now}.
- `names`, if a value is shown otherwise than as a number: {field: (value, values) => text}.
- `touch(part, point, values, facts, model)`, if the drawing itself can be pressed or dragged: the fields that change,
  as {name: value}, or nothing. `part` is the name that the pressed shape was drawn with; `point` has x, y in the panel's units, and
  `start`: true for the press, false while dragging. Each such field has its own control, for the keyboard.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from draw import Control, Picture

FOLDER = Path(__file__).resolve().parents[2] / "academy/site/static/explore"


def moving(
    name: str,
    question: str,
    hint: str,
    caption: str,
    controls: tuple[Control, ...],
    facts: dict | None = None,
    more: str = "",
) -> Picture:
    """The picture of module `name` as it stands at first.

    Args:
        question: what the picture answers; it stands above.
        hint: one sentence that says what to try.
        caption: how to read it, and the model that it is computed from.
        more: words for the description that the state alone doesn't have.
    """
    facts = facts or {}
    found = run(name, {control.name: control.value for control in controls}, facts)
    alt = f"{question} {found['words']} {more}".strip()
    return Picture(caption, alt, found["panels"], name, controls, facts, question, hint, found["words"])


def run(name: str, values: dict, facts: dict | None = None) -> dict:
    """`model`, `panels` as SVG, and `words` of a module for some values."""
    # JSON both ways: long strings do not come back whole from QuickJS otherwise.
    arguments = f"{json.dumps(name)}, {json.dumps(values)}, {json.dumps(facts or {})}"
    return json.loads(_engine(name).eval(f"JSON.stringify(explorables.shown({arguments}))"))


@cache
def _engine(name: str):
    import quickjs

    context = quickjs.Context()
    for script in ("drawing", name):
        context.eval((FOLDER / f"{script}.js").read_text("utf-8"))
    return context
