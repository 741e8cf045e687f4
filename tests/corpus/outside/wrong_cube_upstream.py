# kind: wrong upstream stride; fault: the row stride of the upstream gradient is taken, that of its columns isn't
# (line 26)
# source: report, ROCm/TransformerEngine#623 (own code, another operator)

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

INPUTS = {"x": "rows cols"}


@triton.jit
def _cube_fwd(x_ptr, y_ptr, cols, sx_r, sx_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * sx_r + c * sx_c, mask=c < cols).to(tl.float32)
    tl.store(y_ptr + row * cols + c, x * x * x, mask=c < cols)


@triton.jit
def _cube_bwd(dy_ptr, x_ptr, dx_ptr, cols, sdy_r, sx_r, sx_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_ptr + row * sx_r + c * sx_c, mask=c < cols).to(tl.float32)
    dy = tl.load(dy_ptr + row * sdy_r + c, mask=c < cols).to(tl.float32)
    tl.store(dx_ptr + row * cols + c, 3.0 * dy * x * x, mask=c < cols)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        rows, cols = x.shape
        y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
        if y.numel():
            _cube_fwd[(rows, triton.cdiv(cols, 256))](x, y, cols, x.stride(0), x.stride(1), BLOCK=256)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        rows, cols = x.shape
        dx = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
        if dx.numel():
            grid = (rows, triton.cdiv(cols, 256))
            _cube_bwd[grid](dy, x, dx, cols, dy.stride(0), x.stride(0), x.stride(1), BLOCK=256)
        return dx


def cube(x):
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be a matrix of float16, bfloat16 or float32")
    if x.shape[1] > 65535 * 256:
        raise ValueError("too many columns")
    return Cube.apply(x)


def cube_reference(x):
    wide = torch.promote_types(x.dtype, torch.float32)
    return (x.to(wide) ** 3).to(x.dtype)
