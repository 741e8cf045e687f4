"""# The first to arrive

`draw(weights, v)` draws one of up to 16 tokens with a probability that is its share of the weights. Each token has a
random number `v` between 0 and 1 of its own. In this *exponential race* its time is −log(1 − v), divided by its weight,
and the first to arrive is drawn; of two that arrive together the one with the smaller number. A token of weight 0 never
arrives. Some weight is above 0.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def draw_kernel(weights_ptr, v_ptr, out_ptr, n, BLOCK: tl.constexpr):
    token = tl.arange(0, BLOCK)
    mask = token < n
    weight = tl.load(weights_ptr + token, mask=mask, other=0.0)
    v = tl.load(v_ptr + token, mask=mask, other=0.5)
    # <<<
    time = -tl.log(1.0 - v) / weight
    # ===
    # time = v  # your code here
    # >>>
    first = tl.min(time, axis=0)
    tl.store(out_ptr, tl.min(tl.where(time == first, token, BLOCK), axis=0))


def draw(weights, v):
    out = torch.empty(1, dtype=torch.int32, device=weights.device)
    draw_kernel[(1,)](weights, v, out, len(weights), BLOCK=16)
    return out


# %% checks
PAGE = "derivations/sample.md"
KIND = "fill in"
ORDER = 3
HINTS = (
    "`tl.log` is the natural logarithm, and that of a number below 1 is negative.",
    "A masked lane has the weight 0, too. What is a positive number divided by 0?",
)
WHY = """The time of a token of weight a is longer than t with probability exp(−a t), so all of them are with exp(−(sum
of weights) t), and each token wins as often as its share says. The textbook's way adds up probabilities until a random
number is passed, which needs a running sum. A race needs a minimum, in any order."""


def check(t):
    import math

    def want(weights, v):
        times = [-math.log(1 - r) / w if w > 0 else math.inf for w, r in zip(weights.tolist(), v.tolist())]
        return torch.tensor([times.index(min(times))], dtype=torch.int32, device=device.DEVICE)

    def numbers(values):
        return t.surrounded(torch.tensor(values, dtype=torch.float32))

    every = ("*",)
    t.compare("two tokens, one likelier", "draw", want, numbers([1.0, 9.0]), numbers([0.3, 0.6]), spare=every)
    t.compare(
        "the shortest v is not the first", "draw", want, numbers([0.1, 1.0, 2.0]), numbers([0.2, 0.4, 0.5]), spare=every
    )
    t.compare("a token of weight 0", "draw", want, numbers([0.0, 0.5, 0.25]), numbers([0.001, 0.9, 0.8]), spare=every)
    t.compare("a close race", "draw", want, numbers([1.0, 1.001]), numbers([0.5005, 0.5]), spare=every)
    t.compare(
        "two at the same time",
        "draw",
        want,
        numbers([0.0, 0.5, 2.0, 0.5]),
        numbers([0.1, 0.25, 0.9, 0.25]),
        spare=every,
    )
    for size in (1e-20, 1e20):
        case, v = f"weights of {size:g}", numbers([0.5, 0.25, 0.75])
        t.compare(case, "draw", want, numbers([size, size, 9 * size]), v, spare=every)
    t.compare("small numbers", "draw", want, numbers([1.0, 3.0, 1.0]), numbers([0.003, 0.004, 0.002]), spare=every)
    t.compare("large numbers", "draw", want, numbers([1.0, 2.0]), numbers([0.99, 0.9999]), spare=every)
    t.compare("one token", "draw", want, numbers([3.0]), numbers([0.5]), spare=every)
    t.compare("the last of 16", "draw", want, numbers([0.0] * 15 + [1.0]), numbers([0.5] * 16), spare=every)
    for _ in range(4):
        n = t.random.randint(3, 16)
        weights = [t.random.randint(1, 9) / 4 for _ in range(n)]
        v = [(2 * t.random.randint(0, 499) + 1) / 1000 for _ in range(n)]
        weights[t.random.randint(0, n - 1)] = 0.0
        t.compare(f"{n} tokens", "draw", want, numbers(weights), numbers(v), spare=every)


WRONG = (
    ("two tokens, one likelier: out[0] is 0",),
    ("two tokens, one likelier: out[0] is 2", "/ weight", "* weight"),
    ("two tokens, one likelier: out[0] is 0", "time = -tl.log(1.0 - v)"),
    ("two tokens, one likelier: out[0] is 2", "time = tl.where(weight > 0, -tl.log(1.0 - v) / weight, 0.0001)"),
    ("a token of weight 0: out[0] is", "-tl.log(1.0 - v) / weight", "v / (weight + 0.001)"),
)
RIGHT = (
    ('time = tl.where(weight > 0, tl.log(1.0 / (1.0 - v)) / weight, float("inf"))',),
    ('time = tl.where(weight == 0, float("inf"), -tl.log(1.0 - v) / weight)',),
)
