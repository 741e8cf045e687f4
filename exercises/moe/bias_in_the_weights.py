"""# A bias that is only for choosing

`best(logits, bias)` chooses one expert for each token: the one whose sigmoid, with the bias added, is largest. It
returns the expert, and its weight, which is the sigmoid alone. When the load is unbalanced, the bias is changed, and
the weights mustn't notice. They do. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def best_kernel(logits_ptr, bias_ptr, experts_ptr, weights_ptr, E, stride, BLOCK_E: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BLOCK_E)
    mask = e < E
    score = tl.sigmoid(tl.load(logits_ptr + token * stride + e, mask=mask, other=0.0))
    choice = tl.where(mask, score + tl.load(bias_ptr + e, mask=mask, other=0.0), float("-inf"))
    best = tl.min(tl.where(choice == tl.max(choice, axis=0), e, BLOCK_E), axis=0)
    # <<<
    weight = tl.sum(tl.where(e == best, score, 0.0), axis=0)
    # ===
    # weight = tl.max(choice, axis=0)
    # >>>
    tl.store(experts_ptr + token, best)
    tl.store(weights_ptr + token, weight)


def best(logits, bias):
    T, E = logits.shape
    experts = torch.empty(T, dtype=torch.int32, device=logits.device)
    weights = torch.empty(T, device=logits.device)
    best_kernel[(T,)](logits, bias, experts, weights, E, logits.stride(0), BLOCK_E=triton.next_power_of_2(E))
    return experts, weights


# %% checks
PAGE = "kernels/moe/router.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "Which variable holds the sigmoid alone?",
    "To pick one lane of a block, set all others to zero and add up.",
    "Subtracting the bias again is no way out: a large bias has swallowed the digits of the sigmoid.",
)
WHY = """The largest of `choice` has the bias in it. The bias decides who is chosen, and nothing else: the weight is the
lane of `score` at the chosen expert."""


def check(t):
    def want(logits, bias):
        score = torch.sigmoid(logits)
        choice = (score + bias).tolist()
        experts = [row.index(max(row)) for row in choice]
        weights = [row[expert] for row, expert in zip(score.tolist(), experts)]
        return (
            torch.tensor(experts, dtype=torch.int32, device=device.DEVICE),
            torch.tensor(weights, dtype=logits.dtype, device=device.DEVICE),
        )

    # Far apart, so that no rounding decides; every expert is chosen by some bias.
    note = "The weight is the sigmoid alone, of the expert that was chosen."
    few = ("* in bias", "a NaN in logits", "minus infinity in logits")
    for tokens, E in ((3, 4), (2, t.random.randint(5, 9)), (1, 1), (2, 33), (9, 16)):
        order = list(range(E))
        t.random.shuffle(order)
        for size in (4.0, -4.0, 1000000.0):
            bias = t.surrounded(torch.tensor([size * (place + 1) for place in order], dtype=torch.float32))
            case = f"{t.counted(tokens, 'token')}, {t.counted(E, 'expert')}, a bias up to {size * E:g}"
            t.compare(case, "best", want, t.cut(tokens, E), bias, name="experts, weights", note=note, spare=few)


WRONG = (
    ("weights[",),
    ("weights[", "weight = tl.max(choice, axis=0) - tl.max(tl.where(mask, score, 0.0), axis=0)"),
    ("weights[", "weight = tl.max(tl.where(mask, score, 0.0), axis=0)"),
    ("weights[", "weight = tl.sum(tl.where(e == best, choice, 0.0), axis=0)"),
)
RIGHT = (
    ("weight = tl.max(tl.where(e == best, score, 0.0), axis=0)",),
    ("weight = tl.sigmoid(tl.load(logits_ptr + token * stride + best))",),
)
