# The sine of a number of which whole turns are taken away in float32, in one step.
import torch, triton, triton.language as tl
INPUTS = {"x": "rows cols"}


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
    turns = tl.floor(x * 0.15915494309189535 + 0.5)
    tl.store(out_ptr + offs, tl.sin(x - turns * 6.283185307179586), mask=offs < n)


def sine(x):
    if x.requires_grad:
        raise ValueError("forward only")
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


def sine_reference(x):
    return torch.sin(x)
