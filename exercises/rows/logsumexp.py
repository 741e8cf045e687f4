"""# The logarithm of a sum

Write the kernel of `logsumexp(x)`: for each row of a matrix the logarithm of the sum of the exponentials,
for scores up to 1000. `tl.log` takes the logarithm.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, N, stride, BLOCK_N: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK_N)
    # <<<
    x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=-float("inf"))
    largest = tl.max(x, axis=0)
    tl.store(out_ptr + row, largest + tl.log(tl.sum(tl.exp(x - largest), axis=0)))
    # >>>


def logsumexp(x):
    out = torch.empty(x.shape[0], device=x.device)
    logsumexp_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), BLOCK_N=triton.next_power_of_2(x.shape[1]))
    return out


# %% checks
PAGE = "learn/softmax.py"
KIND = "fill in"
ORDER = 4
HINTS = (
    "Begin as softmax does: load the row, find its maximum, take the exponentials of the differences, add them up.",
    "The factor that was divided out comes back as a term: the logarithm of a product is a sum.",
    "Masked lanes must add nothing to the sum and must never be the maximum. Which `other` does both?",
    'Minus infinity is written `-float("inf")` in a kernel.',
)
WHY = "The factor that was divided out comes back as a term: the logarithm of a product is a sum."


def check(t):
    def want(x):
        return x.logsumexp(1)

    back = "The exponentials were taken of differences: what brings back what was subtracted?"
    t.compare("2 x 4", "logsumexp", want, t.values(2, 4) + 10, note="" if "tl.exp(x)" in t.source else back)
    t.compare("2 x 5", "logsumexp", want, t.values(2, 5), note="What do masked lanes read?")
    t.compare(
        "scores up to 1000", "logsumexp", want, t.values(2, 8, scale=300.0), note="exp(89) is infinite in float32."
    )
    note = "What do masked lanes read? It must be less than every score."
    for low in (-1000.0, -3.4e38):
        x = t.surrounded(torch.full((5,), low, device=device.DEVICE)).view(1, 5)
        t.compare(f"5 scores of {low:g}", "logsumexp", want, x, note=note)
    t.compare("rows cut out of wider ones", "logsumexp", want, t.cut(3, 13), note="Where does a row begin?")
    for columns in t.sizes(32):
        t.compare(f"2 x {columns}", "logsumexp", want, t.cut(2, columns))
    t.compare("40 x 3", "logsumexp", want, t.cut(40, 3))
    low = t.values(2, 7) - 200
    t.compare(
        "a row far below the other scores",
        "logsumexp",
        want,
        t.surrounded(torch.cat([low, t.values(1, 7)]).flatten()).view(3, 7),
    )


WRONG = (
    (
        "5 scores of -1000: out[0] is",
        'other=-float("inf")',
        "other=-1000.0",
    ),
    (
        "here 1e+30",
        ', other=-float("inf"))',
        ")",
        "tl.sum(tl.exp(x - largest), axis=0)",
        "tl.sum(tl.where(columns < N, tl.exp(x - largest), 0.0), axis=0)",
    ),
    ("2 x 4: logsumexp_kernel stores nothing yet",),
    (
        "scores up to 1000: out[0] is inf",
        "largest + tl.log(tl.sum(tl.exp(x - largest), axis=0))",
        "tl.log(tl.sum(tl.exp(x), axis=0))",
    ),
    (
        "What do masked lanes read?",
        'other=-float("inf")',
        "other=0.0",
    ),
    (
        "program 1 of logsumexp_kernel does a load outside a tensor",
        "row * stride",
        "row * N",
    ),
    (
        "The exponentials were taken of differences: what brings back what was subtracted?",
        "largest + tl.log",
        "tl.log",
    ),
    ("NaN in x", "tl.exp(x", "tl.exp(tl.where(x == x, x, -float('inf'))"),
)
RIGHT = (
    (
        "tl.sum(tl.exp(x - largest), axis=0)",
        "tl.sum(tl.where(columns < N, tl.exp(x - largest), 0.0), axis=0)",
    ),
    (
        "largest + tl.log(tl.sum(tl.exp(x - largest), axis=0))",
        "tl.log(tl.sum(tl.exp(x - largest), axis=0)) + largest",
    ),
)
