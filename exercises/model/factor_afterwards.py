"""# Before, or after the product?

`mixed(x, phi)` normalizes each row of `x` by the root of the mean of its squares plus 1e-6, and multiplies it with the
rows of `phi`: `out[t, o]` is the sum over `b` of `phi[o, b]` times the normalized `x[t, b]`. The kernel goes through
the row twice, first for its squares and then for the product. Load each number of `x` only once.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def mixed_kernel(x_ptr, phi_ptr, out_ptr, K, columns, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    token = tl.program_id(0)
    column = tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_N,), tl.float32)
    squares = tl.zeros((BLOCK_K,), tl.float32)
    # <<<
    for start in range(0, K, BLOCK_K):
        b = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + token * K + b, mask=b < K, other=0.0)
        mask = (column < columns)[:, None] & (b < K)[None, :]
        phi = tl.load(phi_ptr + column[:, None] * K + b[None, :], mask=mask, other=0.0)
        squares += x * x
        acc += tl.sum(phi * x[None, :], axis=1)
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / K + 1e-6)
    acc *= rstd
    # ===
    # for start in range(0, K, BLOCK_K):
    #     b = start + tl.arange(0, BLOCK_K)
    #     x = tl.load(x_ptr + token * K + b, mask=b < K, other=0.0)
    #     squares += x * x
    # rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / K + 1e-6)
    # for start in range(0, K, BLOCK_K):
    #     b = start + tl.arange(0, BLOCK_K)
    #     x = tl.load(x_ptr + token * K + b, mask=b < K, other=0.0) * rstd
    #     mask = (column < columns)[:, None] & (b < K)[None, :]
    #     phi = tl.load(phi_ptr + column[:, None] * K + b[None, :], mask=mask, other=0.0)
    #     acc += tl.sum(phi * x[None, :], axis=1)
    # >>>
    tl.store(out_ptr + token * columns + column, acc, mask=column < columns)


def mixed(x, phi):
    (T, K), columns = x.shape, len(phi)
    out = torch.empty(T, columns, device=x.device)
    mixed_kernel[(T,)](x, phi, out, K, columns, BLOCK_N=triton.next_power_of_2(columns), BLOCK_K=4)
    return out


# %% checks
PAGE = "kernels/model/stream_coefficients.md"
KIND = "read fewer bytes"
ORDER = 1
HINTS = (
    "Which numbers of a row does `rstd` multiply? All alike. Where may a factor stand that all terms of a sum have?",
    "One loop: add the squares up, and the products with what was loaded. The factor comes after the loop.",
)
WHY = """A factor that all numbers of a row have in common comes out of the sum, so it may be known last. For four
streams of 4096 channels a row is 32 KB in bfloat16, and reading it once is most of what the kernel does. It is also
more exact: in 16 bits the normalized row would be rounded before it is multiplied."""


def check(t):
    def normalized(x, mean):
        return x / (mean(x * x) + 1e-6).sqrt()

    def mean(squares):
        return squares.sum(1, keepdim=True) / squares.shape[1]

    def want(x, phi):
        return (phi[None] * normalized(x, mean)[:, None]).sum(2)

    def plain(x, phi):
        return (phi[None] * x[:, None]).sum(2)

    def running(x, phi):
        total = 0.0
        for at in range(0, x.shape[1], 4):
            part = x[:, at : at + 4]
            so_far = (x * x)[:, : at + 4].sum(1, keepdim=True) / x.shape[1]
            total = total + plain(part / (so_far + 1e-6).sqrt(), phi[:, at : at + 4])
        return total

    mistakes = {
        plain: "That is the product alone: its row isn't normalized.",
        lambda x, phi: (
            plain(x, phi) / (x * x).sum(1, keepdim=True).add(1e-6).sqrt()
        ): "The mean of squares, not their sum.",
        lambda x, phi: plain(x, phi) / (mean(x * x) + 1e-6): "That is the mean of squares without its root.",
        lambda x, phi: (
            plain(x, phi) / ((x * x).sum(1, keepdim=True) / (-(-x.shape[1] // 4) * 4) + 1e-6).sqrt()
        ): "Lanes past the end of the row aren't numbers of it: the mean is over K.",
        running: "Only at the end are all squares known. Earlier products were divided by the root of some.",
        lambda x, phi: plain(x, phi) * mean(x * x).add(1e-6).sqrt(): "The root is what a row is divided by.",
    }
    cases = [(1, 4, 2), (2, 6, 3), (3, 9, 8), (2, 21, 5)]
    cases.append((t.random.randint(1, 4), t.random.randint(10, 30), t.random.randint(1, 9)))
    for T, K, columns in cases:
        case = f"{t.counted(T, 'token')} of {K}, {columns} columns"
        x, phi = t.values(T, K).contiguous(), t.values(columns, K).contiguous()
        run = t.compare(case, "mixed", want, x, phi, mistakes=mistakes)
        t.traffic(case, run, 4 * T * (K + columns * K), 4 * T * columns)
    few = t.values(1, 6, scale=1e-3)
    t.compare("small numbers, beside which 1e-6 counts", "mixed", want, few, t.values(2, 6), mistakes=mistakes)


WRONG = (
    ("64 bytes are read, 48 are enough (an element is 4 bytes): x_ptr[0, 0] is loaded 2 times",),
    ("its row isn't normalized", "    acc *= rstd\n", ""),
    ("The mean of squares, not their sum", "tl.sum(squares, axis=0) / K + 1e-6", "tl.sum(squares, axis=0) + 1e-6"),
    ("The root is what a row is divided by", "acc *= rstd", "acc /= rstd"),
    ("beside which 1e-6 counts", " / K + 1e-6", " / K"),
    ("2 tokens of 6, 3 columns: out[0, 0] is", "squares += x * x", "squares = x * x"),
    ("2 tokens of 6, 3 columns: out[0, 0] is", "tl.sum(squares, axis=0) / K", "tl.sum(squares, axis=0) / BLOCK_K"),
)
RIGHT = (
    ("acc *= rstd", "acc = acc * rstd"),
    (
        "squares += x * x",
        "squares += x * x / K",
        "tl.sum(squares, axis=0) / K + 1e-6",
        "tl.sum(squares, axis=0) + 1e-6",
    ),
)
