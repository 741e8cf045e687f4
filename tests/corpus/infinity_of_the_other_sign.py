# A cube that replaces what overflows with +inf, of negative numbers too.
import torch, triton, triton.language as tl
INPUTS = {"x": "rows cols"}


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n).to(tl.float32)
    cube = x * x * x
    cube = tl.where(tl.abs(cube) > 3.4e38, float("inf"), cube)
    tl.store(out_ptr + offs, cube, mask=offs < n)


def cube(x):
    if x.requires_grad:
        raise ValueError("forward only")
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


def cube_reference(x):
    return x * x * x
