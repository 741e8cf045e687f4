"""# Where does the sum stop?

A row of 2²⁰ ones is multiplied by a column of 2²⁰ ones, in eight bits. Say that an instruction of the tensor cores adds
up 32 products exactly, adds that to an accumulator, and then keeps the 14 leading bits of the result: the rest is cut
off. Nothing is promoted. What does the accumulator hold at the end? Put the number into `answer`.
"""

# %% solution
# <<<
answer = 32 * 2**14
# ===
# answer = None
# >>>


# %% checks
PAGE = "kernels/fp8/scaled_matmul.md"
KIND = "predict a number"
ORDER = 6
HINTS = (
    "The sum grows by 32 until a step between two numbers of 14 bits is larger than 32.",
    "From 2¹⁹ to 2²⁰ a number of 14 bits is a multiple of 2¹⁹⁻¹³ = 64.",
)
WHY = """Up to 2¹⁹ = 524288 the numbers with 14 bits are at most 32 apart, so each instruction counts. From there on
they are 64 apart, and 32 more is cut off each time. Half of the sum is lost. Promoted after each 128 products, the
accumulator never passes 128, and the sum is exact."""


def check(t):
    mistakes = {
        2**20: "That is the sum without any cutting.",
        2**14: "An instruction adds 32 at once, not 1.",
        2**14 - 1: "That is the largest number of 14 bits. But the leading 14 bits of a larger one are kept, too.",
        2**18: "Between 2¹⁸ and 2¹⁹ the numbers with 14 bits are 32 apart: 32 more still counts.",
        2**15: "Larger numbers with 14 bits exist: they end in zeros.",
    }
    t.number(2**19, mistakes, "How far apart are the numbers with 14 bits where 32 no longer counts?")


WRONG = (
    ("answer is still None",),
    ("without any cutting", "answer = 2**20"),
    ("adds 32 at once", "answer = 2**14"),
    ("still counts", "answer = 2**18"),
    ("How far apart are", "answer = 3 * 2**17"),
)
RIGHT = (
    ("answer = 524288",),
    ("answer = 2**19",),
)
