"""# Where an element lies

`x` is an 8 x 8 matrix, row after row in memory. `x[::2]` takes every second row, `.T` swaps rows and columns. How many
elements after the first one of `x` does element (1, 2) of `x[::2].T` lie? Put the number into `answer`, before you run
anything.
"""

# %% solution
# <<<
answer = 1 * 1 + 2 * 16
# ===
# answer = None
# >>>


# %% checks
PAGE = "learn/tiles_and_pointers.py"
KIND = "predict a number"
ORDER = 1
HINTS = (
    "What are the strides of `x`, and how does taking every second row change them?",
    "`x[::2]` has the strides (16, 1). Transposing swaps the two.",
    "Element (i, k) lies `i * stride_0 + k * stride_1` elements after the first.",
)
WHY = """Every second row doubles the row stride: (16, 1). Transposing swaps the two: (1, 16). One times 1 plus two
times 16 is 33."""


def check(t):
    import torch

    x = torch.arange(64).view(8, 8)
    mistakes = {
        10: "That is element (1, 2) of `x` itself.",
        18: "That is element (1, 2) of `x[::2]`: the transposed one has its strides swapped.",
        17: "That is element (1, 2) of `x.T`: every second row of `x` doubles one of its strides.",
    }
    t.number(x[::2].T[1, 2].item(), mistakes, "Write down the strides of `x`, then of `x[::2]`, then of `x[::2].T`.")


WRONG = (
    ("answer is still None",),
    (
        "That is element (1, 2) of `x` itself",
        "answer = 10",
    ),
    (
        "That is element (1, 2) of `x[::2]`",
        "answer = 18",
    ),
    (
        "Write down the strides",
        "answer = 34",
    ),
)
RIGHT = (
    ("answer = 33",),
    ("strides = (1, 2 * 8)\nanswer = 1 * strides[0] + 2 * strides[1]",),
)
