"""# How many parts?

Decoding from latents divides the keys of a sequence into parts, so that few sequences still keep a card busy. The
default wants at least 512 programs in all, but no more parts than the capacity has pieces of 256 keys.

4 sequences decode a token each. There are 128 heads in bfloat16, and a tile has 64 rows of queries. The cache has room
for 12,288 keys a sequence, and the longest sequence has 6000 of them. How many parts does a sequence get? Put it into
`answer`.

[[figure: latent/tile_twice]]
"""

# %% solution
# <<<
programs = 4 * (128 // 64)
answer = min(-(-512 // programs), -(-12_288 // 256))
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/attention/mla_decode.md"
KIND = "predict a number"
ORDER = 5
HINTS = (
    "A row of a tile is a token and a head. How many tiles do 4 sequences have, before any keys are divided?",
    "8 programs, so 64 parts would make 512. How many keys would each have, of a full cache?",
)
WHY = """4 sequences have 8 tiles, so 64 parts would make 512 programs. But a part of 192 keys is hardly worth a program
and its share of the merge, so the capacity decides: 48. The lengths may not: they are numbers on the card, and to read
them the host would have to wait for it. So a part of the longest sequence has 128 keys here, two tiles, which costs a
little, and a launch that is recorded in a graph fits every later length."""


def check(t):
    mistakes = {
        64: "Then a part of a full cache has 192 keys, and it should have 256 at least.",
        24: "The lengths are numbers on the card, which the host doesn't read. The room in the cache decides.",
        128: "A tile has 64 rows, so the 128 heads of a sequence take two programs.",
        1: "A head isn't a program: 64 of them are rows of one tile.",
    }
    t.number(48, mistakes, "Take the smaller one of two quotients, 512 by programs and keys by 256.")


WRONG = (
    ("answer is still None",),
    ("a part of a full cache has 192 keys", "answer = 64"),
    ("which the host doesn't read", "12_288", "6000"),
    ("Take the smaller one of two quotients", "answer = 47"),
)
RIGHT = (
    ("answer = 48",),
    ("import math\nanswer = min(math.ceil(512 / (4 * 2)), math.ceil(12_288 / 256))",),
)
