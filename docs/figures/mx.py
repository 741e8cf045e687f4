"""Microscaling: what a block holds, where its largest element lands, and how its product reads it."""

import math

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
