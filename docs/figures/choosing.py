"""Choosing a token: floats as whole numbers with the same order, and the rounds that find a threshold."""

import math
import struct

from draw import Panel, Picture, picture


def _bits(value):
    """Of a float32, as a whole number."""
    return struct.unpack("<I", struct.pack("<f", value))[0]


def _key(value):
    """What the kernel's `key_of` makes of a float."""
    bits = _bits(value + 0.0)
    return bits ^ 0xFFFFFFFF if bits >> 31 else bits | 0x80000000


@picture
def keys():
    numbers = (math.inf, 2.0, 1.0, 0.0, -1.0, -2.0, -math.inf)
    panel = Panel(40 + 26 * len(numbers), "")
    for x, title in ((0, "float"), (84, "its bits"), (222, "its key")):
        panel.text(x, 15, title, "bold")
    words = []
    for row, value in enumerate(numbers):
        y, bits, key = 42 + 26 * row, _bits(value), _key(value)
        name = f"{value:g}".replace("inf", "∞").replace("-", "−")
        panel.text(0, y, name)
        panel.box(80, y - 16, 124, 22, "a" if bits >> 31 else "b")
        panel.text(88, y, f"{bits:08X}")
        panel.box(218, y - 16, 124, 22, "g")
        panel.text(226, y, f"{key:08X}")
        words.append(f"{name} has the bits {bits:08X} and the key {key:08X}")
    return Picture(
        "Bits and keys in hexadecimal digits. Read as whole numbers, the bits of negative floats, amber, are larger than those of "
        "positive ones, and run the wrong way. The keys fall from top to bottom, as the floats do.",
        "; ".join(words) + ".",
        [panel],
    )


@picture
def rounds():
    """The search for the 7 largest of 24 logits, two bits a round, over the sorted row."""
    count, k, bits = 24, 7, 2
    logits = sorted((round(4 * math.sin(2.4 * i) + 2.3 * math.sin(5.1 * i + 1), 2) for i in range(count)), reverse=True)
    keys, low, shown = [_key(value) for value in logits], 0, []
    for shift in range(32 - bits, -1, -bits):
        candidates = [low + (digit << shift) for digit in range(1 << bits)]
        low = max(c for c in candidates if sum(key >= c for key in keys) >= k)
        shown.append((low, low + (1 << shift)))
    first = next(number for number, (low, high) in enumerate(shown) if sum(low <= key < high for key in keys) == 1)
    size, left, top = 12, 70, 44
    panel = Panel(top + 16 * len(shown) + 34, f"{count} logits, the largest on the left")
    panel.text(left, 36, f"{logits[0]:g}", "small")
    panel.text(left + size * count, 36, f"{logits[-1]:g}".replace("-", "−"), "small", "end")
    for number, (low, high) in enumerate(shown):
        y = top + 16 * number
        panel.text(0, y + 11, f"round {number + 1}", "small")
        panel.cells(
            left, y, 1, count, (size, 13),
            lambda r, c, low=low, high=high: "b" if keys[c] >= high else "a" if keys[c] >= low else "off",
        )  # fmt: skip
    panel.line([(left + size * k, top - 4), (left + size * k, top + 16 * len(shown))], "strong")
    panel.text(left, top + 16 * len(shown) + 18, f"kept: {k} logits, down to {logits[k - 1]:g}", "small")
    words = [
        f"after round {number + 1}, {sum(key >= high for key in keys)} are above and {sum(low <= key < high for key in keys)} in question"
        for number, (low, high) in enumerate(shown[: first + 1])
    ]
    return Picture(
        f"Looking for the {k} largest, {bits} bits of the keys a round. Blue is above the threshold for certain, grey below it, "
        f"amber still in question. The kernel never sorts: here the row is sorted to be looked at. From round {first + 1} on one "
        "logit is left, and the other rounds find its last digits.",
        f"{count} sorted logits, {k} of them wanted. " + "; ".join(words) + f". The threshold is {logits[k - 1]:g}.",
        [panel],
    )


@picture
def digits():
    """The 7th largest of 24 keys in three blocks, two bits a launch."""
    count, k, width = 24, 7, 8
    keys = [int(digit) for digit in "314159265358979323846264"]  # any will do
    blocks = [keys[start : start + width] for start in range(0, count, width)]
    panel = Panel(206, f"{count} keys, a program for each block of {width}")
    low, words, top = 0, [], 84
    for number, step in enumerate((4, 1)):
        candidates = [low + digit * step for digit in range(4)]
        counts = [[sum(key >= each for key in block) for each in candidates] for block in blocks]
        sums = [sum(column) for column in zip(*counts)]
        low = max(each for each, total in zip(candidates, sums) if total >= k)
        left, picked = 186 * number, candidates.index(low)
        panel.text(left, top - 8, f"launch {number + 1}: how many are ≥", "small")
        for column, each in enumerate(candidates):
            panel.text(left + 66 + 28 * column, top + 8, each, "bold", "middle")
        for row, line in enumerate([*counts, sums]):
            y = top + 16 + 22 * row
            panel.text(
                left, y + 15, f"block {row}" if row < len(blocks) else "all", "small" if row < len(blocks) else "bold"
            )
            panel.cells(
                left + 52, y, 1, 4, (28, 20),
                lambda r, c, row=row, picked=picked: "a" if c == picked and row == len(blocks) else "g",
                lambda r, c, line=line: line[c],
            )  # fmt: skip
        words.append(f"launch {number + 1}: of {candidates} the counts are {sums}, and {low} is the largest with {k}")
    for block, numbers in enumerate(blocks):
        panel.cells(
            120 * block, 34, 1, width, (14, 20), lambda r, c, numbers=numbers: "b" if numbers[c] >= low else "off",
            lambda r, c, numbers=numbers: numbers[c],
        )  # fmt: skip
    return Picture(
        f"Which key is the {k}th largest? Each program counts its block for every value that the next digit may have, and stores "
        f"the counts. The next launch adds them up, and takes the largest value that at least {k} keys reach, amber. After two "
        f"digits of two bits that is {low}: blue keys are kept. The kernel takes four bits a launch, so eight launches.",
        f"{count} keys in {len(blocks)} blocks: {blocks}. " + "; ".join(words) + ".",
        [panel],
    )
