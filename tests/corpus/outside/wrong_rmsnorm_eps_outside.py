# kind: eps outside of the root; fault: eps is added to the root, not under it (line 16)
# source: own

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "eps": (1e-6, 1e-2)}


@triton.jit
def _kernel(x_ptr, y_ptr, N, eps, stride_r, stride_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * stride_r + n * stride_c, mask=n < N, other=0.0).to(tl.float32)
    rms = tl.sqrt(tl.sum(x * x, axis=0) / N) + eps
    tl.store(y_ptr + row * N + n, x / rms, mask=n < N)


def rms_normalize(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    if x.ndim != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be a matrix of float16, bfloat16 or float32")
    if x.shape[1] > 16384:
        raise ValueError("at most 16384 columns")
    if x.requires_grad:
        raise ValueError("no backward pass")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        block = triton.next_power_of_2(x.shape[1])
        _kernel[(x.shape[0],)](x, y, x.shape[1], eps, x.stride(0), x.stride(1), BLOCK=block)
    return y


def rms_normalize_reference(x, eps=1e-6):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], eps=eps)
