"""Mean and variance of each channel with Welford's update, merged by tl.reduce; the statistics of batch norm."""

import torch
import triton
import triton.language as tl

INPUTS = {"x": "n c", "unbiased": (False, True)}


@triton.jit
def welford_combine(mean_a, m2_a, n_a, mean_b, m2_b, n_b):
    delta = mean_b - mean_a
    n = n_a + n_b
    share = tl.where(n == 0.0, 0.0, n_b / n)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * n_a * share, n


@triton.jit
def _stats(x_ptr, mean_ptr, var_ptr, N, C, sxn, sxc, ddof, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr):
    c = tl.program_id(0).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    mean = tl.zeros((BLOCK_N, BLOCK_C), tl.float32)
    m2 = tl.zeros((BLOCK_N, BLOCK_C), tl.float32)
    count = tl.zeros((BLOCK_N, BLOCK_C), tl.float32)
    # Differences to the first row: what all rows share isn't rounded again and again.
    shift = tl.load(x_ptr + c * sxc, mask=c < C, other=0.0).to(tl.float32)
    for start in range(0, N, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N).to(tl.int64)
        mask = (n[:, None] < N) & (c[None, :] < C)
        x = tl.load(x_ptr + n[:, None] * sxn + c[None, :] * sxc, mask=mask, other=0.0).to(tl.float32)
        new_count = count + 1.0
        x = x - shift[None, :]
        delta = x - mean
        new_mean = mean + delta / new_count
        m2 = tl.where(mask, m2 + delta * (x - new_mean), m2)
        mean = tl.where(mask, new_mean, mean)
        count = tl.where(mask, new_count, count)
    mean, m2, count = tl.reduce((mean, m2, count), 0, welford_combine)
    tl.store(mean_ptr + c, mean + shift, mask=c < C)
    tl.store(var_ptr + c, m2 / (N - ddof), mask=c < C)


def batch_stats(x: torch.Tensor, unbiased: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """(mean, var) over the first dim, both float32 (c,). x must be finite."""
    if x.ndim != 2:
        raise ValueError("x must be (n, c)")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    N, C = x.shape
    if N < (2 if unbiased else 1):
        raise ValueError("too few rows for a variance")
    if x.requires_grad:
        raise ValueError("batch_stats has no backward pass")
    if not bool(torch.isfinite(x).all()):
        raise ValueError("x must be finite")
    mean = torch.empty(C, dtype=torch.float32, device=x.device)
    var = torch.empty_like(mean)
    if C:
        _stats[(triton.cdiv(C, 32),)](
            x, mean, var, N, C, x.stride(0), x.stride(1), int(unbiased), BLOCK_N=16, BLOCK_C=32
        )
    return mean, var


def batch_stats_reference(x, unbiased=False):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return wide.mean(0), wide.var(0, unbiased=unbiased)
