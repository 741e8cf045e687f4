"""# The gradient of softmax

Write `softmax_gradient(dy, y)` in PyTorch, from the formula of the chapter, without autograd: `y` holds the
probabilities, `dy` the upstream gradient. What does it give for `dy = torch.ones_like(y)`, and why?

[[figure: rows/softmax]]
"""

# %% solution
import torch


def softmax_gradient(dy, y):
    # <<<
    dot = (dy * y).sum(dim=-1, keepdim=True)
    return y * (dy - dot)
    # >>>


# %% checks
PAGE = "learn/softmax.py"
KIND = "fill in"
ORDER = 3
HINTS = (
    "One number for each row: the sum of `dy * y`.",
    "`keepdim=True` keeps that number as a column, so that it is subtracted from every element of its row.",
)
WHY = """For ones it gives zero, up to rounding. The probabilities of a row add up to 1, so `dot` is 1 and the
difference vanishes. That is the gradient of `softmax(x).sum()`, which is the number of rows whatever `x` is."""


def check(t):
    def want(dy, y):
        return y * (dy - (dy * y).sum(-1, keepdim=True))

    y = torch.tensor([[0.5, 0.25, 0.25]])
    dy = torch.tensor([[1.0, 2.0, 4.0]])
    for found, said in (
        (
            dy * y,
            "That is `dy * y`: it takes each probability for itself. A score is in the sum below all of them, too.",
        ),
        (
            dy * y * (1 - y),
            "That is `dy * y * (1 - y)`, which is what a score does to its own probability: the diagonal "
            "of the Jacobian. It lowers all the others as well.",
        ),
        (
            y * (1 - y),
            "That is the derivative of a probability by its own score. The upstream gradient is missing, and so "
            "is what the score does to the other probabilities.",
        ),
        (y * (dy - dy.mean(1, keepdim=True)), "The mean is weighted: the sum of `dy * y`."),
    ):
        given = t.call("softmax_gradient", dy, y)
        alike = isinstance(given, torch.Tensor) and given.shape == y.shape and torch.allclose(given.to(y.dtype), found)
        t.require(not alike, said, "dy = 1, 2, 4 and y = 0.5, 0.25, 0.25")
    for M, N in ((1, 4), (3, 7), (t.random.randint(2, 5), t.random.randint(2, 9)), (1, 1), (3, 300), (70, 2)):
        y = t.values(M, N, scale=0.2).softmax(-1)
        t.compare(f"{M} x {N}", "softmax_gradient", want, t.values(M, N), y, name="dx", kernel=False)
    y = torch.tensor([[0.5, 0.25, 0.25]])
    t.compare("dy = 1", "softmax_gradient", want, torch.ones(1, 3), y, name="dx", exact=True, kernel=False)


WRONG = (
    (
        "That is `dy * y`: it takes each probability for itself",
        "y * (dy - dot)",
        "dy * y",
    ),
    (
        "That is `dy * y * (1 - y)`, which is what a score does to its own probability",
        "y * (dy - dot)",
        "dy * y * (1 - y)",
    ),
    (
        "1 x 4: dx[0, 0] is",
        "dy - dot",
        "dot - dy",
    ),
    (
        "1 x 4: dx[0, 0] is",
        "y * (dy - dot)",
        "dy - dot",
    ),
    (
        "3 x 7: dx[0, 0] is",
        "dim=-1, keepdim=True",
        "",
    ),
    ("softmax_gradient returns None, not a tensor",),
)
RIGHT = (
    ("return dy * y - y * (dy * y).sum(-1, keepdim=True)",),
    ("return torch.stack([row * (up - (up * row).sum()) for up, row in zip(dy, y)])",),
)
