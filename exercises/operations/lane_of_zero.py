"""# A token that isn't there

`logprobs(x, tokens)` returns the log-probability of one token of each row. For rows of 8 logits it is right. For rows
of 5, all far below zero, it is far too low. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def logprobs_kernel(x_ptr, tokens_ptr, out_ptr, N, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    token = tl.load(tokens_ptr + row)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    # <<<
    x = tl.load(x_ptr + offs, mask=mask, other=-float("inf"))
    # ===
    # x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    # >>>
    largest = tl.max(x, axis=0)
    total = tl.sum(tl.exp(x - largest), axis=0)
    tl.store(out_ptr + row, (tl.load(x_ptr + token) - largest) - tl.log(total))


def logprobs(x, tokens):
    out = torch.empty(x.shape[0], device=x.device)
    logprobs_kernel[(x.shape[0],)](x, tokens, out, x.shape[1], x.stride(0), BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


# %% checks
PAGE = "kernels/classics/token_logprobs.md"
KIND = "find the bug"
ORDER = 2
HINTS = (
    "A row of 5 takes a block of 8. What do the other three lanes add to the sum?",
    "A logit of 0 is a logit like any other. Which one has the probability 0?",
    'Minus infinity is written `-float("inf")`.',
)
WHY = """Three lanes counted as logits of 0, and beside logits of −50 they had all of the probability. Training goes on
with such numbers, and learns nothing: the log-probabilities are wrong for every model."""


def check(t):
    def want(x, tokens):
        picked = torch.arange(x.shape[1], device=x.device)[None] == tokens[:, None]
        shifted = x - x.amax(1, keepdim=True)
        return torch.where(picked, shifted, 0.0).sum(1) - shifted.exp().sum(1).log()

    def tokens(rows, columns):
        return t.surrounded(torch.tensor([t.random.randrange(columns) for _ in range(rows)]))

    special = ("*",)
    for rows, columns in ((2, 8), (3, 16), (1, 1)):
        case = f"{rows} rows of {columns}"
        t.compare(case, "logprobs", want, t.cut(rows, columns), tokens(rows, columns), spare=special)
    for columns in (5, 3, 7, t.random.randint(9, 15), t.random.randint(17, 31)):
        for around in (0.0, -50.0, -5000.0, 300.0):
            case, x = f"2 rows of {columns}, around {around:g}", t.cut(2, columns)
            x += around
            t.compare(case, "logprobs", want, x, tokens(2, columns), spare=special)


WRONG = (
    ("2 rows of 5, around 0: out[0] is",),
    ("2 rows of 5, around -5000: out[0] is", "x = tl.load(x_ptr + offs, mask=mask, other=-1000.0)"),
    ("A lane that is masked off holds anything if its load has no `other`", "x = tl.load(x_ptr + offs, mask=mask)"),
    ("out[0] is", 'x = tl.load(x_ptr + offs, mask=mask, other=float("inf"))'),
    ("does a load outside a tensor", "x = tl.load(x_ptr + offs)"),
)
RIGHT = (
    ('x = tl.load(x_ptr + offs, mask=mask, other=0.0)\nx = tl.where(mask, x, -float("inf"))',),
    (
        'x = tl.load(x_ptr + offs, mask=mask, other=-float("inf"))',
        "x = tl.load(x_ptr + tl.minimum(offs, N - 1))",
        "tl.exp(x - largest)",
        "tl.where(mask, tl.exp(x - largest), 0.0)",
    ),
)
