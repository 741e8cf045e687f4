"""# Whole blocks of keys

*Mixture of block attention* (MoBA) selects blocks of `size` keys for each query, and not single keys. With a function
that attends to a list of keys nothing new is needed but the list. A query at position `last` sees the keys 0 to `last`,
and its own block, the one with `last` in it, is always read, whether it was selected or not.

Write `keys_of_blocks(blocks, size, last)`: the list of the keys, ascending, each of them once. `blocks` are numbers of
blocks, in any order, and none of them begins behind `last`.
"""


# %% solution
def keys_of_blocks(blocks, size, last):
    # <<<
    chosen = sorted({*blocks, last // size})
    return [key for block in chosen for key in range(block * size, block * size + size) if key <= last]
    # >>>


# %% checks
PAGE = "kernels/attention/sparse_mla.md"
KIND = "fill in"
ORDER = 5
HINTS = (
    "Block b has the keys b · size to b · size + size − 1. The own block is `last // size`.",
    "A set keeps the own block from being there twice, and so its keys from counting twice.",
)
WHY = """Blocks are read in longer pieces than single keys, and a mean of its keys is enough to score one. (The last
block may have fewer keys: its mean is over those that it has, and not over `size`.) Heads that share a key share the
list. Where there are fewer blocks than are wanted, all are taken. Two things go wrong easily: the own block counted
twice, and its keys behind the query, which the list must not name, because there is no causal mask that would hide
them. *Native sparse attention* (NSA) also attends to one compressed key of each block and to a window of the newest
keys, and gates weigh the three."""


def check(t):
    cases = [([0], 4, 9), ([], 4, 9), ([2, 0], 4, 9), ([1], 3, 5), ([0], 1, 0), ([3, 1], 2, 7)]

    def listed(blocks, size, last):
        return [key for block in blocks for key in range(block * size, block * size + size) if key <= last]

    def to_the_end(blocks, size, last):
        chosen = {*blocks, last // size}
        return [key for block in sorted(chosen) for key in range(block * size, block * size + size)]

    mistakes = {
        lambda blocks, size, last: listed(sorted({*blocks}), size, last): "The block with `last` in it is always read.",
        lambda blocks, size, last: listed(sorted([*blocks, last // size]), size, last): "The own block is there twice.",
        lambda blocks, size, last: listed([*blocks, last // size], size, last): "Keys are ascending, and each once.",
        to_the_end: "No key behind `last` is seen.",
    }
    for _ in range(5):
        size, last = t.random.randint(1, 5), t.random.randint(0, 30)
        own = last // size
        cases.append(([b for b in range(own, -1, -1) if t.random.randint(0, 1)], size, last))
    for blocks, size, last in cases:
        wanted = {key // size for key in range(last + 1)} & {*blocks, last // size}
        keys = [key for key in range(last + 1) if key // size in wanted]
        t.value("keys_of_blocks", (blocks, size, last), keys, mistakes=mistakes)


WRONG = (
    ("keys_of_blocks([0], 4, 9) is None, should be [0, 1, 2, 3, 8, 9]",),
    ("The block with `last` in it is always read", "sorted({*blocks, last // size})", "sorted(blocks)"),
    (
        "The own block is there twice",
        "sorted({*blocks, last // size})",
        "sorted([*blocks, last // size])",
    ),
    ("No key behind `last` is seen", " if key <= last", ""),
)
RIGHT = (
    ("return [key for key in range(last + 1) if key // size in {*blocks, last // size}]",),
    (
        "chosen = set(blocks)\nchosen.add(last // size)\nkeys = []\nfor block in sorted(chosen):\n"
        "    keys += range(block * size, min(block * size + size, last + 1))\nreturn keys",
    ),
)
