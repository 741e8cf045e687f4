import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "weight": "cols", "eps": (1e-6, 1e-2)}


@triton.jit
def forward_kernel(x_ptr, w_ptr, y_ptr, rstd_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + c, mask=c < cols, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x) / cols + eps)
    tl.store(rstd_ptr + row, rstd)
    tl.store(y_ptr + row * cols + c, x * rstd * w, mask=c < cols)


@triton.jit
def backward_kernel(x_ptr, w_ptr, g_ptr, rstd_ptr, dx_ptr, dw_ptr, rows, cols, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + c, mask=c < cols, other=0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(program, rows, tl.num_programs(0)):
        at = row * cols + c
        x = tl.load(x_ptr + at, mask=c < cols, other=0.0).to(tl.float32)
        g = tl.load(g_ptr + at, mask=c < cols, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        n = x * rstd
        wg = w * g
        tl.store(dx_ptr + at, rstd * (wg - n * (tl.sum(wg * n) / cols)), mask=c < cols)
        dw += g * n
    if program < rows:
        tl.store(dw_ptr + program * cols + c, dw, mask=c < cols)


class RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        x, weight = x.contiguous(), weight.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
        if x.numel():
            forward_kernel[(rows,)](x, weight, y, rstd, cols, eps, BLOCK=triton.next_power_of_2(cols))
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    def backward(ctx, g):
        x, weight, rstd = ctx.saved_tensors
        rows, cols = x.shape
        if x.numel() == 0:
            return torch.zeros_like(x), torch.zeros_like(weight), None
        programs = 8
        dx = torch.empty_like(x)
        parts = torch.empty(programs, cols, dtype=torch.float32, device=x.device)
        backward_kernel[(programs,)](
            x, weight, g.contiguous(), rstd, dx, parts, rows, cols, BLOCK=triton.next_power_of_2(cols)
        )
        return dx, parts.sum(0).to(weight.dtype), None


def rms_norm_trained(x, weight, eps=1e-6):
    return RmsNorm.apply(x, weight, eps)


def rms_norm_trained_reference(x, weight, eps=1e-6):
    wide = x.float()
    if x.shape[1] == 0:
        return x * weight
    return (wide * torch.rsqrt(wide.pow(2).mean(1, keepdim=True) + eps) * weight.float()).to(x.dtype)
