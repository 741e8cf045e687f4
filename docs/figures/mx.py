"""Microscaling: what a block holds, where its largest element lands, and how its product reads it."""

import math

from academy.results import figures

import card
from draw import Panel, Picture, picture

RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
FORMATS = (("MXFP8", 32, 8, "8 bits of exponent"), ("MXFP4", 32, 4, "8 bits of exponent"), ("NVFP4", 16, 4, "e4m3"))


def power_of_two(exponent: int) -> str:
    return f"2{str(exponent).translate(RAISED)}"


@picture
def blocks():
    """The bits of 32 elements in each format, and in bfloat16, to scale."""
    panel, words = Panel(262, "32 elements, in bits"), []
    width = 320 / (32 * 16)
    rows = [("bfloat16", 32, 16, "")] + list(FORMATS)
    for row, (name, group, bits, scale) in enumerate(rows):
        y = 40 + 54 * row
        total = 32 * bits + (8 * 32 // group if scale else 0)
        panel.text(20, y, f"{name}: {total} bits, {total / 32:g} an element", "small")
        x = 20.0
        for _ in range(32 // group):
            if scale:
                panel.box(x, y + 8, 8 * width, 20, "a")
                x += 8 * width
            panel.cells(x, y + 8, 1, group, (bits * width, 20), lambda r, c: "b")
            x += group * bits * width
        words.append(
            f"{name} {total} bits" + (f", {32 // group} scale{'s' * (group < 32)} in {scale}" if scale else "")
        )
    return Picture(
        "Blue the codes of 32 elements, amber their scales, as wide as they have bits. NVFP4 has one more number, for the tensor.",
        "32 elements take " + "; ".join(words) + ".",
        [panel],
    )


def _landed(mantissas, largest, rule):
    """Where a largest magnitude with this mantissa ends, relative to the largest code."""
    return [
        m / largest / (2 if rule == "rceil" and m > largest else 1) for m in mantissas
    ]  # fmt: skip


@picture
def landing():
    """Where the largest magnitude of a block ends, relative to the largest code, for each mantissa that it may have."""
    panels, words = [], []
    steps = 96
    mantissas = [1 + i / steps for i in range(steps)]
    for name, largest in (("e4m3, e5m2", 1.75), ("e2m1", 1.5)):
        panel = Panel(214, f"{name}: largest code {largest} times a power of two")
        at = lambda m: 40 + 290 * (m - 1)  # noqa: E731
        height = lambda value: 180 - 96 * value  # noqa: E731
        panel.line([(40, height(0)), (330, height(0))])
        panel.line([(40, height(1)), (330, height(1))], "dashed")
        panel.text(36, height(1) + 4, "1", "small", "end")
        panel.text(36, height(0.5) + 4, "½", "small", "end")
        for rule, kind in (("floor", "a"), ("rceil", "b")):
            points = [(at(m), height(v)) for m, v in zip(mantissas, _landed(mantissas, largest, rule))]
            cut = next((i for i, m in enumerate(mantissas) if m > largest), steps)
            for part in (points[:cut], points[cut:]):
                panel.line(part, f"curve {kind}")
        for m in (1, 1.25, 1.5, 1.75, 2):
            panel.text(at(m), 194, f"{m:g}", "small", "middle")
        panel.text(at(1.5), 210, "mantissa of the largest magnitude", "small", "middle")
        beyond = max(_landed(mantissas, largest, "floor"))
        lost = 1 - 1 / (2 / largest)
        panel.text(at(largest) + 4, height(beyond) - 10, f"up to {lost:.1%} lost", "small", "end")
        panels.append(panel)
        words.append(
            f"In {name} one with a mantissa above {largest} saturates under floor, and loses up to {lost:.1%}; under rceil it "
            f"ends at {_landed([largest + 1e-9], largest, 'rceil')[0]:.2f} of the largest code or above"
        )
    return Picture(
        "Where the largest magnitude of a block ends, with the largest code at 1. Amber floor, blue rceil. Up to the largest code's "
        "mantissa they are the same.",
        ". ".join(words) + ".",
        panels,
    )


@picture
def product():
    """A tile of packed weights, unpacked, scaled, multiplied."""
    panel = Panel(250, "one row of a tile of weights, 64 along the sum")
    steps = (
        ("32 bytes are loaded", 32, "b", 1),
        ("64 codes, two from each byte", 64, "b", 1),
        ("2 exponents, one byte each", 2, "a", 32),
        ("64 numbers in the dtype of a", 64, "g", 1),
    )
    for row, (text, count, kind, _) in enumerate(steps):
        y = 44 + 50 * row
        panel.text(20, y, text, "small")
        panel.cells(20, y + 8, 1, count, (320 / count, 18), lambda r, c, kind=kind: kind)
    panel.text(20, 242, "then tl.dot, as with any weights", "small")
    return Picture(
        "What happens to one row of a tile between memory and the tensor cores. A byte's neighbours along the sum are neighbours in "
        "the tile.",
        "For 64 weights of a row 32 bytes of codes and 2 of exponents are loaded, 34 bytes in all where bfloat16 has 128. Each byte "
        "gives 2 codes, each code a number, which is multiplied by its exponent's power of two.",
        [panel],
    )


def _bits_in(panel, top, name, word, kinds, words=""):
    """32 cells, the highest bit on the left; `kinds` says which bits are of what."""
    panel.text(4, top - 5, name, "small")
    panel.text(356, top - 5, words, "small", "end")
    panel.cells(4, top, 1, 32, (11, 20), lambda r, c: kinds(31 - c), lambda r, c: word >> (31 - c) & 1)


@picture
def register():
    """A word of eight codes, and what the kernel's `two_codes` makes of its first plane."""
    import torch

    from helpers import planes_of

    codes = list(range(9, 17))  # the second word of the example: codes 9 to 15, then 0
    word = sum(code % 16 << 4 * place for place, code in enumerate(codes))
    both = planes_of(word)[0]
    halves = torch.tensor([both & 0xFFFF, both >> 16]).to(torch.int16).view(torch.bfloat16).double() * 2.0**126
    low, high = halves.tolist()
    taken = word & 0x000F000F
    product = taken * 0x1040
    panel = Panel(310, "eight codes of four bits in a register, plane 0")
    half = lambda bit: "b" if bit % 16 < 4 else "off"  # noqa: E731
    copies = lambda bit: "b" if 6 <= bit % 16 < 10 else "p" if 12 <= bit % 16 else "off"  # noqa: E731
    kept = lambda bit: "b" if 6 <= bit % 16 < 9 else "p" if bit % 16 == 15 else "off"  # noqa: E731
    _bits_in(
        panel,
        44,
        "the word",
        word,
        lambda bit: "b" if bit % 16 < 4 else "",
        "codes " + " ".join(f"{code % 16}" for code in codes[::-1]),
    )
    _bits_in(panel, 96, "& 0x000F000F", taken, half, f"codes {codes[4]} and {codes[0]}")
    _bits_in(panel, 148, "× 0x1040: each code twice", product, copies, "6 and 12 places higher")
    _bits_in(panel, 200, "& 0x81C081C0", both, kept, f"{both:08X}")
    for left, value in ((4, high), (180, low)):
        panel.line([(left, 232), (left + 11, 232)], "strong")
        panel.line([(left + 13, 232), (left + 98, 232)], "strong")
        panel.line([(left + 100, 232), (left + 175, 232)], "strong")
        panel.text(left, 248, "sign, exponent", "small")
        panel.text(left + 102, 248, "mantissa", "small")
        panel.text(left, 276, f"a bfloat16, {value:g} · 2⁻¹²⁶".replace("-", "−"), "small")
    panel.text(4, 302, "One multiplication of the pair by 2¹²⁶ and the scale is left.", "small")
    return Picture(
        "Three operations for two weights. Blue: the bits that become exponent and mantissa; purple: the copy of which only the "
        "sign stays.",
        f"The word {word:08X} holds the codes {', '.join(str(code % 16) for code in codes)}, the first in the lowest four bits. "
        f"The mask leaves codes {codes[0]} and {codes[4]}, one in each half: {taken:08X}. The multiplication gives {product:X}, "
        f"the second mask {both:08X}. Read as two bfloat16 these are {low:g} and {high:g}, times 2 to the power of −126.",
        [panel],
    )  # fmt: skip


@picture
def threads():
    """Which of a row's four threads holds which word, for both instructions, and the order that `in_threads` makes."""
    from helpers import order_of_words

    order = order_of_words(16)
    panel = Panel(260, "16 words of a row: 128 weights, 4 groups")
    kinds, size = ("a", "b", "g", "p"), 22
    rows = (
        ("mma.m16n8k16: four words side by side", lambda place: place // 4, list(range(16))),
        ("wgmma: every fourth word", lambda place: place % 4, list(range(16))),
        ("wgmma, words in another order", lambda place: place % 4, order),
    )
    for row, (name, thread, words) in enumerate(rows):
        y = 44 + 68 * row
        panel.text(4, y - 5, name, "small")
        panel.cells(
            4, y, 1, 16, size,
            lambda r, c, thread=thread: kinds[thread(c)],
            lambda r, c, words=words: words[c],
        )  # fmt: skip
        groups = [len({words[c] // 4 for c in range(16) if thread(c) == one}) for one in range(4)]
        panel.text(4, y + 38, f"scales for each thread: {max(groups)}", "small")
    for thread, kind in enumerate(kinds):
        panel.box(4 + 88 * thread, 236, 20, 18, kind)
        panel.text(28 + 88 * thread, 250, f"thread {thread}", "small")
    return Picture(
        "Colours are the four threads that hold a row of the left factor, numbers are words. Words 0 to 3 are the first group of "
        "32 weights, with one scale.",
        "Under mma.m16n8k16 each of four threads holds four neighbouring words, which is a group. Under wgmma it holds every "
        f"fourth, words of four groups. In the order {', '.join(map(str, order))} every fourth word is of one group again.",
        [panel],
    )


#: Rows of `a`, and the rung and the library's rung of ladder/mx_matmul that have them.
ONE_CALL = (
    (1, "in order in each program", "cuBLAS"),
    (16, "in order in each program", "cuBLAS"),
    (32, "in order in each program", "cuBLAS"),
    (64, "in order beforehand", "cuBLAS"),
    (128, "tiles of 128 rows", "cuBLAS, many rows"),
    (256, "tiles of 256 rows", "cuBLAS, many rows"),
)
IN_A_ROW = tuple((rows, "eight calls in a row", "cuBLAS, eight calls in a row") for rows in (1, 16, 64))


@picture
def rows():
    """How long a call takes by the number of rows, beside the library with weights in sixteen bits."""
    record = figures.first(card.ROOT, "ladder/mx_matmul")
    rungs = {rung["name"]: rung for rung in record["rungs"]}
    panels, words = [], []
    for title, cases in (("one call in a graph", ONE_CALL), ("one of eight calls in a row", IN_A_ROW)):
        panel = Panel(60 + 46 * len(cases), title)
        time = lambda name, count: 1000 * rungs[name][f"{count}_row{'s' * (count > 1)}_ms"]  # noqa: E731
        most = max(time(name, count) for count, *names in cases for name in names)
        for place, (count, ours, library) in enumerate(cases):
            y = 34 + 46 * place
            panel.text(0, y + 22, f"{count} row{'s' * (count > 1)}", "small")
            for row, (name, kind) in enumerate(((ours, "a"), (library, "b"))):
                long = 210 * time(name, count) / most
                panel.box(64, y + 19 * row, long, 17, kind)
                panel.text(70 + long, y + 19 * row + 13, f"{time(name, count):.1f} µs", "small")
            words.append(f"{title}, {count}: {time(ours, count):.1f} µs here, {time(library, count):.1f} µs cuBLAS")
        panels.append(panel)
    size = " x ".join(map(str, record["shape"]))
    return Picture(
        f"{size} weights in four bits, amber, beside cuBLAS with weights in sixteen bits, blue; bfloat16, on an "
        f"{record['device']}. In a row of calls, each with weights of its own, only the first waits for the launch of the graph.",
        "; ".join(words) + ".",
        panels,
    )


@picture
def lines():
    """The numbers above zero of the three formats, on one line of powers of two."""
    import torch

    from annotated_examples.mx.microscaling import E2M1

    formats = {"e2m1": [value for value in E2M1 if value > 0]}
    for name, dtype in (("e4m3", torch.float8_e4m3fn), ("e5m2", torch.float8_e5m2)):
        numbers = torch.arange(128, dtype=torch.uint8).view(dtype).float()
        formats[name] = [value for value in numbers.tolist() if 0 < value < math.inf]
    panel, words = Panel(226, "numbers above zero, by powers of two"), []
    at = lambda value: 40 + 300 * (math.log2(value) + 17) / 33  # noqa: E731
    for row, (name, numbers) in enumerate(formats.items()):
        y = 66 + 50 * row
        low, high = numbers[0], numbers[-1]
        panel.text(0, y + 4, name, "small")
        panel.line([(40, y), (340, y)], "off")
        for value in numbers:
            panel.line([(at(value), y - 10), (at(value), y + 2)], "b")
        panel.text(40, y + 18, f"{len(numbers)} numbers, {high / low:,.0f} to one", "small")
        words.append(f"{name} has {len(numbers)}, from {low:.3g} to {high:g}, {high / low:,.0f} to one")
    for exponent in (-16, -8, 0, 8, 15):
        panel.text(at(2.0**exponent), 216, power_of_two(exponent), "small", "middle")
    return Picture(
        "Every number above zero. Each power of two has as many numbers as the one before, down to where they are equally far apart "
        "and end.",
        "Numbers above zero of three formats: " + "; ".join(words) + ".",
        [panel],
    )


@picture
def survivors():
    """What becomes zero under one scale, for elements smaller and smaller than the largest."""
    import torch

    from annotated_examples.fp8.quantize import quantize_fp8_reference
    from annotated_examples.mx import microscaling as mx

    ratios = [2.0**-power for power in range(0, 21)]
    x = torch.zeros(len(ratios), 32)
    x[:, 0] = 1
    x[:, 1] = torch.tensor(ratios)
    codes, scale = quantize_fp8_reference(x)
    wide = quantize_fp8_reference(x, dtype=torch.float8_e5m2)
    decoded = {
        "e4m3": codes.float() * scale,
        "e5m2": wide[0].float() * wide[1],
        "e2m1": mx.dequantize_mx_reference(*mx.quantize_mx_reference(x, mx.FP4), torch.float32),
    }
    panel, words = Panel(196, "an element beside one that is larger"), []
    at = lambda power: 52 + 14 * power  # noqa: E731
    for row, (name, numbers) in enumerate(decoded.items()):
        y = 44 + 38 * row
        panel.text(0, y + 14, name, "small")
        lost = (numbers[:, 1] == 0).tolist()
        panel.cells(52, y, 1, len(ratios), (14, 20), lambda r, c, lost=lost: "a" if lost[c] else "b")
        last = power_of_two((lost.index(True) if True in lost else len(lost)) - 1)
        words.append(f"in {name} {'up to' if True in lost else 'beyond'} {last}")
    for power in (0, 5, 10, 15, 20):
        panel.text(at(power) + 7, 168, power_of_two(power), "small", "middle")
    panel.text(52, 188, "times smaller; amber becomes zero", "small")
    return Picture(
        "A group has one scale, set by its largest element. If another is smaller by too many powers of two, nothing "
        "is left of it.",
        "An element survives beside one that is larger by a power of two: " + ", ".join(words) + ".",
        [panel],
    )
