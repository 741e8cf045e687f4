"""Muon: a singular value on its way through five polynomials, a triangle of tiles with its mirror image, and how a mirror
image is stored."""

from draw import Control, Panel, Picture, picture
from moving import moving

TILES = 5


@picture
def path():
    from annotated_examples.optimizers import muon

    schedules = {"Keller Jordan": muon.NEWTON_SCHULZ, "Polar Express": muon.POLAR_EXPRESS[:5]}
    return moving(
        "newton_schulz",
        "Where does a singular value end after five rounds?",
        "Make σ small, then move it slowly past 1, for both sets of polynomials.",
        "First, the path of one singular value: each round puts it through the next polynomial (red: outside of the "
        "picture). Then, where every singular value from 0 to 1 ends. The green lines are at 1.",
        (
            Control("sigma", "σ", 50, 5, 1050, 5),
            Control("which", "Polynomials", "Keller Jordan", choices=tuple(schedules)),
        ),
        {"schedules": {name: [list(triple) for triple in triples] for name, triples in schedules.items()}},
    )


@picture
def triangle():
    """Which program has which tile: what the lesson's function says, asked of every program."""
    global tl, tile_of_triangle  # a kernel looks for names in its module
    import torch
    import triton
    import triton.language as tl

    from annotated_examples.optimizers.muon import tile_of_triangle

    @triton.jit
    def ask(out_ptr, tiles):
        i, j = tile_of_triangle(tl.program_id(0), tiles)
        tl.store(out_ptr + 2 * tl.program_id(0), i)
        tl.store(out_ptr + 2 * tl.program_id(0) + 1, j)

    count = TILES * (TILES + 1) // 2
    places = torch.empty(count, 2, dtype=torch.int32)
    ask[(count,)](places, TILES)
    of = {tuple(place): pid for pid, place in enumerate(places.tolist())}
    size = 46
    folded, whole = (
        Panel(40 + size * (count // TILES), "The programs, folded into a rectangle"),
        Panel(40 + size * TILES, "Their tiles"),
    )
    long = lambda pid: pid % TILES < TILES - pid // TILES  # noqa: E731
    kind = lambda pid: "a" if long(pid) else "b"  # noqa: E731
    folded.cells(
        0, 30, count // TILES, TILES, size,
        lambda r, c: kind(r * TILES + c), lambda r, c: f"{r * TILES + c}\n{tuple(places[r * TILES + c].tolist())}",
    )  # fmt: skip
    whole.cells(
        0, 30, TILES, TILES, size,
        lambda r, c: kind(of[r, c]) if r >= c else "off", lambda r, c: of[max(r, c), min(r, c)],
    )  # fmt: skip
    said = "; ".join(
        f"program {pid} row {i}, column {j}" for (i, j), pid in sorted(of.items(), key=lambda each: each[1])
    )
    return Picture(
        f"{count} programs for {TILES} by {TILES} tiles. Each row of the rectangle has a long row of the triangle (amber) and "
        "a short one (blue). A grey tile is the mirror image of the tile with its number, and stored by the same program.",
        f"A triangle of {TILES} rows of tiles, folded into {count // TILES} rows of {TILES} programs: {said}.",
        [folded, whole],
    )


@picture
def mirror():
    """Which numbers one store of 32 lanes writes, of a tile and of its mirror image, and how many lines of memory that is."""
    size, edge, line = 22, 8, 4
    panels = []
    for title, at_once in (
        ("As it lies: a tile's row goes down a column", lambda r, c: c == 2),
        ("Turned first: it leaves as rows", lambda r, c: r == 2),
    ):
        panel = Panel(60 + size * edge, title)
        panel.cells(
            0, 30, edge, edge, size,
            lambda r, c, at_once=at_once: "a" if at_once(r, c) else "b" if any(at_once(r, x) for x in range(c // line * line, c // line * line + line)) else "off",
            lambda r, c: "",
        )  # fmt: skip
        panels.append(panel)
    return Picture(
        "A mirror image in memory, eight numbers in a row, four in a line of memory. Amber: what one store writes. Blue: what "
        "else lies in the lines that it touches. Down a column each number has a line of its own.",
        "Two grids of 8 by 8. In the left one a column is written, in 8 lines of memory; in the right one a row, in 2.",
        panels,
    )
