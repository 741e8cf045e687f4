"""# Eight terms, rounded once

Row `r` of `buffers` is what rank `r` has put where all can see it, in float16. `sum_ranks(buffers)` adds up the rows.
Every rank will run it, and the sum must be rounded to float16 once, at the end. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def sum_ranks_kernel(buffers_ptr, out_ptr, N, stride, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    # <<<
    acc = tl.zeros((BLOCK,), tl.float32)
    for rank in tl.static_range(WORLD):
        acc += tl.load(buffers_ptr + rank * stride + offs, mask=mask, other=0.0)
    # ===
    # acc = tl.load(buffers_ptr + offs, mask=mask, other=0.0)
    # for rank in tl.static_range(1, WORLD):
    #     acc += tl.load(buffers_ptr + rank * stride + offs, mask=mask, other=0.0)
    # >>>
    tl.store(out_ptr + offs, acc, mask=mask)


def sum_ranks(buffers):
    world, N = buffers.shape
    out = torch.empty(N, dtype=buffers.dtype, device=buffers.device)
    sum_ranks_kernel[(triton.cdiv(N, 4),)](buffers, out, N, buffers.stride(0), WORLD=world, BLOCK=4)
    return out


# %% checks
PAGE = "kernels/distributed/all_reduce.md"
KIND = "find the bug"
HINTS = (
    "float16 has eleven binary digits. What is 2048 + 1 in float16?",
    "An accumulator of `tl.float32` keeps what a float16 one drops. Which line makes it float16?",
)
WHY = """Each addition in float16 may lose a digit, and with a large first term all the small ones are lost. The loads
stay as narrow as the memory is; only the sum is wide."""


def check(t):
    def want(buffers):
        return buffers.double().sum(0).to(buffers.dtype)

    note = "The sum must be made in float32, and be rounded once."
    ones = torch.full((8, 6), 1.0, device=device.DEVICE)
    t.compare("eight ones", "sum_ranks", want, ones.to(torch.float16), exact=True)
    for large in (0, t.random.randint(1, 6), 7):
        rows = ones.clone()
        rows[large] = 2048.0
        case = f"2048 of rank {large} and seven ones"
        t.compare(case, "sum_ranks", want, rows.to(torch.float16), exact=True, note=note)
    world = t.random.randint(2, 5)
    t.compare("rows cut out of wider ones", "sum_ranks", want, t.cut(world, 9, dtype=torch.float16), note=note)
    for columns in t.sizes(4)[:-1]:
        rows = t.cut(8, columns, dtype=torch.float16)
        t.compare(f"8 ranks, {t.counted(columns, 'number')}", "sum_ranks", want, rows, note=note)
    t.compare("33 ranks", "sum_ranks", want, t.cut(33, 5, dtype=torch.float16), note=note)
    t.compare("one rank", "sum_ranks", want, t.cut(1, 3, dtype=torch.float16), exact=True)


WRONG = (
    ("2048 of rank 0 and seven ones: out[0] is 2048, should be 2056",),
    ("2048 of rank 0 and seven ones", "tl.zeros((BLOCK,), tl.float32)", "tl.zeros((BLOCK,), tl.float16)"),
    (
        "2048 of rank",
        "acc = tl.load(buffers_ptr + offs, mask=mask, other=0.0).to(tl.float32)\n"
        "rest = tl.zeros((BLOCK,), tl.float16)\n"
        "for rank in tl.static_range(1, WORLD):\n"
        "    rest += tl.load(buffers_ptr + rank * stride + offs, mask=mask, other=0.0)\n"
        "acc += rest",
    ),
    (
        "2048 of rank",
        "acc = tl.zeros((BLOCK,), tl.float16)\n"
        "for rank in tl.static_range(WORLD - 1, -1, -1):\n"
        "    acc += tl.load(buffers_ptr + rank * stride + offs, mask=mask, other=0.0)",
    ),
    ("eight ones: out[0] is 7, should be 8", "tl.static_range(WORLD)", "tl.static_range(1, WORLD)"),
    ("rows cut out of wider ones", "rank * stride", "rank * N"),
)
RIGHT = (
    (
        "acc = tl.load(buffers_ptr + offs, mask=mask, other=0.0).to(tl.float32)\n"
        "for rank in tl.static_range(1, WORLD):\n"
        "    acc += tl.load(buffers_ptr + rank * stride + offs, mask=mask, other=0.0)",
    ),
    (
        "acc = tl.zeros((BLOCK,), tl.float32)\n"
        "for rank in range(WORLD):\n"
        "    acc = acc + tl.load(buffers_ptr + rank * stride + offs, mask=mask, other=0.0).to(tl.float32)",
    ),
)
