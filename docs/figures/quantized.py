"""Caches of few bits: bytes of a token, a step that leaves a sum, a row that is rotated, what each format
gets wrong, and codes that are numbers already."""

from draw import Control, Panel, Picture, bars, picture
from moving import moving

WIDTH = 128


@picture
def bytes():
    from operations.quantized_decode import bytes_of_a_row

    sizes = [("bfloat16", 2 * WIDTH * 2), ("int8 or e4m3", 2 * bytes_of_a_row(WIDTH, 8))]
    sizes += [("four bits", 2 * bytes_of_a_row(WIDTH, 4))]
    # As FlashMLA stores it: 512 codes, a float32 for each 128 of them, 64 rotated numbers in bfloat16.
    latents = [("latent, bfloat16", (512 + 64) * 2), ("latent, e4m3", 512 + 4 * 4 + 64 * 2)]
    heads, latent = Panel(192, f"A key and a value of {WIDTH} numbers"), Panel(142, "A latent of all heads")
    for panel, rows in ((heads, sizes), (latent, latents)):
        bars(panel, 44, [(name, size, f"{size} bytes") for name, size in rows], "abg")
    words = ", ".join(f"{name}: {size} bytes" for name, size in sizes + latents)
    return Picture(
        "What a token takes in the cache, steps and lowest values included. In eight bits the latent keeps its "
        f"{64} rotated numbers in bfloat16: {latents[1][1]} bytes are 512 codes, four scales and 128 bytes of those.",
        f"Bars. {words}.",
        [heads, latent],
    )


#: Two keys of four codes, with a step and a lowest value each, and a query.
QUERY, KEYS = (1, 2, 0, -1), (((0, 1, 2, 15), 1.0, 3.0), ((15, 7, 0, 8), 0.5, -4.0))


@picture
def folded():
    panel, words = Panel(226, "Two keys, one query"), []
    for x, title in ((0, "codes"), (132, "· query"), (204, "· step"), (278, "+ lowest · sum")):
        panel.text(x, 42, title, "small")
    panel.text(0, 190, f"query {', '.join(map(str, QUERY))}, sum {sum(QUERY)}".replace("-", "−"), "small")
    for row, (codes, step, lowest) in enumerate(KEYS):
        y = 52 + 60 * row
        product = sum(a * b for a, b in zip(QUERY, codes))
        scaled = product * step
        score = scaled + lowest * sum(QUERY)
        decoded = sum(a * (lowest + step * b) for a, b in zip(QUERY, codes))
        assert score == decoded
        for at, code in enumerate(codes):
            panel.box(30 * at, y, 28, 26, "b", code)
        for x, number, kind in ((132, product, "off"), (204, scaled, "off"), (290, score, "g")):
            panel.box(x, y, 56, 26, kind, f"{number:g}".replace("-", "−"))
        panel.text(0, y + 44, f"step {step:g}, lowest {lowest:g}".replace("-", "−"), "tiny")
        words.append(
            f"codes {codes}, step {step:g}, lowest value {lowest:g}: product {product:g}, score {score:g}, "
            f"the same as of the decoded key"
        )
    panel.text(0, 214, "no key is decoded: two operations for each score", "small")
    return Picture(
        "The query is multiplied by the codes. Step and lowest value come after the sum, once for each key.",
        f"A query {QUERY}, whose sum is {sum(QUERY)}, and two keys. {'; '.join(words)}.",
        [panel],
    )


@picture
def rotation():
    row = [round(((place * 7) % 16 - 7.5) / 7.5, 2) for place in range(16)]
    signs = [-1 if place * 5 % 11 % 3 == 1 else 1 for place in range(16)]
    return moving(
        "rotation",
        "When does a rotation make the steps finer?",
        "Make the outlier large. Then take it away and raise the mean: now the rotation is what makes an outlier.",
        "A row of 16 numbers, and the same rotated by Hadamard's matrix. The step is a fifteenth of the range.",
        (
            Control("outlier", "one outlier", 12, low=0, high=20),
            Control("mean", "added to all", 0, low=0, high=5, step=0.5),
            Control("signed", "random signs first", 0, ticks=True),
        ),
        {"row": row, "place": 5, "signs": signs},
    )


@picture
def errors():
    """Of one head: 1024 keys of 128 numbers, eight queries whose scores have a deviation of about 2."""
    import torch

    from annotated_examples.attention.quantized_cache import packed_reference, quantized_reference
    from annotated_examples.common.codes import decoded, rotation

    generator, count = torch.Generator().manual_seed(1), 1024
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    few = torch.arange(WIDTH) % 32 == 7
    data = {
        "normal": lambda x: x,
        "4 channels\n20 times": lambda x: x * (1 + 19 * few),
        "all shifted\nby 2": lambda x: x + 2,
        "4 channels\nat 20": lambda x: x + 20 * few,
    }

    def through(x, dtype, channel=False):
        if channel:
            codes, scale = quantized_reference(x.float().view(-1, 64, 1, WIDTH), dtype, dim=1)
            return decoded(packed_reference(codes), scale.squeeze(1), "channel", torch.float64).view(-1, WIDTH)
        codes, scale = quantized_reference(x.float()[:, None, None], dtype)
        return decoded(packed_reference(codes), scale.squeeze(-2), "token", torch.float64).view(-1, WIDTH)

    def turned(x, signs):
        matrix = rotation(signs, torch.float64)
        return through(x @ matrix, torch.uint8) @ matrix.T

    random = torch.where(torch.rand(WIDTH, generator=generator) < 0.5, -1.0, 1.0)
    ways = {
        "int8": lambda x: through(x, torch.int8),
        "e4m3": lambda x: through(x, torch.float8_e4m3fn),
        "int4": lambda x: through(x, torch.uint8),
        "int4\nH": lambda x: turned(x, torch.ones(WIDTH)),
        "int4\nsigns, H": lambda x: turned(x, random),
        "int4\nchannel": lambda x: through(x, torch.uint8, channel=True),
    }
    table = []
    for shape in data.values():
        k, v, q = shape(draw(count, WIDTH)), draw(count, WIDTH), draw(8, WIDTH)
        q = 2 * q / k.std(0)
        exact = torch.softmax(q @ k.T / WIDTH**0.5, -1) @ v
        row = []
        for name, way in ways.items():
            value = through(v, torch.uint8) if name.endswith("channel") else way(v)
            found = torch.softmax(q @ way(k).T / WIDTH**0.5, -1) @ value
            row.append(((found - exact).pow(2).mean() / exact.pow(2).mean()).sqrt().item())
        table.append(row)
    panel, left, width = Panel(58 + 42 * len(data), "Error of attention's output"), 78, 47
    for column, name in enumerate(ways):
        for line, word in enumerate(name.split("\n")):
            panel.text(left + width * column + width / 2, 34 + 13 * line, word, "tiny", "middle")
    for number, (name, row) in enumerate(zip(data, table)):
        for line, word in enumerate(name.split("\n")):
            panel.text(0, 70 + 42 * number + 14 * line, word, "tiny")
        for column, error in enumerate(row):
            kind = "g" if error < 0.1 else "a" if error < 0.5 else "r"
            panel.box(left + width * column, 54 + 42 * number, width - 3, 36, kind, f"{error:.2g}")
    words = "; ".join(
        f"{name.replace(chr(10), ' ')}: "
        + ", ".join(f"{way.replace(chr(10), ' ')} {error:.2g}" for way, error in zip(ways, row))
        for name, row in zip(data, table)
    )
    return Picture(
        "Root mean square of the error over that of the output, for keys of four kinds; values are normal and in the same "
        "format. A rotation (H) helps against large channels, gains nothing on normal data, and makes a common mean worse "
        "unless signs come first. A step for each channel of the keys is as good on all of them.",
        f"A table of errors by kind of data and format, in float64 apart from the codes. {words}.",
        [panel],
    )


@picture
def unit():
    """The first key and the first query of the fast version's example."""
    import torch
    from helpers import numbers_of

    query, codes = [at * 5 % 7 - 3 for at in range(8)], [at * 37 % 251 for at in range(36, 40)]
    units = torch.tensor(codes, dtype=torch.uint8).view(torch.uint16)
    word, shades, whole = units[0].item(), "abgp", "{:g}".format
    tiles = [[64 * x for x in row] for row in numbers_of(units)]
    left, words = Panel(290, f"A unit of 16 bits: {word:X} in base 16"), []
    nibbles = lambda bits: [f"{bits >> 12 - 4 * at & 15:04b}" for at in range(4)]  # noqa: E731
    left.cells(104, 28, 1, 4, (42, 26), lambda r, c: shades[3 - c], lambda r, c: nibbles(word)[c])
    left.text(0, 46, "as loaded", "small")
    for i, row in enumerate(tiles):
        y, mask, moved = 72 + 54 * i, 240 if i % 2 else 15, "swap " * (i > 1)
        kept = nibbles((word >> 8 if i > 1 else word) & mask)
        left.text(0, y + 18, f"{moved}& {mask}", "mono small")
        left.cells(
            104, y, 1, 4, (42, 26),
            lambda r, c, i=i: shades[i] if c == 3 - i % 2 else "off", lambda r, c, kept=kept: kept[c],
        )  # fmt: skip
        left.text(104, y + 42, f"· 2{'¹²³' if i % 2 else '¹²⁷'} − 8/64", "small")
        left.text(356, y + 18, f"{whole(row[0])}/64".replace("-", "−"), "bold", "end")
        left.text(356, y + 42, f"({word >> 4 * i & 15} − 8) / 64", "small", "end")
        words.append(f"code {word >> 4 * i & 15} becomes {whole(row[0])}/64")
    right = Panel(290, "Every fourth number of the query")
    for y, name, numbers in (
        (28, "query", query),
        (60, "key · 64", [tiles[at % 4][at // 4] for at in range(8)]),
    ):
        right.text(0, y + 18, name, "small")
        right.cells(
            64, y, 1, 8, (36, 26),
            lambda r, c: shades[c % 4], lambda r, c, numbers=numbers: whole(numbers[c]).replace("-", "−"),
        )  # fmt: skip
    sums = [sum(q * k for q, k in zip(query[i::4], row)) for i, row in enumerate(tiles)]
    for i, row in enumerate(tiles):
        y = 106 + 36 * i
        for x, numbers in ((0, query[i::4]), (104, row)):
            right.cells(
                x, y, 1, 2, (36, 26),
                lambda r, c, i=i: shades[i], lambda r, c, numbers=numbers: whole(numbers[c]).replace("-", "−"),
            )  # fmt: skip
        right.text(88, y + 18, "·", "", "middle")
        right.text(192, y + 18, "=", "", "middle")
        right.box(208, y, 56, 26, shades[i], whole(sums[i]).replace("-", "−"))
    total = sum(q * ((codes[at // 2] >> at % 2 * 4 & 15) - 8) for at, q in enumerate(query))
    assert total == sum(sums)
    right.line([(208, 250), (264, 250)])
    right.text(176, 272, "sum", "small", "end")
    right.text(236, 272, whole(total).replace("-", "−"), "bold", "middle")
    return Picture(
        "The first key of the example below. Left: a mask leaves the bits of a small bfloat16, and one multiply-add makes it "
        "(code − 8) / 64. Right: codes stay where they are, so each place of a unit, a colour, is a product of its own. "
        "The four add up to the product of the whole rows.",
        f"The unit {word:X} has four codes. By a mask and a multiply-add {', '.join(words)}. Numbers 0 and 4 of the query meet the "
        f"first codes of both units, 1 and 5 the second, and so on: the products are {', '.join(map(whole, sums))}, together "
        f"{whole(total)}, in units of 1/64.",
        [left, right],
    )
