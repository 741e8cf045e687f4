"""Where numbers lie: strides, masks, packed words, float formats."""

import struct

from draw import Axes, Control, Panel, Picture, picture
from moving import moving

ROWS, COLUMNS = 3, 4


@picture
def strides():
    panels, words = [], []
    for title, shape, stride in (
        ("x: shape (3, 4), strides (4, 1)", (ROWS, COLUMNS), (COLUMNS, 1)),
        ("x.T: shape (4, 3), strides (1, 4)", (COLUMNS, ROWS), (1, COLUMNS)),
    ):
        panel = Panel(272, title)
        place = lambda r, c, stride=stride: r * stride[0] + c * stride[1]  # noqa: E731
        panel.cells(100, 30, *shape, (40, 32), lambda r, c: "a" if r == 1 else "off", place)
        panel.text(0, 84, "row 1:", "small")
        panel.text(0, 194, "in memory:", "small")
        taken = [place(1, c) for c in range(shape[1])]
        panel.cells(0, 204, 1, 12, (30, 30), lambda r, c, taken=taken: "a" if c in taken else "off", lambda r, c: c)
        panel.text(0, 258, f"x_ptr + row·{stride[0]} + column·{stride[1]}: {', '.join(map(str, taken))}", "small")
        panels.append(panel)
        words.append(f"{title}: row 1 is at {', '.join(map(str, taken))} in memory")
    return Picture(
        "The same twelve numbers. A transposed view swaps the strides and moves no data, so its rows are scattered in memory.",
        ". ".join(words) + ".",
        panels,
    )


def _tiles(panel, rows, columns, block, side, left=20, top=46):
    high, wide = -(-rows // block) * block, -(-columns // block) * block
    inside = lambda r, c: r < rows and c < columns  # noqa: E731
    panel.cells(
        left,
        top,
        high,
        wide,
        side,
        lambda r, c: "b" if inside(r, c) else "off dashed",
        lambda r, c: "" if inside(r, c) else "–",
    )
    for row in range(0, high, block):
        for column in range(0, wide, block):
            panel.box(left + column * side, top + row * side, block * side, block * side, "strong")
    return high * wide - rows * columns


@picture
def masks():
    rows, columns, block = 7, 5, 4
    left = Panel(304, f"{rows} x {columns} numbers, tiles of {block} x {block}")
    empty = _tiles(left, rows, columns, block, 30)
    corner = sum(r < rows and c < columns for r in range(block, 2 * block) for c in range(block, 2 * block))
    right = Panel(304, "The tile at the corner")
    offs_m, offs_n = range(block, 2 * block), range(block, 2 * block)
    right.text(0, 52, f"offs_m = {list(offs_m)}", "mono small")
    right.text(0, 74, f"offs_m < {rows}: {[int(m < rows) for m in offs_m]}", "mono small")
    right.text(0, 104, f"offs_n = {list(offs_n)}", "mono small")
    right.text(0, 126, f"offs_n < {columns}: {[int(n < columns) for n in offs_n]}", "mono small")
    right.text(0, 160, "(offs_m[:, None] < M) & (offs_n[None, :] < N):", "small")
    right.cells(
        100, 172, block, block, 30,
        lambda r, c: "b" if offs_m[r] < rows and offs_n[c] < columns else "off dashed",
        lambda r, c: int(offs_m[r] < rows and offs_n[c] < columns),
    )  # fmt: skip
    return Picture(
        f"The tiles at the edges reach past the matrix. {empty} lanes have nothing to load: their addresses belong to the "
        "next row, or to another tensor.",
        f"A matrix of {rows} x {columns} covered by four tiles of {block} x {block}. {empty} of {4 * block * block} lanes lie "
        f"outside. Of the tile at the corner {corner} of {block * block} lanes are inside: its mask is the product of a mask "
        "of rows and a mask of columns.",
        [left, right],
    )


@picture
def padding():
    row, block = [3.0, 4.0, 5.0], 4
    mean = sum(row) / len(row)
    right = sum((x - mean) ** 2 for x in row) / len(row)
    wrong = (sum((x - mean) ** 2 for x in row) + (0 - mean) ** 2) / len(row)
    panel = Panel(250)
    for y, name, values, total in (
        (0, "loaded with other=0.0", [*row, 0.0], f"mean = 12 / 3 = {mean:g}"),
        (84, "minus the mean, no mask", [x - mean for x in [*row, 0.0]], f"variance = {wrong:.3g}: wrong"),
        (
            168,
            "minus the mean, then tl.where(mask, …, 0.0)",
            [*[x - mean for x in row], 0.0],
            f"variance = {right:.3g}",
        ),
    ):
        panel.text(0, y + 15, name, "bold")
        panel.cells(
            0,
            y + 24,
            1,
            block,
            (44, 32),
            lambda r, c: "off dashed" if c == 3 else "b",
            lambda r, c, v=values: f"{v[c]:g}",
        )
        panel.text(190, y + 45, total, "small")
    return Picture(
        "The masked lane read a harmless zero. After one subtraction it is no longer zero, and the sum includes it.",
        f"Row 3, 4, 5 in a block of {block}. The masked lane reads 0. After subtracting the mean of {mean:g} it holds -4, and "
        f"the variance comes out as {wrong:.3g}. With the lane set to zero again it is {right:.3g}.",
        [panel],
    )


@picture
def packed():
    import torch

    from annotated_examples.gemlite.gemm import pack, unpack

    q = torch.tensor([[1], [15], [0], [7], [3], [8], [12], [5]])
    words = pack(q, 4)
    bits = f"{int(words[0, 0]) & 0xFFFFFFFF:032b}"
    assert unpack(words, 4).equal(q.to(unpack(words, 4).dtype))
    panel = Panel(262, "Eight 4-bit numbers in one int32")
    values = q.flatten().tolist()
    panel.text(0, 42, "k", "small dim")
    panel.text(0, 64, "q", "small dim")
    for k, value in enumerate(values):
        panel.text(40 + k * 42, 42, k, "small", "middle")
        panel.box(22 + k * 42, 48, 38, 24, "abgp"[k % 4], value)
        panel.line([(40 + k * 42, 74), (341 - k * 45, 116)], "rule")
    for place in range(8):
        k = 7 - place
        panel.box(place * 45, 118, 44, 28, "abgp"[k % 4], bits[4 * place : 4 * place + 4])
        panel.text(place * 45 + 22, 162, f"{4 * k + 3}–{4 * k}", "small", "middle")
    panel.text(0, 184, "bits, the highest on the left", "small")
    k = 5
    panel.text(0, 214, f"k = {k}: word >> {4 * k} & 15 = {int(words[0, 0]) >> 4 * k & 15}", "mono small")
    panel.text(0, 240, f"the word as int32: {int(words[0, 0])}", "mono small")
    return Picture(
        "Row k of the weight is in bits 4k to 4k + 3: the first number takes the lowest bits. Shift right, then mask.",
        f"The numbers {', '.join(map(str, values))} packed into one 32-bit word, the first in the lowest four bits: {bits}, "
        f"as int32 {int(words[0, 0])}. Number {k} is the word shifted right by {4 * k}, and 15: {int(words[0, 0]) >> 4 * k & 15}.",
        [panel],
    )


#: Exponent and fraction bits, has it infinities, has it NaN?
FORMATS = {
    "float32": (8, 23, True, True),
    "bfloat16": (8, 7, True, True),
    "float16": (5, 10, True, True),
    "fp8 e5m2": (5, 2, True, True),
    "fp8 e4m3": (4, 3, False, True),
    "fp4 e2m1": (2, 1, False, False),
}


#: What else is to be said of numbers beyond the largest; the GPU's own conversion is the instruction that Triton compiles to.
BEYOND = {
    "bfloat16": "PyTorch's conversion and the GPU's own do the same.",
    "float16": "PyTorch's conversion and the GPU's own do the same.",
    "fp8 e5m2": "That is PyTorch's choice: the GPU's own conversion, which Triton uses, saturates at 57344.",
    "fp8 e4m3": "To saturate is a choice: the GPU's own conversion does, PyTorch's does or gives NaN, by version and device.",
    "fp4 e2m1": "Nor has it a NaN, so everything beyond saturates.",
}


def _format(exponent: int, fraction: int, infinities: bool, nan: bool) -> dict:
    """What floats.js knows of a format. With infinities the whole last exponent stands for no number, else one pattern."""
    taken = 2**fraction if infinities else int(nan)
    power, rest = divmod(2 ** (exponent + fraction) - 1 - taken, 2**fraction)
    largest = (1 + rest / 2**fraction) * 2.0 ** (power - 2 ** (exponent - 1) + 1)
    return dict(exponent=exponent, fraction=fraction, infinities=infinities, nan=nan, largest=largest)


@picture
def formats():
    made = {name: _format(*bits) | {"beyond": BEYOND.get(name, "")} for name, bits in FORMATS.items()}
    return moving(
        "floats",
        "Which numbers can 4, 8, 16 or 32 bits be, and what happens to those in between?",
        "Type 0.1, 70000 or 1e-8, change the format, or press a bit.",
        "Exponent bits (amber) buy range, fraction bits (blue) steps within each power of two. What lies between two numbers is "
        "rounded to the nearer one, and of two equally near ones to the one whose last bit is 0. bfloat16 is float32 cut short.",
        (
            Control("format", "Format", "bfloat16", choices=tuple(made)),
            Control("kind", "x is", "a number", choices=("a number", "infinity", "not a number")),
            Control("x", "x", 0.1, -3.5e38, 3.5e38),
        ),
        {"formats": made},
        "; ".join(
            f"{name}: {each['exponent']} bits of exponent, {each['fraction']} of fraction, largest {each['largest']:.6g}"
            for name, each in made.items()
        )
        + ".",
    )


#: Seven of the eight weights of a group; the eighth is moved by itself.
WEIGHTS = (-0.7, 0.15, 0.9, -0.25, 0.5, -1.1, 0.35)


@picture
def integers():
    return moving(
        "integers",
        "How do eight weights become integers in one word, and what does one outlier cost the others?",
        "Drag the large dot: the outlier. Then give the weights another middle, or more bits.",
        "The range of the group, widened to contain 0, is cut into equal steps: a step is the scale. The zero point is the integer "
        "that stands for 0. Each weight becomes the nearest integer (the red line is what it is off by), the first in the lowest "
        "bits of the word.",
        (
            Control("outlier", "Outlier", 1.4, -4, 4, 0.1),
            Control("shift", "Middle of the others", 0.0, -2, 2, 0.1),
            Control("bits", "Bits", 4, choices=(8, 4, 2)),
        ),
        {"weights": WEIGHTS},
    )


@picture
def halves():
    """A sum of ones in half precision stops growing; found with Python's own float16."""

    def half(x: float) -> float:
        return struct.unpack("e", struct.pack("e", x))[0]

    panel = Panel(300, "Adding 1 again and again, float16 sum")
    axes = Axes(
        panel, (50, 42, 300, 206), (0, 1000, 2000, 3000, 4000), (0, 1000, 2000, 3000, 4000), ("numbers added", "")
    )
    total, points = 0.0, []
    for count in range(4001):
        points.append(axes(count, total))
        total = half(total + 1)
    panel.line([axes(0, 0), axes(4000, 4000)], "curve b")
    panel.line(points[::20] + points[-1:], "curve a")
    panel.text(280, axes(0, total)[1] - 8, f"stays at {total:g}", "small", "middle")
    panel.text(*axes(2500, 3100), "float32", "small", "end")
    return Picture(
        "Beyond 2048 neighbours in float16 are 2 apart: adding 1 is rounded away, and the sum stands still. Keep sums in "
        "float32.",
        f"Two sums of ones. In float32 the sum grows along a straight line to 4000; in float16 it stays at {total:g}.",
        [panel],
    )


def _word():
    """The first word of the example of fast/low_bit/planes.py, unsigned, and the numbers in it."""
    import torch

    from annotated_examples.gemlite.gemm import pack, unpack

    words = pack(torch.arange(336).view(48, 7) * 5 % 16, 4)
    return int(words[0, 0]) & 0xFFFFFFFF, unpack(words[:1, :1], 4).flatten().tolist()


def _bits(panel, y, value, kind):
    """32 bits in a row, the highest on the left; kind(bit) is the colour of one."""
    panel.cells(0, y, 1, 32, (11, 26), lambda r, c: kind(31 - c), lambda r, c: value >> (31 - c) & 1)


def _as_float16(half):
    """What sixteen bits are, read as float16, in steps of 2⁻²⁴."""
    return struct.unpack("<e", struct.pack("<H", half))[0] * 2**24


def _places(panel, y, values, shown):
    """The numbers under a word's bits, four bits each, those that are not `shown` dimmed."""
    for k, value in enumerate(values):
        panel.text((7 - k) * 44 + 22, y, value, "small" if k in shown else "small dim", "middle")


@picture
def word():
    value, numbers = _word()
    both = value >> 4 & 0x000F000F
    low, high = _as_float16(both & 0xFFFF), _as_float16(both >> 16)
    assert [low, high] == [numbers[1], numbers[5]]
    colour = lambda bit: "b" if bit // 4 in (1, 5) else "off"  # noqa: E731
    left = Panel(176, "One word: eight numbers of four bits")
    _bits(left, 28, value, lambda bit: "abgp"[bit // 4 % 4])
    _places(left, 72, numbers, range(8))
    left.text(0, 92, "number 7 is on the left, number 0 on the right", "small")
    left.text(0, 126, "word >> 4, and a mask of 2 x 4 bits:", "small")
    _bits(left, 136, both, lambda bit: colour(bit + 4))
    right = Panel(176, "The same bits, as two float16")
    for x, half, k in ((0, both >> 16, 5), (190, both & 0xFFFF, 1)):
        bits = lambda r, c, half=half: half >> (15 - c) & 1  # noqa: E731
        right.cells(x, 28, 1, 16, (10.5, 26), lambda r, c: "b" if c > 11 else "off", bits)
        right.text(x, 76, "sign 0, exponent 0:", "small")
        right.text(x, 94, f"{_as_float16(half):g} · 2⁻²⁴", "bold")
        right.text(x, 112, f"number {k} is {numbers[k]}", "small")
    right.text(0, 148, "No conversion. The sum is multiplied by 2²⁴.", "small")
    return Picture(
        "One shift and one mask take two numbers out of a word. With a zero exponent, their bits are already the floats "
        "that the tensor cores multiply.",
        f"The 32 bits of a word that holds the numbers {', '.join(map(str, numbers))}, the first in the lowest four bits. "
        f"Shifted right by 4 and masked, numbers 1 and 5 are left, {numbers[1]} and {numbers[5]}, one in each half. Read as "
        f"float16, with sign and exponent 0, the halves are {low:g} and {high:g} times 2⁻²⁴.",
        [left, right],
    )


@picture
def half_words():
    value, numbers = _word()
    panel = Panel(300, "A word is two half-words")
    _bits(panel, 28, value, lambda bit: "abgp"[bit // 4 % 4])
    _places(panel, 72, numbers, range(8))
    panel.line([(176, 22), (176, 78)], "strong")
    words, drawn = [], [(0, 0x000F000F, "a", 0, 108), (1, 0x00F000F0, "b", 4, 204)]
    for plane, mask, kind, lift, y in drawn:
        left = value & mask
        low, high = _as_float16(left & 0xFFFF), _as_float16(left >> 16)
        assert [low, high] == [numbers[plane] * 2**lift, numbers[plane + 4] * 2**lift]
        panel.text(0, y, f"plane {plane}: word & 0x{mask:08X}", "mono small")
        _bits(panel, y + 8, left, lambda bit, plane=plane, kind=kind: kind if bit // 4 % 4 == plane else "off")
        times = f"16 · {numbers[plane + 4]}", f"16 · {numbers[plane]}"
        high_text, low_text = times if lift else (numbers[plane + 4], numbers[plane])
        panel.text(88, y + 52, f"{high_text} · 2⁻²⁴", "small", "middle")
        panel.text(264, y + 52, f"{low_text} · 2⁻²⁴", "small", "middle")
        if lift:
            panel.text(0, y + 74, "not shifted: 16 times as large, corrected in the sum", "small")
        words.append(
            f"Masked with {mask:08X}, numbers {plane} and {plane + 4} are left, as {low:g} and {high:g} times 2⁻²⁴"
        )
    return Picture(
        "Masked, a word is the register that the tensor cores read: two neighbours along K. Plane 1 isn't even shifted.",
        f"The 32 bits of a word with the numbers {', '.join(map(str, numbers))}, in two halves of sixteen. "
        f"{'. '.join(words)}: {numbers[1]} and {numbers[5]} counted 16 times.",
        [panel],
    )


@picture
def banks():
    return moving(
        "banks",
        "Why can a column of a tile take thirty-two passes through shared memory, and what do padding or a swizzle change?",
        "Read a column of a tile 32 wide. Then pad its rows by one element, or swizzle them.",
        "A square in row i is where lane i finds its element. Word w of 4 bytes lies in bank w mod 32, and a bank hands out one "
        "word in a pass; lanes that want the same word share it. Padding makes rows longer; a swizzle stores column c of row r "
        "at c xor r, and needs no more room.",
        (
            Control("access", "A warp reads", "a column", choices=("a row", "a column")),
            Control("width", "Columns of the tile", 32, stops=(8, 16, 32, 64, 128)),
            Control("padding", "Padding of a row, elements", 0, 0, 8),
            Control("size", "Bytes of an element", 4, choices=(2, 4)),
            Control("swizzle", "Swizzled", 0, ticks=True),
        ),
    )
