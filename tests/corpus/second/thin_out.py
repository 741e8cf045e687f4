import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "kept": "rows cols: bool", "p": (0.0, 0.3, 1.0)}


@triton.jit
def thin_out_kernel(x_ptr, kept_ptr, y_ptr, n, p, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    kept = tl.load(kept_ptr + at, mask=at < n, other=0) != 0
    y = tl.where(kept, x, 0.0) / (1.0 - p)
    tl.store(y_ptr + at, y, mask=at < n)


def thin_out(x, kept, p):
    """What a mask keeps, divided by the chance `1 - p` to be kept; zeros for `p` of one."""
    x, kept = x.contiguous(), kept.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        thin_out_kernel[(triton.cdiv(x.numel(), 128),)](x, kept, y, x.numel(), p, BLOCK=128)
    return y


def thin_out_reference(x, kept, p):
    y = torch.where(kept, x.double(), torch.zeros_like(x, dtype=torch.float64))
    return (y / (1.0 - p) if p < 1 else torch.zeros_like(y)).to(x.dtype)
