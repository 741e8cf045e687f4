"""# The shortest chunk

A chunk of `C` tokens reads q, k and v and writes o, all in 16 bits: `D` numbers of a query, `D` of a key, `E` of a
value and `E` of an output for each token. Besides, a state of `D` by `E` numbers in float32 is written once and read
once for each chunk. Write `shortest_chunk(D, E)`: the smallest power of two `C` at which the states are no more bytes
than q, k, v and o.

[[figure: chunks/plain_pairs]]
"""


# %% solution
def shortest_chunk(D, E):
    # <<<
    C = 1
    while 2 * 4 * D * E > C * 2 * (2 * D + 2 * E):
        C *= 2
    return C
    # >>>


# %% checks
PAGE = "learn/without_a_cache.py"
KIND = "fill in"
ORDER = 3
HINTS = (
    "Per chunk: a state is 4 · D · E bytes, written and read.",
    "Per token: 2 · (D + D + E + E) bytes. Compare one with C times the other.",
    "At D = E = 128 the two are equal at C = 128.",
)
WHY = """A state costs 8 D E bytes a chunk, the tokens 4 (D + E) bytes each: so C has to be 2 D E / (D + E) at least.
Longer chunks cost more products of pairs. Keeping states in 16 bits, or not at all, moves the balance."""


def check(t):
    def want(D, E):
        return next(C for C in (2**n for n in range(40)) if 8 * D * E <= 4 * C * (D + E))

    drawn = [tuple(t.random.randint(1, 10 ** t.random.randint(1, 5)) for _ in range(2)) for _ in range(9)]
    for D, E in (
        (128, 128),
        (64, 64),
        (16, 256),
        (100, 33),
        (1, 1),
        (96, 96),
        (192, 48),
        (48, 192),
        (1, 5000),
        (4096, 4096),
        (2, 2),
        *drawn,
    ):
        t.value("shortest_chunk", (D, E), want(D, E))


WRONG = (
    ("shortest_chunk(128, 128) is None, should be 128",),
    ("shortest_chunk(128, 128) is 64, should be 128", "2 * 4 * D * E", "4 * D * E"),
    ("shortest_chunk(128, 128) is 256, should be 128", "D * E > C", "D * E >= C"),
    ("shortest_chunk(16, 256) is 256, should be 32", "    C = 1\n", "    return max(D, E)\n    C = 1\n"),
)
RIGHT = (
    ("return next(2**n for n in range(30) if 2**n * (D + E) >= 2 * D * E)",),
    ("C = 1\nwhile C * (D + E) < 2 * D * E:\n    C = 2 * C\nreturn C",),
)
