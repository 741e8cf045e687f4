r"""
# L2 normalisation: keys of length one

The delta rule writes the difference between a value and what its key reads. A key of length 1 then reads exactly the
value. A longer key overshoots, and one longer than $\sqrt{2}$ makes the error grow with every write:

[[figure: chunks/lengths]]

So layers with a delta rule divide each key by its length first, and each query, too:

[[eq: L2-Y]]

$\varepsilon$ is added to the *sum* of squares, under the root. PyTorch's `F.normalize` divides by the larger of the
length and $\varepsilon$ instead. RMSNorm adds $\varepsilon$ to the mean of squares, which for a key of 128 numbers is
128 times as much. A model has to be run with the one that it was trained with.

The gradient loses its part along the row: making a key longer has no effect.

[[eq: L2-X]]

**What it costs.** Forward reads `x` and writes `y`, backward reads `dy` and `x` and writes `dx`. Memory sets the limit,
as in [RMSNorm](../classics/rmsnorm.py). At the keys of 8 x 4096 tokens with 16 heads of 128 numbers, forward reaches
[[bench: l2_normalize/8x4096x16x128/forward/share]] of the speed of a copy and backward
[[bench: l2_normalize/8x4096x16x128/backward/share]].

**Where it falls behind.** Forward it takes [[bench: l2_normalize/8x4096x16x128/forward/ms]], against
[[bench: l2_normalize/8x4096x16x128/forward/torch.compile.ms]] for `torch.compile`, which keeps a short row in
registers. The kernel here, made for rows of any length, reads it again, from the cache.

**Contract.** `x` is float32, float16 or bfloat16, with any shape and any strides; rows lie along its last dimension and
may have any length below 2³¹ − 2¹⁴. Sums are float32, and the result is rounded once: bfloat16 keys have a length of 1
but for `eps` and their own rounding. A row of zeros stays zero, unless `eps` is 0: then it is NaN. A NaN makes its row
NaN; an infinity becomes NaN and the rest of its row 0. The sum of squares must fit into float32: a row longer than
$1.8 \cdot 10^{19}$ becomes 0.
"""

from academy.runtime import autograd, checks, device, script  # missing? Run make in the clone, then .venv/bin/python
from academy.runtime.replay import replayed

import torch
import triton
import triton.language as tl

from annotated_examples.common.rows import as_rows, row_stride, rows_contract


# ## Reference
def l2_normalize_reference(x, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).sum(dim=-1, keepdim=True) + eps)


# ## Forward
#
# Keys are short, often 64 or 128 numbers. A program takes `BLOCK_M` of them, so that it has enough to load. Longer rows
# come in chunks of `BLOCK_N` columns, in two passes: one for the sum of squares, one for the result.
@triton.jit
def l2_normalize_forward_kernel(
    x_ptr, y_ptr, inv_norm_ptr,  # (M, N), (M, N) contiguous, (M,) in float32
    M, N, stride_xm, eps: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    mask_m = offs_m < M
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = mask_m[:, None] & (offs_n < N)[None, :]
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        acc += x * x
    # [[tag: L2-norm]]: the example's first row is (3, 0, 4), of length 5, `pid=0: inv_norm = [0.2000, 0.5000]`.
    inv_norm = 1.0 / tl.sqrt(tl.sum(acc, axis=1) + eps)
    tl.store(inv_norm_ptr + offs_m, inv_norm, mask=mask_m)
    for start in tl.range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = mask_m[:, None] & (offs_n < N)[None, :]
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        # [[tag: L2-Y]]
        tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], x * inv_norm[:, None], mask=mask)


# ## Backward
#
# The same two passes. The first one sums the upstream gradient times the normalised row, the second one takes that part
# away, [[tag: L2-X]]. In a row of one number two nearly equal numbers would be subtracted there, and only rounding
# would be left; [[tag: L2-one]] says what the difference is.
@triton.jit
def l2_normalize_backward_kernel(
    dy_ptr, x_ptr, inv_norm_ptr, dx_ptr,  # (M, N), (M, N), (M,), (M, N) contiguous
    M, N, stride_dym, stride_xm, eps: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    offs_m = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    mask_m = offs_m < M
    inv_norm = tl.load(inv_norm_ptr + offs_m, mask=mask_m, other=0.0)[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in tl.range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = mask_m[:, None] & (offs_n < N)[None, :]
        dy = tl.load(dy_ptr + offs_m[:, None] * stride_dym + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        acc += dy * (x * inv_norm)
    along = tl.sum(acc, axis=1)[:, None]
    for start in tl.range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = mask_m[:, None] & (offs_n < N)[None, :]
        dy = tl.load(dy_ptr + offs_m[:, None] * stride_dym + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0).to(tl.float32)
        if N == 1:
            dx = inv_norm * (dy * eps * inv_norm * inv_norm)
        else:
            dx = inv_norm * (dy - x * inv_norm * along)
        tl.store(dx_ptr + offs_m[:, None] * N + offs_n[None, :], dx, mask=mask)


# ## Launchers
#
# A tile has about 1024 elements: 8 neighbours for each of 128 threads.
def tile(N, BLOCK_M, BLOCK_N):
    checks.power_of_two(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    BLOCK_N = BLOCK_N or min(1024, triton.next_power_of_2(max(N, 1)))
    return dict(BLOCK_M=BLOCK_M or max(1, min(32, 1024 // BLOCK_N)), BLOCK_N=BLOCK_N)


@replayed
def l2_normalize_forward(x, eps=1e-6, *, BLOCK_M=None, BLOCK_N=None):
    """`(y, inv_norm)`: the second is one over the length of each row, in float32."""
    y, N = torch.empty_like(x, memory_format=torch.contiguous_format), x.shape[-1]
    M, sizes = x.numel() // max(N, 1), tile(N, BLOCK_M, BLOCK_N)
    inv_norm = torch.empty(M, dtype=torch.float32, device=x.device)
    if M > 0:
        rows = as_rows(x)
        l2_normalize_forward_kernel[(triton.cdiv(M, sizes["BLOCK_M"]),)](
            rows, y, inv_norm, M, N, row_stride(rows, N), eps, **sizes
        )
    return y, inv_norm


@replayed
def l2_normalize_backward(dy, x, inv_norm, eps=1e-6, *, BLOCK_M=None, BLOCK_N=None):
    """The gradient of x, from the upstream gradient and what forward was given and returned."""
    dx, N = torch.empty_like(x, memory_format=torch.contiguous_format), x.shape[-1]
    M, sizes = inv_norm.numel(), tile(N, BLOCK_M, BLOCK_N)
    if M > 0:
        dy, x = as_rows(dy), as_rows(x)
        l2_normalize_backward_kernel[(triton.cdiv(M, sizes["BLOCK_M"]),)](
            dy, x, inv_norm, dx, M, N, row_stride(dy, N), row_stride(x, N), eps, **sizes
        )
    return dx


# ## Joining autograd
class L2Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps):
        y, inv_norm = l2_normalize_forward(x, eps)
        ctx.save_for_backward(x, inv_norm)
        ctx.eps = eps
        return y

    @staticmethod
    @autograd.once_differentiable
    def backward(ctx, dy):
        return l2_normalize_backward(dy, *ctx.saved_tensors, ctx.eps), None


@replayed
def l2_normalize(x, eps=1e-6):
    """Divides each row by its length, differentiable in `x`.

    Args:
        x: tensor of shape (..., N), float32, float16 or bfloat16, any strides.
        eps: added to the sum of squares under the root, a finite number of at least 0.

    Returns:
        A new tensor of the shape and dtype of `x`.

    Raises:
        TypeError: `x` isn't a tensor or has another dtype, or eps isn't a number.
        ValueError: `x` has no dimension or rows of 2³¹ − 2¹⁴ elements or more, is on the wrong device, or eps is out of
            range.

    Source: Yang et al., "Gated Delta Networks" (arXiv 2412.06464), which normalises queries and keys.
    """
    rows_contract(x)
    checks.number("eps", eps, at_least=0)
    eps = float(eps)
    if not autograd.needs_frame(x):
        return l2_normalize_forward(x, eps)[0]
    return L2Normalize.apply(x, eps)


# ## A run small enough to watch
#
# Three rows of 3 numbers, two at a time, in chunks of 2 columns.
def EXAMPLE():
    x = torch.tensor([[3.0, 0, 4], [0, 2, 0], [2, 3, 6]], device=device.DEVICE)
    size = dict(BLOCK_M=2, BLOCK_N=2)
    _, inv_norm = l2_normalize_forward(x, **size)
    l2_normalize_backward(x.flip(1), x, inv_norm, **size)


if __name__ == "__main__":
    script.main(l2_normalize, l2_normalize_reference)
