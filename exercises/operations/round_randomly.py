"""# Rounding at random

A float32 lies between two neighbours in bfloat16. **Stochastic rounding** takes one of them at random, the
nearer one more often, so that it is right on average. Write `round_randomly(x, words)`, where `words` has a
random number from 0 to 2³² - 1 for each element, as int64. A bfloat16 is the upper 16 bits of a float32, and
`x.view(torch.int32)` shows the bits of `x`.
"""

# %% solution
import torch


def round_randomly(x, words):
    # <<<
    bits = x.view(torch.int32).long() + (words & 0xFFFF)
    return (bits & -0x10000).int().view(torch.float32).bfloat16()
    # >>>


# %% checks
PAGE = "learn/random_numbers.py"
KIND = "fill in"
ORDER = 7
HINTS = (
    "The lower 16 bits of `x` say how far `x` is between its two neighbours.",
    "Add a random number of 16 bits, `words & 0xFFFF`, to the bits. When does the sum carry into the upper half?",
    "`bits & -0x10000` cuts the lower 16 off. With `words` the sum is int64; `.int()` makes 32 bits of it again, and "
    "`.view(torch.float32).bfloat16()` leads back.",
)
WHY = """The sum carries into the upper half with exactly the probability that the lower 16 bits represent. Weights that
are kept in bfloat16 need this: rounded to the nearest number, a small step of the optimizer would be lost each time."""


def check(t):
    # Either half of a word takes values everywhere.
    words = t.surrounded(torch.tensor([(16 * step + t.random.randrange(16)) * 65537 for step in range(2**12)]))
    exact = torch.cat(
        [
            t.values(12, dtype=torch.bfloat16).float(),
            torch.tensor([0.0, 1.0, -2.0, 0.5, -0.0, 1e-30, -1e30, 2.0**-126]).bfloat16().float(),
        ]
    )
    few = ("tiny numbers", "large numbers", "one large number")  # bfloat16 hasn't these
    for case, some in (
        ("the smallest words", torch.arange(20) * 65537),
        ("the largest words", 2**32 - 1 - torch.arange(20)),
    ):
        t.compare(
            f"numbers that bfloat16 has, {case}", "round_randomly", lambda x, words: x.bfloat16(), t.surrounded(exact),
            t.surrounded(some), kernel=False, exact=True, note="They have to stay as they are.", spare=few,
        )  # fmt: skip
    fine = (2 * t.random.randrange(256) + 1) / 512
    for near, far, share in (
        (1.0, 1.0078125, 0.25),
        (-3.0, -3.015625, 0.75),
        (0.5, 0.50390625, fine),
        (1024.0, 1032.0, 0.5),
        (-(2.0**-60), -(2.0**-60) * (1 + 2.0**-7), fine),
    ):
        value = near + share * (far - near)
        case = f"x = {value}"
        x = t.surrounded(torch.full((2**12,), value))
        out = t.call("round_randomly", x, words)
        t.cases += 1
        t.require(
            isinstance(out, torch.Tensor) and out.shape == x.shape, "round_randomly returns a tensor like x", case
        )
        out = out.float()
        other = out[(out != near) & (out != far)].tolist()
        t.require(not other, f"it becomes {(other + [0])[0]}, and its neighbours are {near} and {far}", case)
        found = (out == far).sum().item() / len(out)
        t.require(
            abs(found - share) < 0.0005,
            f"over all words {100 * found:.4g} % become {far}, should be {100 * share:.4g} %",
            case,
        )


WRONG = (
    (
        "should be",
        "(words & 0xFFFF)",
        "((words & 0xFF) << 8)",
    ),
    (
        "They have to stay as they are",
        "(words & 0xFFFF)",
        "(words & 0xFFFF) + 1",
    ),
    (
        "They have to stay as they are",
        "bits = x.view(torch.int32).long()\n"
        "below = (bits & -0x10000).int().view(torch.float32)\n"
        "above = ((bits & -0x10000) + 0x10000).int().view(torch.float32)\n"
        "return torch.where((bits & 0xFFFF) >= (words & 0xFFFF), above, below).bfloat16()",
    ),
    ("numbers that bfloat16 has, the smallest words: round_randomly returns None, not a tensor",),
    (
        "x = 1.001953125: over all words 0 % become 1.0078125, should be 25 %",
        " + (words & 0xFFFF)",
        " + 0x8000",
    ),
    (
        "numbers that bfloat16 has, the smallest words: out[1] is",
        "(words & 0xFFFF)",
        "words",
    ),
    (
        "% become 1.0078125, should be 25 %",
        "(words & 0xFFFF)",
        "(words & 1) * 0xFFFF",
    ),
    (
        "out has dtype torch.float32, should have torch.bfloat16",
        ".bfloat16()",
        "",
    ),
)
RIGHT = (
    (
        "words & 0xFFFF",
        "words >> 16",
    ),
    (
        "bits = x.view(torch.int32).long()\n"
        "below = (bits & -0x10000).int().view(torch.float32)\n"
        "above = ((bits & -0x10000) + 0x10000).int().view(torch.float32)\n"
        "return torch.where((bits & 0xFFFF) > (words & 0xFFFF), above, below).bfloat16()",
    ),
)
