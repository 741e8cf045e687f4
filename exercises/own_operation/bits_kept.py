"""# One bit is enough

`clamp(x, -1, 1)` passes the upstream gradient on where `x` lies inside, and zero elsewhere. `x` has 16384 rows of
8192 numbers in bfloat16. If backward saves `x`, that keeps 256 MiB alive until the backward pass. How many **MiB**
does it take if forward saves just one *bit* for each element?
"""

# %% solution
# <<<
answer = 16
# ===
# answer = None
# >>>


# %% checks
PAGE = "learn/own_operation.py"
KIND = "predict a number"
ORDER = 4
HINTS = (
    "How many elements are there? A MiB is 2²⁰ bytes.",
    "A byte has eight bits.",
)
WHY = """16384 · 8192 / 8 bytes are 16 MiB, a sixteenth of bfloat16. A `torch.bool` takes a byte for each element, 128
MiB: packing bits is worth a few instructions. Best is what the next operation keeps anyway, which costs nothing.
(Here the result alone won't do: an element of exactly 1 may have been inside or clamped.)"""


def check(t):
    mistakes = {
        128: "That is a byte for each element, as `torch.bool` takes.",
        256: "That is `x` itself, at two bytes an element.",
        16 * 1024 * 1024: "That is in bytes. How many MiB are they?",
        16.777216: "A MiB is 2²⁰ bytes; this divides by a million.",
        32: "A byte has eight bits.",
    }
    t.number(16, mistakes, "Count the elements, then divide by eight bits a byte and by 2²⁰ bytes a MiB.")


WRONG = (
    ("answer is still None",),
    ("a byte for each element", "answer = 16", "answer = 128"),
    ("That is in bytes", "answer = 16", "answer = 1 << 24"),
    ("That is `x` itself", "answer = 16", "answer = 256"),
)
RIGHT = (
    ("answer = 16384 * 8192 / 8 / 2**20",),
    ("answer = 16.0",),
)
