import torch
import triton
import triton.language as tl

INPUTS = {"x": "n", "y": "n", "scale": (0.5, -3.0)}


@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, scale, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offs, mask=mask).to(tl.float32)
    tl.store(out_ptr + offs, x * scale + y, mask=mask)


def scaled_add(x, y, scale):
    if not x.is_floating_point() or x.shape != y.shape:
        raise ValueError("x and y must have one shape")
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    scaled_add_kernel[(triton.cdiv(n, 256),)](x, y, out, scale, n, BLOCK=256)
    return out


def scaled_add_reference(x, y, scale):
    if x.shape != y.shape:
        raise ValueError("x and y must have one shape")
    return x * scale + y
