"""# A mirrored tile that isn't square

`gram(a)` multiplies a matrix by its own transpose. Only tiles on the diagonal and below are computed, and each is
stored a second time, in the mirror. Somebody made the tiles 16 by 8, and now numbers are missing. Find the bug.
"""

# %% solution
from academy.runtime import device

import torch
import triton
import triton.language as tl


@triton.jit
def gram_kernel(a_ptr, c_ptr, M, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    pid_m, pid_n = tl.program_id(0), tl.program_id(1)
    lower = pid_m >= pid_n
    offs_m = pid_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, tl.where(lower, K, 0), BLOCK_K):
        inside = k + offs_k < K
        a = tl.load(
            a_ptr + offs_m[:, None] * K + (k + offs_k)[None, :],
            mask=(offs_m < M)[:, None] & inside[None, :],
            other=0.0,
        )
        b = tl.load(
            a_ptr + offs_n[None, :] * K + (k + offs_k)[:, None],
            mask=(offs_n < M)[None, :] & inside[:, None],
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    mask = lower & (offs_m < M)[:, None] & (offs_m[:, None] >= offs_n[None, :])
    tl.store(c_ptr + offs_m[:, None] * M + offs_n[None, :], acc, mask=mask)
    tl.store(c_ptr + offs_n[None, :] * M + offs_m[:, None], acc, mask=mask & (offs_m[:, None] > offs_n[None, :]))


def gram(a):
    M, K = a.shape
    c = torch.empty((M, M), dtype=a.dtype, device=a.device)
    # <<<
    BLOCK_M, BLOCK_N = 16, 16
    # ===
    # BLOCK_M, BLOCK_N = 16, 8
    # >>>
    grid = (triton.cdiv(M, BLOCK_M), triton.cdiv(M, BLOCK_N))
    gram_kernel[grid](a, c, M, K, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=16)
    return c


# %% checks
PAGE = "kernels/optimizers/muon.md"
KIND = "find the bug"
ORDER = 4
HINTS = (
    "Which tiles touch the diagonal, if they are twice as tall as wide? The kernel asks for the numbers of tiles.",
    "`pid_m >= pid_n` means *on the diagonal or below* only if a tile has as many rows as columns.",
)
WHY = """Tile (0, 1) of 16 by 8 has the rows 0 to 15 and the columns 8 to 15. Half of it lies below the diagonal, but
its numbers say *above*, and nobody computes it. Another condition would do, but a tile's mirror image would still have
another shape than the tiles there. With square tiles one is the image of the other."""


def check(t):
    for rows, columns in ((1, 5), (8, 16), (9, 3), (16, 17), (t.random.randint(33, 40), 9)):
        case = f"{rows} x {columns}"
        run = t.compare(case, "gram", lambda a: a @ a.T, t.positive(rows, columns), name="c")
        working = {"load": set(), "store": set()}
        for access in run.accesses:
            if access.elements.max() >= 0:
                working[access.operation].add(access.program)
        idle = sorted(working["load"] - working["store"])
        t.require(
            not idle, f"programs {idle} multiply, and nothing of it is stored: their tiles are in the mirror", case
        )


WRONG = (
    ("no program of gram_kernel writes c_ptr[8, 8]",),
    ("no program of gram_kernel writes c_ptr[4, 4]", "BLOCK_M, BLOCK_N = 16, 16", "BLOCK_M, BLOCK_N = 16, 4"),
    ("no program of gram_kernel writes c_ptr[16, 16]", "BLOCK_M, BLOCK_N = 16, 16", "BLOCK_M, BLOCK_N = 32, 16"),
    ("multiply, and nothing of it is stored", "lower = pid_m >= pid_n", "lower = pid_m >= 0"),
    (
        "does a store outside a tensor",
        "mask=mask & (offs_m[:, None] > offs_n[None, :])",
        "mask=offs_m[:, None] < offs_n[None, :]",
    ),
)
RIGHT = (
    ("BLOCK_M, BLOCK_N = 16, 16", "BLOCK_M = BLOCK_N = 32"),
    (
        "BLOCK_M, BLOCK_N = 16, 16",
        "BLOCK_M, BLOCK_N = 32, 16",
        "lower = pid_m >= pid_n",
        "lower = pid_m * BLOCK_M + BLOCK_M > pid_n * BLOCK_N",
    ),
)
