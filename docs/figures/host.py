"""What a call costs before the GPU has anything to do, out of benchmarks/host_time.py's results."""

import math

from academy.results import figures

import card
from draw import Axes, Panel, Picture, bars, picture

WHOLE = {
    "call by Triton": "launched by kernel[grid](…)",
    "call": "replayed",
    "torch": "PyTorch's layer_norm",
}
PARTS = {
    "gradient": "does anything need a gradient?",
    "outputs": "memory for the output",
    "driver": "the driver's call",
    "checks remembered": "are the arguments known?",
    "checks": "all checks",
    "launch": "a launch found by its arguments",
    "launch by Triton": "kernel[grid](…)",
}


def _rows(found: dict, names: dict[str, str]) -> list[tuple[str, float, str]]:
    return [(words, found[name], f"{found[name]:.3g} µs") for name, words in names.items()]


@picture
def layernorm_call():
    found = figures.first(card.ROOT, "experiments/host_time")["breakdown"]
    larger = max(found[name] for name in WHOLE) / max(found[name] for name in PARTS)
    left = Panel(36 + 40 * len(WHOLE) + 4, "One call")
    right = Panel(36 + 40 * len(PARTS) + 4, f"What it is made of, drawn {larger:.2g} times as long")
    bars(left, 42, _rows(found, WHOLE), ["a", "b", "off"])
    bars(right, 42, _rows(found, PARTS), ["off", "off", "off", "b", "a", "b", "a"])
    said = ", ".join(f"{words} {found[name]:.3g} µs" for name, words in (WHOLE | PARTS).items())
    return Picture(
        "A layernorm of 128 x 128, without a gradient: what the CPU does before the GPU has anything to do. Each part was timed "
        "by itself. Amber: as it is first written. Blue: what remembers.",
        f"Bars of host time: {said}.",
        [left, right],
    )


@picture
def record():
    """What `replayed` writes down of a call of a linear layer in two launches, and what it takes from the next one."""
    panel = Panel(330, "the record of one geometry")
    columns = ((4, "the call"), (128, "what is written down"))
    for x, name in columns:
        panel.text(x, 38, name, "small")
    rows = (
        ("arguments", "a", "x, weight, bias", "their key: dtypes, shapes, strides,\nalignment, which are one tensor"),
        ("memory", "b", "parts, c", "how each is made: shape, dtype,\nand in which order"),
        ("launches", "g", "two kernels", "compiled kernel, grid, numbers;\neach address as (which, bytes on)"),
        ("results", "p", "c", "which memory, as which shape"),
    )
    for row, (name, kind, holds, written) in enumerate(rows):
        y = 48 + 70 * row
        panel.box(4, y, 100, 50, kind, f"{name}\n{holds}")
        panel.box(128, y, 228, 50, "", written)
        panel.arrow(104, y + 25, 126, y + 25)
        if row + 1 < len(rows):
            panel.arrow(242, y + 50, 242, y + 68)
    return Picture(
        "From the third call on Python goes down the right column: look up the key, allocate, put today's addresses into the "
        "launches, hand out the results. No address of the recorded call is kept.",
        f"A record has {len(rows)} parts, and is used from call 3 on. " + ". ".join(
            f"{name}, here {holds}: {written.replace(chr(10), ' ')}" for name, _, holds, written in rows
        ) + ".",
        [panel],
    )  # fmt: skip


def _peers(times: dict[str, float]) -> dict[str, float]:
    return {name: us for name, us in times.items() if name not in ("lesson", "fast", "launched by Triton")}


@picture
def every_call():
    """Ours and the quickest peer of each operation, without a gradient, sorted by how many times its time ours takes."""
    found = []
    for row in figures.first(card.ROOT, "experiments/host_time")["calls"]:
        peers = _peers(row["forward"])
        if peers:
            name = ": ".join(filter(None, (row["operation"], row["variant"])))
            found.append(
                (
                    row["forward"].get("fast", row["forward"]["lesson"]),
                    *min((us, peer) for peer, us in peers.items()),
                    name,
                )
            )
    found.sort(key=lambda each: each[1] / each[0])
    half, panels = -(-len(found) // 2), []
    at = lambda us: 205 + 150 * math.log(us / 5, 700)  # noqa: E731
    for rows, title in (found[:half], "Host time of a call, µs"), (found[half:], "and the other half"):
        panel = Panel(50 + 20 * half, title)
        for us in (10, 100, 1000):
            panel.line([(at(us), 42), (at(us), 44 + 20 * half)], "rule")
            panel.text(at(us), 36, us, "small", "middle" if us < 1000 else "end")
        for place, (ours, peer, _, name) in enumerate(rows):
            y = 55 + 20 * place
            panel.text(0, y + 4, name, "small")
            panel.line([(at(ours), y), (at(peer), y)], "rule")
            panel.dot(at(peer), y, "a", radius=4)
            panel.dot(at(ours), y, "b", radius=4)
        panels.append(panel)
    said = ", ".join(f"{name} {ours:.3g} µs, {whose} {peer:.3g}" for ours, peer, whose, name in found)
    more = sum(ours > 2 * peer for ours, peer, *_ in found)
    return Picture(
        "Blue: ours. Amber: the quickest other one, mostly PyTorch's own function. A logarithmic scale. Ours takes more "
        f"than twice its time in {more} of {len(found)} rows, and less in {sum(o < p for o, p, *_ in found)}.",
        f"Host time of {len(found)} calls on tiny tensors, without a gradient: {said}.",
        panels,
    )  # fmt: skip


@picture
def short_kernels():
    """Wall time of a call over the time of its kernel: a row of calls takes whichever is longer."""
    found = figures.first(card.ROOT, "experiments/host_time")["breakdown"]
    panel = Panel(310, "A row of calls, µs for each")
    step = 5 * math.ceil(found["call by Triton"] / 15)
    ticks = tuple(step * place for place in range(5))
    axes = Axes(panel, (40, 50, 300, 200), ticks, ticks, ("kernel, µs", "call, µs"))
    axes.curve(lambda kernel: kernel, "g")
    for name, kind, words in (("call by Triton", "a", "launched by Triton"), ("call", "b", "replayed")):
        axes.curve(lambda kernel, host=found[name]: max(kernel, host), kind)
        x, y = axes(step / 20, found[name])
        panel.text(x + 2, y - 5, words, "small")
    panel.text(*axes(1.3 * step, 0.6 * step), "in a CUDA graph: the diagonal", "small")
    return Picture(
        "A kernel that runs longer than its launch hides the launch. Left of the bend the GPU waits for Python.",
        f"Three lines over the time of a kernel: a call takes {found['call by Triton']:.3g} µs, or {found['call']:.3g} µs "
        "replayed, until the kernel takes longer than that; in a CUDA graph it takes what the kernel takes.",
        [panel],
    )
