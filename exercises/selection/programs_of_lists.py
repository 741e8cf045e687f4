"""# Two tokens, two lists

Where all keys are read, two new tokens of a sequence share a tile: its rows are tokens and heads, and the keys are the
same for all of them. Here each token has a list of its own.

8 sequences decode 2 new tokens each, with 40 heads. A tile has 16 rows of queries, and each list is read in 4 parts.
How many programs does `sparse_decode` launch before the merge? Put it into `answer`.
"""

# %% solution
# <<<
tiles = -(-40 // 16)
answer = 8 * 2 * tiles * 4
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/attention/sparse_decode.md"
KIND = "predict a number"
ORDER = 3
HINTS = (
    "Rows of one tile are multiplied with the same keys. Which queries have the same list?",
    "All heads of a token have the same list, so a tile holds heads of one token. 40 heads fill two tiles and a half.",
)
WHY = """Each of 16 tokens needs three tiles for its 40 heads, and each tile meets four parts: 192. If all keys were
read, 80 rows of a sequence would fill five tiles, and 160 programs were enough. The third tile of a token is half
empty, which is the price of a list for each token. In return there is no limit to the tokens: more of them are more
programs."""


def check(t):
    mistakes = {
        160: "Those are rows of tokens and heads. But two tokens have two lists, and can't share a tile of keys.",
        48: "That is for lists in one part. Each of the 4 parts is a program.",
        96: "Each of the two new tokens has a list of its own.",
        128: "Two tiles have room for 32 heads, and there are 40.",
        2560: "A head isn't a program: 16 of them are rows of one tile.",
        64: "A tile has 16 heads at most, so those of one token need more than one program.",
        12: "That is what one token needs.",
        24: "That is what one sequence needs.",
    }
    t.number(192, mistakes, "Multiply the tokens by the tiles of one token's heads, and by the parts.")


WRONG = (
    ("answer is still None",),
    ("can't share a tile of keys", "answer = 8 * -(-2 * 40 // 16) * 4"),
    ("That is for lists in one part", "answer = 8 * 2 * 3"),
    ("Two tiles have room for 32 heads", "-(-40 // 16)", "40 // 16"),
    ("Multiply the tokens by the tiles", "answer = 191"),
)
RIGHT = (
    ("answer = 192",),
    ("import math\nanswer = 16 * math.ceil(40 / 16) * 4",),
)
