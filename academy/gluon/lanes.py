"""What overlaps with what: the events of a simulated program as lanes over time, for a viewer or a terminal.

Time is the number of the step: an order that the rules allow. It is no measurement, and another seed gives another one.

Names: `timeline()`, `text()`.
"""

from __future__ import annotations

from typing import Any

ABOUT = "an order that the rules allow, not a measurement"
#: What stands for what in `text`.
_MARKS = {"waits": ".", "expect": "e", "arrive": "a", "fence": "f", "read": "r", "write": "w"}
LEGEND = "= under way   . waits   r reads   w writes   a arrives   e expects bytes   f fence"


def timeline(events: list[dict]) -> dict[str, Any]:
    """Lanes, spans and phases of one program, as plain data.

    events: what `simulate(…, events=[])` collected.

    Returns {"about", "steps", "lanes": names, "spans": […], "phases": […]}. A span has `lane`, `from`, `to` (steps),
    `what`, `line`, and where they apply `buffer` (that it holds), `barrier`, `phase`, `of` (the partition that issued
    it). A phase has `barrier`, `phase` and the `step` at which it was complete.
    """
    lanes = list(dict.fromkeys(event["lane"] for event in events if event["kind"] != "phase"))
    units = [lane for lane in ("copy unit", "tensor cores") if lane in lanes]
    spans: list[dict] = []
    phases: list[dict] = []
    waiting: dict[str, dict] = {}  # by lane
    under_way: dict[int, list[dict]] = {}  # by number of the operation
    for event in events:
        step, lane, kind = event["step"], event["lane"], event["kind"]
        kept = {
            name: event[name] for name in ("line", "buffer", "barrier", "phase", "of") if event.get(name) is not None
        }
        span = {"lane": lane, "from": step, "to": step, "what": event.get("what", kind), **kept}
        if kind == "phase":
            phases.append(dict(barrier=event["barrier"], phase=event["phase"], step=step))
        elif kind == "wait":
            waiting[lane] = {**span, "what": "waits"}
            spans.append(waiting[lane])
        elif kind == "go on":
            waiting.pop(lane)["to"] = step
        elif kind == "end":
            for each in under_way.pop(event["operation"], []):
                each["to"] = step
        else:
            if event.get("operation") is not None:
                under_way.setdefault(event["operation"], []).append(span)
            spans.append(span)
    for span in waiting.values():  # for ever, in a run that ended with an error
        span["to"] = len(events) - 1
    partitions = [lane for lane in lanes if lane not in units]
    return dict(about=ABOUT, steps=len(events), lanes=[*partitions, *units], spans=spans, phases=phases)


def text(drawn: dict[str, Any], width: int = 110) -> str:
    """The lanes in characters, in as many rows as are needed; see `LEGEND`."""
    names = max((len(lane) for lane in drawn["lanes"]), default=0)
    rows = {lane: [" "] * drawn["steps"] for lane in drawn["lanes"]}
    for span in drawn["spans"]:
        row = rows[span["lane"]]
        operation = span["lane"] in ("copy unit", "tensor cores")
        mark = "=" if operation else _MARKS.get(span["what"], _MARKS["write" if span["what"] == "store" else "read"])
        row[span["from"] : span["to"] + 1] = [mark] * (span["to"] + 1 - span["from"])
    columns = max(20, width - names - 2)
    out = [f"{LEGEND}   ({ABOUT})"]
    for first in range(0, drawn["steps"], columns):
        out += [""] + [f"{lane:<{names}}  {''.join(rows[lane][first : first + columns])}".rstrip() for lane in rows]
    return "\n".join(out)
