"""# Its gradient

`y = x / total`, where `total` is the sum of each row, in the shape (M, 1). Derive the gradient and write
`sum_normalise_gradient(dy, y, total)` in PyTorch.
"""

# %% solution
import torch


def sum_normalise_gradient(dy, y, total):
    # <<<
    return (dy - (dy * y).sum(dim=-1, keepdim=True)) / total
    # >>>


# %% checks
PAGE = "learn/your_own_kernel.py"
KIND = "fill in"
ORDER = 4
HINTS = (
    "An element of `x` changes its own quotient, and through the total every quotient of its row.",
    "In the chapter, an element changed the length of its row at rate `y`. Here it changes the sum at rate one, "
    "so one factor `y` disappears.",
)
WHY = """In the chapter, an element changed the length of its row at rate `y`. Here it changes the sum at rate one, so
one factor `y` disappears."""


def check(t):
    def want(dy, y, total):
        return (dy - (dy * y).sum(-1, keepdim=True)) / total

    for M, N in ((1, 3), (3, 4), (t.random.randint(2, 5), t.random.randint(2, 9)), (1, 1), (3, 300), (70, 2)):
        x = t.values(M, N).abs() + 0.5
        total = x.sum(1, keepdim=True)
        t.compare(
            f"{M} x {N}",
            "sum_normalise_gradient",
            want,
            t.values(M, N),
            x / total,
            total,
            name="dx",
            kernel=False,
            spare=("zeros in total", "ties in total"),
        )


WRONG = (
    ("1 x 3: sum_normalise_gradient returns None, not a tensor",),
    (
        "1 x 3: dx[0, 0] is",
        "dy - (dy * y).sum(dim=-1, keepdim=True)",
        "dy - y * (dy * y).sum(dim=-1, keepdim=True)",
    ),
    (
        "1 x 3: dx[0, 0] is",
        " / total",
        "",
    ),
    (
        "3 x 4: ",
        "dim=-1, keepdim=True",
        "",
    ),
)
RIGHT = (
    ("dot = (dy * y).sum(1)[:, None]\nreturn (dy - dot) / total",),
    ("return dy / total - (dy * y).sum(dim=-1, keepdim=True) / total",),
)
