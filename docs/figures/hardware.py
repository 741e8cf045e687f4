"""How a GPU runs a Triton program: memory, programs, waves, coalescing, occupancy, the roofline."""

import math
from collections.abc import Iterable, Sequence

from academy.results import figures
from academy.results import store

import card
from draw import WIDTH, Axes, Control, Panel, Picture, bars, picture
from moving import moving


def _log_bars(panel: Panel, top: float, ends: tuple[float, float], rows: Sequence[tuple[str, float, str, str]]) -> None:
    """Bars on a logarithmic scale, a line for each power of ten: (name, value, its words, kind)."""
    low, high = (math.log10(end) for end in ends)
    at = lambda value: 300 * (math.log10(value) - low) / (high - low)  # noqa: E731
    for power in range(round(low), round(high) + 1):
        panel.line([(at(10.0**power), top), (at(10.0**power), top + 40 * len(rows))], "rule")
    for place, (name, value, words, kind) in enumerate(rows):
        y = top + place * 40
        panel.text(0, y + 12, name, "small")
        panel.box(0, y + 17, at(value), 15, kind)
        panel.text(at(value) + 6, y + 29, words, "small")


@picture
def memory():
    copy = card.measured("device/copy")
    registers_kb = card.REGISTERS * 4 // 1024
    of_all = card.SMS * registers_kb * 1024
    size = Panel(270, "Size: each line is ten times as much")
    sizes = (
        ("registers of a thread", 255 * 4, "1 KB", "a"),
        ("shared memory of a multiprocessor (SM)", card.SHARED_KB * 1024, f"{card.SHARED_KB} KB", "b"),
        ("registers of an SM", registers_kb * 1024, f"{registers_kb} KB", "a"),
        (f"registers of all {card.SMS}", of_all, f"{of_all / 1e6:.0f} MB", "a"),
        ("L2 cache, for all SMs", card.L2_MB * 1e6, f"{card.L2_MB} MB", "g"),
        ("memory", card.MEMORY_GB * 1e9, f"{card.MEMORY_GB} GB", "p"),
    )
    _log_bars(size, 24, (100, 1e12), sizes)
    # A multiply-add reads three numbers of four bytes; shared memory has 32 banks of four bytes, each read once a cycle.
    operands = card.FLOAT32_TFLOP_S / 2 * 3 * 4
    banks = card.SMS * 32 * 4 * card.CLOCK_GHZ / 1000
    speed = Panel(270, "Bytes a second: each line is ten times as much")
    speeds = (
        ("registers, for float32 arithmetic", operands, f"{operands:.0f} TB/s", "a"),
        ("shared memory of all SMs", banks, f"{banks:.0f} TB/s", "b"),
        ("memory", card.BANDWIDTH_TB_S, f"{card.BANDWIDTH_TB_S} TB/s, {copy:g} in a copy", "p"),
    )
    _log_bars(speed, 24, (0.1, 10000), speeds)
    speed.text(0, 168, "Cycles until a load returns", "bold")
    longest = max(card.LATENCY.values())
    for place, ((name, cycles), kind) in enumerate(zip(card.LATENCY.items(), "bgp")):
        y = 180 + place * 30
        speed.text(0, y + 15, name, "small")
        speed.box(100, y + 2, 170 * cycles / longest, 18, kind)
        speed.text(106 + 170 * cycles / longest, y + 16, f"about {cycles}", "small")
    return Picture(
        "The farther from the arithmetic, the larger, the slower and the later. Sizes and the memory's speed are the data sheet's; the "
        f"speed of registers is what {card.FLOAT32_TFLOP_S} TFLOP/s of multiply-adds read, that of shared memory 32 banks of 4 bytes "
        f"at {card.CLOCK_GHZ} GHz. No data sheet gives one for L2. Cycles are rounded from published measurements of an H100 "
        "(Luo and others, arXiv 2402.13499); a card under load takes longer.",
        "Sizes: "
        + "; ".join(f"{name} {words}" for name, _, words, _ in sizes)
        + ". Bytes a second: "
        + "; ".join(f"{name} {words}" for name, _, words, _ in speeds)
        + ". Cycles until a load returns: "
        + "; ".join(f"{name} about {cycles}" for name, cycles in card.LATENCY.items())
        + ".",
        [size, speed],
    )


@picture
def launch():
    n, block = 10, 4
    programs = -(-n // block)
    grid = Panel(214, f"{n} elements, BLOCK = {block}: {programs} programs")
    kinds = "abg"
    for place in range(programs * block):
        pid, inside = place // block, place < n
        x = place * 30
        grid.box(x, 132, 28, 28, kinds[pid] if inside else "off", place if inside else "–")
        grid.text(x + 14, 178, place % block, "small dim", "middle")
    for pid in range(programs):
        grid.box(pid * 120, 34, 118, 44, kinds[pid], f"program {pid}\n{pid}·{block} + [0, {block})")
        grid.arrow(pid * 120 + 59, 82, pid * 120 + 59, 126)
    grid.text(0, 202, "below: lanes", "small dim")
    grid.text(360, 202, f"{programs * block - n} lanes past the end: masked", "small", "end")
    return Picture(
        "A launch is a grid of programs. Each works out from its number which elements are its own.",
        f"{programs} programs cover {n} elements, {block} each; the last has {programs * block - n} lanes past the end, which are "
        "masked.",
        [grid],
    )


@picture
def threads():
    elements, warps, threads, wide = 1024, 4, 32, 4
    one = Panel(214, f"A program of {elements} elements, {warps} warps")
    for warp in range(warps):
        one.box(warp * 90, 30, 88, 30, "b" if warp else "a", f"warp {warp}")
    one.text(0, 82, f"warp 0: {threads} threads, one instruction for all", "small")
    one.cells(0, 90, 2, 16, (22.5, 26), lambda r, c: "a" if r + c else "p", lambda r, c: 16 * r + c)
    held = [e for e in range(elements) if e // wide % threads == 0 and e // (wide * threads) % warps == 0]
    one.text(0, 166, f"thread 0 holds {len(held)} elements in registers:", "small")
    for place, element in enumerate(held):
        one.box(place * 45, 174, 43, 28, "p", element)
    return Picture(
        "A program is some warps; a warp is 32 threads; a thread holds some elements.",
        f"A program of {elements} elements has {warps} warps of {threads} threads. The threads take {wide} neighbouring elements "
        f"each, {warps * threads * wide} in all, and then the next {warps * threads * wide}: "
        f"thread 0 of warp 0 holds the elements {', '.join(map(str, held))}.",
        [one],
    )


@picture
def waves():
    return moving(
        "waves",
        "Why can one program more cost as much as 132, and what helps?",
        f"Go from {card.SMS} programs to {card.SMS + 1}. Then try uneven programs, smaller pieces, and a persistent kernel.",
        "Each column is an SM, time runs downwards. A model: a program takes 1, more or less by the jitter, and its start, in red, comes "
        "on top. The next program goes to the first place that is free. The places that the last wave leaves empty are called the "
        f"tail. A persistent kernel launches {card.SMS} programs, which start once; each takes every {card.SMS}nd tile, even where another is free sooner.",
        (
            Control("programs", "Programs", card.SMS, 1, 4 * card.SMS),
            Control("jitter", "Programs differ by", 0, 0, 60, 5),
            Control("start", "Start, in parts of the work", 0, 0, 40, 5),
            Control("split", "Each cut into pieces", 1, stops=(1, 2, 4)),
            Control("persistent", "persistent", 0, ticks=True),
            Control("time", "Time", 100, 0, 200, 5, plays=60),
        ),
        {"sms": card.SMS},
    )


@picture
def latency():
    guide = card.guide("busy")
    rate = card.BANDWIDTH_TB_S * 1000 / card.SMS  # bytes in a nanosecond
    wanted = guide.in_flight(card.BANDWIDTH_TB_S * 1e12, 0.5e-6)[1]
    return moving(
        "latency",
        "How can an SM with few warps use all of the memory's bandwidth?",
        "Raise the warps until memory never pauses. Then get there with eight warps.",
        f"A model of one SM: its share of {card.BANDWIDTH_TB_S} TB/s is {rate:.1f} bytes in a nanosecond. A warp asks for its loads at once, "
        "waits until all have come, works, and begins again. With W warps, L loads of b bytes a thread and s = 32 b / "
        f"{rate:.1f} ns for each, memory is busy for W L s of (latency + (L − 1) s + work) ns: a warp's round. Little's law, "
        f"bandwidth × latency, {wanted / 1024:.1f} KiB for half a microsecond, is the least that has to be asked for. It is enough only if every "
        "byte that comes is asked for anew at once. Here a warp waits for its last load and works first, so it takes bandwidth × "
        "round. Shares are rounded down: memory that pauses at all is never at 100%.",
        (
            Control("warps", "Warps on the SM", 12, 1, 64),
            Control("loads", "Independent loads of a thread", 1, stops=(1, 2, 4, 8)),
            Control("size", "Bytes of a load, per thread", 16, stops=(4, 8, 16)),
            Control("latency", "Latency", 500, 300, 900, 50),
            Control("work", "Work after each round", 50, 0, 400, 25),
            Control("time", "Time", 2000, 0, 2000, 25, plays=60),
        ),
        {"rate": rate},
    )


@picture
def coalescing():
    return moving(
        "coalescing",
        "How much of what memory sends does a warp get to use?",
        "Drag the stride from 1 to 32: which stride is the first that fetches 32 sectors?",
        "A square is a sector of 32 bytes, the number in it how many of a warp's 32 threads asked for it. Every sector that "
        "anybody asked for is fetched whole.",
        (
            Control("stride", "Stride, in elements", 8, 1, 32),
            Control("size", "Bytes of an element", 4, choices=(1, 2, 4)),
        ),
    )


@picture
def occupancy():
    shared = 32
    return moving(
        "occupancy",
        "How many programs fit on an SM, and what stops the next one?",
        "Raise the registers until one program less fits. Then make the shared memory decide.",
        "The shortest bar decides. An SM takes at most 32 programs, 64 warps, 65,536 registers and 228 KB of shared memory. The "
        f"system keeps 1 KB for each program: 228 KB hold {228 // (shared + 1)} programs of {shared} KB, not {228 // shared}.",
        (
            Control("warps", "Warps a program (num_warps)", 4, choices=(1, 2, 4, 8, 16, 32)),
            Control("registers", "Registers a thread", 64, 16, 255),
            Control("shared", "Shared memory a program, KB", shared, 0, 227),
        ),
    )


def limit(operations: float, moved: float) -> tuple[float, str, float]:
    """Of so many millions of operations and of bytes: operations a byte, what bounds them, least time in µs."""
    found = card.speeds()
    times = {"memory": moved / found["bytes"], "arithmetic": operations / found["operations"]}
    bound = max(times, key=lambda name: times[name])
    return operations / moved, bound, times[bound]


def _measured() -> list[tuple[str, figures.Pass]]:
    """Of each operation with results the forward pass, or the only one, of its largest shape, by operations per byte:
    so the numbers at the dots count from left to right."""
    found = []
    for path, record in store.committed(card.ROOT):
        passes = figures.passes(record["cases"]) if path.parts[-2] == figures.PROSE_DEVICE else []
        first = [each for each in passes if each.which != "backward"]
        if first:
            found.append((path.stem, max(first, key=lambda each: each.entry["operations"])))
    return sorted(found, key=lambda pair: (pair[1].entry["operations"] / pair[1].entry["bytes"], -pair[1].ms()))


def _decades(values: Iterable[float]) -> list[float]:
    """Powers of ten that leave room around all values, which may be measured anew at any time."""
    values = list(values)
    low, high = math.floor(math.log10(min(values) / 1.5)), math.ceil(math.log10(max(values) * 1.2))
    return [10.0**power for power in range(low, high + 1)]


def _labelled(dots: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Where the number of each dot stands: inside the panel, at the first place around it where none stands yet."""
    taken, found = list(dots), []
    for x, y in dots:
        around = [
            (x + far * math.cos(turn * math.pi / 8), y + far * math.sin(turn * math.pi / 8))
            for far in (13, 20, 28, 38, 50, 64)
            for turn in range(16)
        ]
        around = [at for at in around if 52 <= at[0] <= WIDTH - 12]
        free = [at for at in around if all(abs(at[0] - x) > 15 or abs(at[1] - y) > 12 for x, y in taken)]
        found.append(free[0] if free else around[0])
        taken.append(found[-1])
    return found


@picture
def roofline():
    speeds, measured = card.speeds(), _measured()
    dots = [
        {
            "name": name,
            "x": each.entry["operations"] / each.entry["bytes"],
            "y": each.entry["operations"] / each.ms() / 1e9,
        }
        for name, each in measured
    ]
    xs, ys = _decades(dot["x"] for dot in dots), _decades([dot["y"] for dot in dots] + [speeds["operations"]])
    at = Axes(Panel(352), (44, 42, 306, 236), xs, ys, log=(True, True))
    labels = _labelled([at(dot["x"], dot["y"]) for dot in dots])
    ridge, sheet = speeds["operations"] / speeds["bytes"], card.MATRIX_TFLOP_S / card.BANDWIDTH_TB_S
    return moving(
        "roofline",
        "Which limit does a calculation meet, memory or arithmetic?",
        "LayerNorm of 32768 rows of 4096 stands here. How many operations would make arithmetic its limit?",
        f"Solid: what was measured, the median of many runs. The slope is copy speed, {speeds['bytes']:g} TB/s, the flat part a "
        f"large product's {speeds['operations']:g} TFLOP/s; they meet at {ridge:.0f} operations per byte. Dashed: the data sheet, "
        f"{card.BANDWIDTH_TB_S} TB/s and {card.MATRIX_TFLOP_S} TFLOP/s, which meet at {sheet:.0f}. A kernel between the two lines "
        "beats the copy or the product that it is compared with: those are good code, not laws. The amber dot is the calculation "
        "that the two fields describe.",
        (
            Control("operations", "Operations, millions", 1074, 1, 2e6),
            Control("moved", "Bytes that must move, millions", 537, 1, 1e5),
        ),
        {
            **speeds,
            "sheet": [card.BANDWIDTH_TB_S, card.MATRIX_TFLOP_S],
            "xs": xs,
            "ys": ys,
            "dots": [dot | {"label": place} for dot, place in zip(dots, labels)],
        },
        "Measured: "
        + "; ".join(f"{dot['name']} at {dot['x']:.3g} operations per byte and {dot['y']:.3g} TFLOP/s" for dot in dots)
        + ".",
    )


@picture
def tiles():
    guide = card.guide("busy")
    sizes = ((16, 16), (32, 32), (64, 64), (128, 128), (128, 256))
    rows = [(f"{m} x {n}", guide.operations_per_byte(m, n), f"{guide.operations_per_byte(m, n):.0f}") for m, n in sizes]
    needed = card.MATRIX_TFLOP_S / card.BANDWIDTH_TB_S
    rows.append(("the card, to keep its tensor cores busy", needed, f"{needed:.0f}"))
    panel = Panel(270, "Operations per byte loaded, bfloat16 tiles")
    bars(panel, 40, rows, ["b"] * len(sizes) + ["a"])
    return Picture(
        "A larger tile does more operations with each byte. Even the largest falls short of what the card needs: the rest comes from "
        "the L2 cache.",
        "Bars: " + "; ".join(f"{name}: {words} operations per byte" for name, _, words in rows) + ".",
        [panel],
    )
