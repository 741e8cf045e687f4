"""Caches of few bits: bytes of a token, a step that leaves a sum, a row that is rotated, and what each format gets wrong."""

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
