"""Sums of columns with atomics; the autotuner must clear the sums between its trials (see triton-lang/triton#4217)."""

import torch
import triton
import triton.language as tl

INPUTS = {"grad": "rows cols"}


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_R": 32, "BLOCK_C": 32}, num_warps=4),
        triton.Config({"BLOCK_R": 64, "BLOCK_C": 16}, num_warps=2),
        triton.Config({"BLOCK_R": 16, "BLOCK_C": 128}, num_warps=4),
    ],
    key=["rows", "cols"],
    reset_to_zero=["sum_ptr"],
)
@triton.jit
def _colsum(grad_ptr, sum_ptr, rows, cols, stride_r, stride_c, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    r = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = tl.program_id(1).to(tl.int64) * BLOCK_C + tl.arange(0, BLOCK_C)
    mask = (r[:, None] < rows) & (c[None, :] < cols)
    g = tl.load(grad_ptr + r[:, None] * stride_r + c[None, :] * stride_c, mask=mask, other=0.0)
    tl.atomic_add(sum_ptr + c, tl.sum(g.to(tl.float32), axis=0), mask=c < cols)


def bias_grad(grad: torch.Tensor) -> torch.Tensor:
    """Gradient of a bias of shape (cols,), from the gradient (rows, cols) of what it was added to."""
    if grad.ndim != 2:
        raise ValueError(f"grad must have two dims, not {grad.ndim}")
    if grad.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"{grad.dtype} isn't supported")
    if grad.requires_grad:
        raise ValueError("grad must not require a gradient itself")
    rows, cols = grad.shape
    if cols > 16 * 65535:
        raise ValueError("too many columns")
    sums = torch.zeros(cols, dtype=torch.float32, device=grad.device)
    if grad.numel():
        grid = lambda meta: (triton.cdiv(rows, meta["BLOCK_R"]), triton.cdiv(cols, meta["BLOCK_C"]))  # noqa: E731
        _colsum[grid](grad, sums, rows, cols, grad.stride(0), grad.stride(1))
    return sums.to(grad.dtype)


def bias_grad_reference(grad):
    return grad.sum(dim=0)
