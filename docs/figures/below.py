"""Below Triton: what overlaps in a ring of buffers, by the model that the chapter "What overlaps with what" states."""

from draw import Control, Panel, Picture, picture
from moving import moving, run

#: In made-up units of time: what the copy unit needs for a tile, how much later it is there, what a product takes.
TIMES = dict(copy=2, latency=4, compute=2)


def schedule(buffers: int, steps: int) -> list[dict]:
    return run("overlap", dict(TIMES, buffers=buffers, time=0), dict(steps=steps))["model"]["times"]


@picture
def ring():
    tiles, unit = 6, 360 / 52
    coming, work = TIMES["copy"] + TIMES["latency"], TIMES["compute"]
    panels, ends = [], []
    for buffers in (1, 3):
        times = schedule(buffers, tiles)
        ends.append(times[-1]["done"])
        panel = Panel(60 + 34 * buffers, "One buffer" if buffers == 1 else f"A ring of {buffers}")
        for tile, each in enumerate(times):
            asked, begun, done, top = each["begins"], each["starts"], each["done"], 34 + 34 * (tile % buffers)
            panel.box(asked * unit, top, (begun - asked) * unit, 24, "b")
            panel.box(begun * unit, top, (done - begun) * unit, 24, "a")
            panel.text((asked + begun) / 2 * unit, top + 17, str(tile), "small", "middle")
        panel.text(0, 52 + 34 * buffers, f"{tiles} tiles in {ends[-1]} units of time", "bold")
        panels.append(panel)
    return Picture(
        f"Blue: the tile is on its way, or waits in its buffer. Amber: the threads work on it. Made-up times: {coming} units "
        f"until a tile is there, {work} to work on it. With one buffer the next tile is asked for when the last is done. "
        "With three, the copies overlap each other and the work.",
        f"{tiles} tiles, each {coming} units on the way and {work} in use. One buffer: one after another, {ends[0]} units. "
        f"A ring of three buffers: the copies overlap, {ends[1]} units.",
        panels,
    )


@picture
def overlap():
    steps = 6
    ends = [str(schedule(buffers, steps)[-1]["done"]) for buffers in range(1, 6)]
    return moving(
        "overlap",
        "How many buffers does it take until the tensor cores never wait, once they have begun?",
        "Guess, then drag the buffers from 1 to 5. Then double the latency.",
        "Blue: a tile is being sent or on its way. Grey: it is there and waits. Amber: it is multiplied. Above are the two units, "
        "below the buffers; the red line is the time that the words speak of, and can be dragged. Times are made up, and follow "
        "the model of the chapter. The scale is set by what one buffer takes.",
        (
            Control("buffers", "Buffers", 2, 1, 5),
            Control("copy", "Copy: time to send a tile", TIMES["copy"], 1, 8),
            Control("latency", "Latency: until it is there, then", TIMES["latency"], 0, 16),
            Control("compute", "Compute: time of a product", TIMES["compute"], 1, 8),
            Control("time", "Time", 9, 0, 26, plays=500),
        ),
        dict(steps=steps),
        f"With 1 to 5 buffers the {steps} steps take {', '.join(ends[:-1])} and {ends[-1]} units.",
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
