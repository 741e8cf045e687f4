"""Below Triton: what overlaps in a ring of buffers."""

from draw import Panel, Picture, picture

#: In made-up units of time: from asking for a tile until it is there, between two tiles that arrive, and to work on one.
LATENCY, APART, WORK = 6, 2, 2
TILES, UNIT = 6, 360 / 52


def schedule(buffers: int) -> list[tuple[int, int, int, int]]:
    """(asked, there, begun, done) of each tile, if the ring has so many buffers."""
    times: list[tuple[int, int, int, int]] = []
    for tile in range(TILES):
        free = times[tile - buffers][3] if tile >= buffers else 0
        asked = max(free, times[-1][0] + APART if times else 0)
        begun = max(asked + LATENCY, times[-1][3] if times else 0)
        times.append((asked, asked + LATENCY, begun, begun + WORK))
    return times


@picture
def ring():
    panels, ends = [], []
    for buffers in (1, 3):
        times = schedule(buffers)
        ends.append(times[-1][3])
        panel = Panel(60 + 34 * buffers, "One buffer" if buffers == 1 else f"A ring of {buffers}")
        for tile, (asked, _, begun, done) in enumerate(times):
            top = 34 + 34 * (tile % buffers)
            panel.box(asked * UNIT, top, (begun - asked) * UNIT, 24, "b")
            panel.box(begun * UNIT, top, (done - begun) * UNIT, 24, "a")
            panel.text((asked + begun) / 2 * UNIT, top + 17, str(tile), "small", "middle")
        panel.text(0, 52 + 34 * buffers, f"{TILES} tiles in {ends[-1]} units of time", "bold")
        panels.append(panel)
    return Picture(
        f"Blue: the tile is on its way, or waits in its buffer. Amber: the threads work on it. Made-up times: {LATENCY} units "
        f"until a tile is there, {WORK} to work on it. With one buffer the next tile is asked for when the last is done. "
        "With three, the copies overlap each other and the work.",
        f"{TILES} tiles, each {LATENCY} units on the way and {WORK} in use. One buffer: one after another, {ends[0]} units. "
        f"A ring of three buffers: the copies overlap, {ends[1]} units.",
        panels,
    )


@picture
def moved_wait():
    panels = []
    for title, order in (
        ("As written, and in the PTX", ("wait", "maxima", "exponentials", "WAIT")),
        ("In the machine code", ("wait", "maxima", "WAIT", "exponentials")),
    ):
        panel = Panel(130, title)
        left, wide = 0, {"wait": 44, "WAIT": 44, "maxima": 92, "exponentials": 150}
        for part in order:
            kind = "p" if part.lower() == "wait" else "a"
            panel.box(left, 72, wide[part] - 4, 28, kind)
            panel.text(left + (wide[part] - 4) / 2, 91, part.lower(), "small", "middle")
            left += wide[part]
            if part == "WAIT":
                panel.box(0, 32, left - 4, 28, "b")
                panel.text((left - 4) / 2, 51, "the second product", "small", "middle")
        panel.text(0, 122, "threads below, tensor cores above", "small")
        panels.append(panel)
    return Picture(
        "The second wait should come after the exponentials, so that they run beside the product. ptxas moves it up.",
        "As written: wait, maxima, 64 exponentials, wait; the second product runs beside all of it. In the machine code: "
        "wait, maxima, wait, 64 exponentials; the product is over before the first of them.",
        panels,
    )
