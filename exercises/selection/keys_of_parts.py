"""# Who gets the last keys?

A list of `K` numbers is divided into parts, one for each program. The kernel takes tiles of `block` numbers, so a
part's share is a whole number of tiles, the same for all parts, and as small as it can be. Only the list's end cuts a
part short, and what comes after it is empty.

Write `numbers_of_parts(K, parts, block)`: how many numbers of the list each part gets, as a list.
"""


# %% solution
def numbers_of_parts(K, parts, block):
    # <<<
    share = -(-K // parts)
    share = -(-share // block) * block
    return [max(0, min(share, K - part * share)) for part in range(parts)]
    # >>>


# %% checks
PAGE = "kernels/attention/sparse_decode.md"
KIND = "fill in"
ORDER = 2
HINTS = (
    "First the share: K divided by the parts, rounded up, and then rounded up to whole tiles.",
    "Part number p begins at p shares. It ends one share later, or where the list ends.",
    "A part that would begin behind the end of the list has no numbers, and not a negative count.",
)
WHY = """A list of 2048 in 12 parts with tiles of 64 has shares of 192. Ten parts are full, the eleventh has 128
numbers, and the last one has none. It is stored all the same, with a log-sum-exp of −∞, so that the merge gives it no
weight. Shares that aren't whole tiles would give every part a tile of which some lanes are masked off."""


def check(t):
    def numbers(share):
        return lambda K, parts, block: [
            max(0, min(share(K, parts, block), K - part * share(K, parts, block))) for part in range(parts)
        ]

    def up(a, b):
        return -(-a // b)

    def balanced(K, parts, block):
        tiles = up(K, block)
        ends = [part * (tiles // parts) + min(part, tiles % parts) for part in range(parts + 1)]
        return [min(K, end * block) - min(K, start * block) for start, end in zip(ends, ends[1:])]

    def down(K, parts, block):
        share = up(K, block) // parts * block
        return [share] * (parts - 1) + [K - share * (parts - 1)]

    want = numbers(lambda K, parts, block: up(up(K, parts), block) * block)
    mistakes = {
        numbers(lambda K, parts, block: up(K, parts)): "A share is a whole number of tiles.",
        numbers(
            lambda K, parts, block: K // parts
        ): "A share is a whole number of tiles, and nothing may be left over.",
        numbers(
            lambda K, parts, block: block
        ): "That is one tile for each part, which leaves the rest of the list out.",
        lambda K, parts, block: [up(up(K, parts), block) * block] * parts: "The list ends within a part.",
        lambda K, parts, block: [
            min(up(up(K, parts), block) * block, K - part * up(up(K, parts), block) * block) for part in range(parts)
        ]: "A part that would begin behind the end of the list has no numbers.",
        lambda K, parts, block: [n for n in want(K, parts, block) if n]: "Each part has its number, also if that is 0.",
        balanced: "All shares are the same, and as many tiles. Only the end of the list makes one smaller.",
        down: "The last part doesn't take what is left over: a share is rounded up.",
    }
    cases = [(16, 2, 4), (10, 2, 4), (2048, 12, 64), (3, 4, 4), (7, 1, 4), (5, 5, 1), (0, 3, 16)]
    for _ in range(6):
        block = t.random.choice((1, 2, 4, 16))
        cases.append((t.random.randint(1, 12 * block), t.random.randint(1, 7), block))
    for case in cases:
        t.value("numbers_of_parts", case, want(*case), mistakes=mistakes)


WRONG = (
    ("numbers_of_parts(16, 2, 4) is None",),
    ("A share is a whole number of tiles", "    share = -(-share // block) * block\n", ""),
    ("has no numbers", "max(0, min(share, K - part * share))", "min(share, K - part * share)"),
    ("The list ends within a part", "max(0, min(share, K - part * share))", "share"),
    ("which leaves the rest of the list out", "share = -(-share // block) * block", "share = block"),
    ("numbers_of_parts(10, 2, 4) is [4, 4]", "share = -(-share // block) * block", "share = share // block * block"),
    (
        "All shares are the same",
        "tiles, left, found = -(-K // block), K, []\n"
        "for part in range(parts):\n"
        "    found.append(min(left, (tiles // parts + (part < tiles % parts)) * block))\n"
        "    left -= found[-1]\n"
        "return found",
    ),
    (
        "doesn't take what is left over",
        "share = -(-K // block) // parts * block\nreturn [share] * (parts - 1) + [K - share * (parts - 1)]",
    ),
    (
        "Each part has its number",
        "share = -(-K // parts // block) * block\nreturn [min(share, K - start) for start in range(0, K, share or 1)]",
    ),
)
RIGHT = (
    (
        "tiles = (K + block - 1) // block\n"
        "share = (tiles + parts - 1) // parts * block\n"
        "ends = [min(K, (part + 1) * share) for part in range(parts)]\n"
        "return [end - start for start, end in zip([0, *ends], ends)]",
    ),
    (
        "import math\n"
        "share, left, found = math.ceil(math.ceil(K / parts) / block) * block, K, []\n"
        "for _ in range(parts):\n"
        "    found.append(min(share, left))\n"
        "    left -= found[-1]\n"
        "return found",
    ),
)
