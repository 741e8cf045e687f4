"""# How many texts fit on a card?

A card has room for `memory` bytes, of which the weights take `weights`. What is left is a pool of pages of `page`
tokens. A token takes `size` bytes in each of `layers` layers, and a text of `tokens` tokens takes whole pages, in every
layer.

Write `texts(memory, weights, page, tokens, layers, size)`: how many texts fit.
"""


# %% solution
def texts(memory, weights, page, tokens, layers, size):
    # <<<
    pages = (memory - weights) // (page * layers * size)
    return max(pages, 0) // -(-tokens // page)
    # >>>


# %% checks
PAGE = "learn/fewer_bytes.py"
KIND = "fill in"
ORDER = 1
HINTS = (
    "Count pages, not bytes: how many are there, and how many does a text need?",
    "A text of one token more than a page needs two pages. And weights may leave nothing.",
)
WHY = """An H200 of 141 GB with 70 GB of weights has room for 13 texts of 16 thousand tokens, if they have 8 heads of
128 numbers in 80 layers, and for 47 with latents of 1152 bytes. So fewer bytes aren't only read in less time: more
texts share one reading of the weights. To select keys lowers that number, to 42: the indexer's
132 bytes are kept, too."""


def check(t):
    def want(memory, weights, page, tokens, layers, size):
        pages = max(memory - weights, 0) // (page * layers * size)
        return pages // ((tokens + page - 1) // page)

    for given in (
        (1000, 200, 4, 8, 2, 5),
        (1000, 200, 4, 9, 2, 5),
        (100, 200, 4, 8, 2, 5),
        (141 * 10**9, 70 * 10**9, 64, 16384, 80, 4096),
    ):
        t.value("texts", given, want(*given))
    for _ in range(8):
        page, tokens = t.random.choice((1, 3, 16, 64)), t.random.randint(1, 300)
        layers, size = t.random.randint(1, 9), t.random.randint(1, 40)
        weights = t.random.randint(0, 5000)
        given = (weights + t.random.randint(0, 200) * page * layers * size // 3, weights, page, tokens, layers, size)
        t.value("texts", given, want(*given))


WRONG = (
    ("texts(1000, 200, 4, 8, 2, 5) is None, should be 10",),
    ("texts(1000, 200, 4, 9, 2, 5) is 8, should be 6", "return (memory - weights) // (tokens * layers * size)"),
    ("texts(100, 200, 4, 8, 2, 5) is -2, should be 0", "max(pages, 0)", "pages"),
)
RIGHT = (
    (
        "left = max(memory - weights, 0)\nof_a_text = (tokens + page - 1) // page\n"
        "return left // (page * layers * size) // of_a_text",
    ),
    (
        "import math\nif weights > memory:\n    return 0\n"
        "return (memory - weights) // (page * layers * size) // math.ceil(tokens / page)",
    ),
)
