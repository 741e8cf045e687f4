"""# A mixture that adds up all the same

`mixed(x, res)` mixes the streams of each token: `res[t, i, j]` says how much of stream j goes into stream i. Its test
looks whether all streams together keep what they hold, and with doubly stochastic matrices they do. Models that were
trained elsewhere give nonsense with it. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def mixed_kernel(x_ptr, res_ptr, y_ptr, n, C, N: tl.constexpr, BLOCK: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    i, j, c = tl.arange(0, N), tl.arange(0, N), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + (t * n + j)[:, None] * C + c[None, :], mask=(j < n)[:, None] & (c < C)[None, :], other=0.0)
    both = (i < n)[:, None] & (j < n)[None, :]
    # <<<
    res = tl.load(res_ptr + (t * n + i)[:, None] * n + j[None, :], mask=both, other=0.0)
    # ===
    # res = tl.load(res_ptr + (t * n + j)[None, :] * n + i[:, None], mask=both, other=0.0)
    # >>>
    y = tl.sum(res[:, :, None] * x[None, :, :], axis=1)
    tl.store(y_ptr + (t * n + i)[:, None] * C + c[None, :], y, mask=(i < n)[:, None] & (c < C)[None, :])


def mixed(x, res):
    T, n, C = x.shape
    y = torch.empty(x.shape, device=x.device)
    sizes = dict(N=triton.next_power_of_2(n), BLOCK=triton.next_power_of_2(C))
    mixed_kernel[(T,)](x, res, y, n, C, **sizes)
    return y


# %% checks
PAGE = "kernels/model/hyper_connections.md"
KIND = "find the bug"
ORDER = 1
HINTS = (
    "Rows and columns of a doubly stochastic matrix both add up to 1. Which other matrix has that, too?",
    "In `y` the index i comes first. Where does it stand in the address of `res`?",
)
WHY = """The transpose of a doubly stochastic matrix is doubly stochastic, so no sum shows it, and neither does a
symmetric mixture. Training from the start works with it. Only weights that were trained the other way round
give nonsense: tests need a mixture that isn't symmetric."""


def check(t):
    def want(x, res):
        return (res[:, :, :, None] * x[:, None]).sum(2)

    def stream(tokens, n, channels):
        return t.positive(tokens, n * channels).reshape(tokens, n, channels)

    shift = torch.zeros(2, 3, 3, device=device.DEVICE)
    for i in range(3):
        shift[:, i, (i + 1) % 3] = 1.0
    note = "Row i of the matrix says what goes into stream i."
    t.compare("each stream moves on by one", "mixed", want, stream(2, 3, 4), shift, name="y", note=note)
    for tokens, n, channels in ((1, 1, 3), (1, 2, 2), (2, 4, 5), (3, 3, t.random.randint(6, 20))):
        res = t.positive(tokens, n * n).reshape(tokens, n, n)
        case = f"{t.counted(tokens, 'token')}, {t.counted(n, 'stream')}"
        t.compare(case, "mixed", want, stream(tokens, n, channels), res, name="y")


WRONG = (
    ("Row i of the matrix says what goes into stream i",),
    (
        "each stream moves on by one: y[0, 0, 0] is",
        "tl.sum(res[:, :, None] * x[None, :, :], axis=1)",
        "tl.sum(res[:, :, None] * x[:, None, :], axis=0)",
    ),
    (
        "each stream moves on by one: y[0, 0, 0] is",
        "(t * n + i)[:, None] * n + j[None, :]",
        "(t * n + i)[:, None] * n + i[:, None]",
    ),
)
RIGHT = (
    ("res = tl.load(res_ptr + t * n * n + i[:, None] * n + j[None, :], mask=both, other=0.0)",),
    ("at = (t * n + j)[None, :] * n + i[:, None]\nres = tl.trans(tl.load(res_ptr + at, mask=both, other=0.0))",),
)
