"""# A cache or a state

A layer of attention keeps a key and a value for each token, `D` numbers each, of `bits` bits. A layer with a state
keeps a matrix of `D` by `D` numbers in float32. Write `longest_text(D, bits)`: for how many tokens at most the cache of
a head takes no more bytes than the state.

[[figure: chunks/one_token]]
"""


# %% solution
def longest_text(D, bits):
    # <<<
    return 4 * D * D * 8 // (2 * D * bits)
    # >>>


# %% checks
PAGE = "learn/without_a_cache.py"
KIND = "fill in"
ORDER = 1
HINTS = (
    "The state takes 4 · D · D bytes, a token of the cache 2 · D · bits / 8.",
    "Whole tokens: round down. At D = 128 and 16 bits it is 128.",
)
WHY = """16 · D / bits tokens: at D = 128 they are 128 in 16 bits, and twice as many in 8. A model that has read 100,000
tokens keeps hundreds of times as much in a cache, and reads all of it for each new token."""


def check(t):
    drawn = [(t.random.randint(1, 300), t.random.choice((3, 4, 8, 16, 32))) for _ in range(6)]
    drawn += [(t.random.randint(1000, 9000), t.random.randint(32, 64)) for _ in range(4)]
    for D, bits in ((128, 16), (128, 8), (64, 16), (100, 4), (1, 32), (256, 6), *drawn):
        t.value("longest_text", (D, bits), 16 * D // bits)


WRONG = (
    ("longest_text(128, 16) is None, should be 128",),
    ("longest_text(128, 16) is 256, should be 128", "(2 * D * bits)", "(D * bits)"),
    ("longest_text(128, 16) is 16, should be 128", "4 * D * D * 8 // (2 * D * bits)", "4 * D * D // (2 * D * bits)"),
    ("longest_text(1, 32) is 0.5, should be 0", "//", "/"),
)
RIGHT = (
    ("return 16 * D // bits",),
    ("tokens = 0\nwhile (tokens + 1) * 2 * D * bits <= 32 * D * D:\n    tokens += 1\nreturn tokens",),
)
