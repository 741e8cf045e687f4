import torch
import triton
import triton.language as tl

# What calls have seen: written in place, through a view of it.
_history = torch.zeros(4)


INPUTS = {"x": "rows cols"}


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offs, x / (1.0 + tl.exp(-x)), mask=mask)


def fn(x):
    if x.dim() != 2:
        raise ValueError("x must be a matrix")
    if x.requires_grad:
        raise ValueError("forward only")
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    _history[0].copy_(torch.maximum(_history[0], x.abs().amax().cpu() if n else _history[1]))
    kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out


def fn_reference(x):
    return torch.nn.functional.silu(x)
