"""What overlaps with what: the events of a simulated program as lanes over time, for a viewer or a terminal.

Time is the number of the step: an order that the rules allow. It is no measurement, and another seed gives another one.

Names: `timeline()`, `told()`, `text()`.
"""

from __future__ import annotations

from typing import Any

from academy.gluon.watching import GluonError

ABOUT = "an order that the rules allow, not a measurement"
#: Lanes that aren't partitions.
UNITS = ("TMA", "tensor cores")
#: What stands for what in `text`.
_MARKS = {"waits": ".", "expect": "e", "arrive": "a", "fence": "f", "init": "i", "read": "r", "write": "w"}
LEGEND = (
    "= under way   - on its way out   . waits, or isn't its turn   r reads   w writes   i initialises"
    "   a arrives   e expects bytes   f fence"
)
_KEPT = ("line", "buffer", "barrier", "phase", "of", "memory", "awaits")


def timeline(events: list[dict], file: str | None = None) -> dict[str, Any]:
    """Lanes, spans, phases and barriers of one program, as plain data.

    events: what `simulate(…, events=[])` collected. file: of the kernel; lines of other files are left out.

    Returns {"about", "steps", "lanes": names, "spans", "phases", "barriers", "told"}. A span has `lane`, `from`, `to`
    (steps), `what`, `line`, and where they apply `buffer` (that it holds), `writes` (the buffer), `barrier`, `phase`,
    `of` (the partition that issued it). A phase has `barrier`, `phase` and the `step` at which it was complete.
    barriers: of each name the states, [step, phase, arrived, count, bytes still to come]. told: of each step the lane,
    the line, and what happens, in words.
    """
    lanes = list(dict.fromkeys(event["lane"] for event in events if event["kind"] not in ("phase", "barrier")))
    units = [lane for lane in UNITS if lane in lanes]
    spans: list[dict] = []
    phases: list[dict] = []
    barriers: dict[str, list[list[int]]] = {}
    waiting: dict[str, dict] = {}  # by lane
    under_way: dict[int, list[dict]] = {}  # by number of the operation
    words: list[list] = []
    last = max((event["step"] for event in events), default=-1)
    for event in events:
        step, lane, kind = event["step"], event["lane"], event["kind"]
        if kind == "barrier":
            state = [step, event["phase"], event["arrived"], event["count"], event["bytes"]]
            states = barriers.setdefault(event["barrier"], [])
            if states and states[-1][0] == step:
                states.pop()
            states.append(state)
            continue
        if kind == "phase":
            phases.append(dict(barrier=event["barrier"], phase=event["phase"], step=step))
            continue
        span = {"lane": lane, "from": step, "to": step, "what": event.get("what", kind)}
        span |= {name: event[name] for name in _KEPT if event.get(name) is not None}
        if file is not None and event.get("file") != file:
            span.pop("line", None)
        line = span.get("line")
        if kind == "wait":
            waiting[lane] = {**span, "what": "waits"}
            spans.append(waiting[lane])
        elif kind == "go on":
            waited = waiting.pop(lane)
            waited["to"] = step
            line = waited.get("line")
        elif kind == "end":
            ended = under_way.pop(event["operation"], [])
            for each in ended:
                each["to"] = step
            event = {**event, "ended": ended}
            line = ended[0].get("line") if ended else None
        else:
            if kind == "write":
                span["writes"] = True
            if event.get("operation") is not None:
                under_way.setdefault(event["operation"], []).append(span)
            spans.append(span)
        words.append([lane, line, told(event)])
    for span in [*waiting.values(), *(each for some in under_way.values() for each in some)]:
        span["to"] = last  # for ever, in a run that ended with an error
    partitions = [lane for lane in lanes if lane not in units]
    drawn = dict(about=ABOUT, steps=last + 1, lanes=[*partitions, *units], spans=spans, phases=phases)
    return drawn | dict(barriers=barriers, told=words)


def told(event: dict) -> str:
    """What happens in one step, in words that follow the name of its lane."""
    kind, buffer, barrier = event["kind"], event.get("buffer"), event.get("barrier")
    if kind in ("wait", "go on"):
        what = event.get("awaits") or (f"{barrier}, phase {event['phase']}" if barrier else "")
        if barrier and event["phase"] < 0:
            what = f"{barrier}, the phase before the first"
        return f"waits for {what}" if kind == "wait" else f"goes on: {what} is complete" if what else "goes on"
    if kind == "end":
        ended = event.get("ended") or [{"what": "operation"}]
        buffers = list(dict.fromkeys(each["buffer"] for each in ended if "buffer" in each))
        named = " and ".join(buffers) + (" are" if len(buffers) > 1 else " is")
        if any(each.get("writes") for each in ended):
            return f"the {ended[0]['what']} is complete: {named} there"
        return f"the {ended[0]['what']} is complete" + (f": {named} no longer read by it" if buffers else "")
    if event.get("operation") is not None:
        begins = f"a {event['what']} of {event['of']} begins: it"
        return f"{begins} {'writes' if kind == 'write' else 'reads'} {buffer}"
    if buffer:
        return f"{'stores to' if kind == 'write' else 'loads'} {buffer}"
    simple = {
        "init": f"initialises {barrier}: a phase needs {event.get('count')} arrivals",
        "expect": f"arrives at {barrier}, phase {event.get('phase')}, and announces {event.get('bytes', 0):,} bytes",
        "arrive": f"arrives at {barrier}, phase {event.get('phase')}",
        "fence": "fence: what it has done so far, the async proxy sees from now on",
        "load": f"loads from global memory, {event.get('memory')}",
        "store": f"stores to global memory, {event.get('memory')}",
    }
    return simple.get(kind) or f"{kind.replace('_', ' ')} of global memory, {event.get('memory')}"


def fault(error: GluonError, drawn: dict[str, Any] | None) -> dict[str, Any]:
    """What the simulator found, for a viewer: kind, message, seed, and of each party line, source, partition, what it
    did, what it had waited for, and the last step at that line."""
    steps = [] if drawn is None else drawn["told"]

    def step(line: int) -> int | None:
        return next((number for number in range(len(steps) - 1, -1, -1) if steps[number][1] == line), None)

    parties = [
        dict(
            line=each.at.line, file=each.at.file, source=each.at.source, partition=each.partition, what=each.what,
            waited=each.waited, step=step(each.at.line),
        )
        for each in error.parties
        if each.at is not None
    ]  # fmt: skip
    return dict(kind=type(error).__name__, message=error.message, seed=error.seed, parties=parties)


def text(drawn: dict[str, Any], width: int = 110) -> str:
    """The lanes in characters, in as many rows as are needed, see `LEGEND`; and when each phase was complete."""
    names = max((len(lane) for lane in drawn["lanes"]), default=0)
    rows = {lane: [" "] * drawn["steps"] for lane in drawn["lanes"]}
    for span in drawn["spans"]:
        row = rows[span["lane"]]
        stores = span.get("writes") or span["what"] == "store"
        under_way = "-" if span["what"].startswith("TMA") and not stores else "="
        mark = under_way if span["lane"] in UNITS else _MARKS.get(span["what"], _MARKS["write" if stores else "read"])
        row[span["from"] : span["to"] + 1] = [mark] * (span["to"] + 1 - span["from"])
    columns = max(20, width - names - 2)
    out = [f"{LEGEND}   ({ABOUT})"]
    for first in range(0, drawn["steps"], columns):
        out += [""] + [f"{lane:<{names}}  {''.join(rows[lane][first : first + columns])}".rstrip() for lane in rows]
    completed: dict[str, list[str]] = {}
    for phase in drawn["phases"]:
        completed.setdefault(phase["barrier"], []).append(f"phase {phase['phase']} at step {phase['step']}")
    if completed:
        out += ["", "complete:", *(f"  {barrier}: {', '.join(each)}" for barrier, each in completed.items())]
    return "\n".join(out)
