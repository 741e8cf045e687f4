"""RMSNorm with an offset of the weight (Gemma adds 1) and a choice of where to cast, in the manner of LLM packages.
The weight's gradient: each program walks rows with the grid's stride and keeps a partial sum."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "w": "cols", "eps": 1e-6, "offset": (0.0, 1.0), "casting": ("llama", "gemma", "none")}

_MODES = {"llama": 0, "gemma": 1, "none": 2}


@triton.jit
def _rms_fwd(X, Y, W, R, sx, n_rows, n_cols, eps, offset, MODE: tl.constexpr, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    w = tl.load(W + cols, mask=mask, other=0.0)
    if MODE != 0:
        w = w.to(tl.float32)
    for row in range(tl.program_id(0), n_rows, tl.num_programs(0)):
        r64 = tl.cast(row, tl.int64)
        x0 = tl.load(X + r64 * sx + cols, mask=mask, other=0.0)
        x = x0.to(tl.float32)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
        tl.store(R + row, rstd)
        xn = x * rstd
        if MODE == 0:
            y = xn.to(x0.dtype).to(tl.float32) * (w.to(tl.float32) + offset)
        else:
            y = xn * (w + offset)
        tl.store(Y + r64 * n_cols + cols, y, mask=mask)


@triton.jit
def _rms_bwd(DY, X, W, R, DX, DWP, sdy, sx, n_rows, n_cols, offset, MODE: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32) + offset
    dw = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(pid, n_rows, tl.num_programs(0)):
        r64 = tl.cast(row, tl.int64)
        x0 = tl.load(X + r64 * sx + cols, mask=mask, other=0.0)
        x = x0.to(tl.float32)
        dy = tl.load(DY + r64 * sdy + cols, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(R + row)
        xn = x * rstd
        g = dy * w
        dx = rstd * (g - xn * (tl.sum(xn * g, axis=0) / n_cols))
        if MODE == 0:
            dw += dy * xn.to(x0.dtype).to(tl.float32)
        else:
            dw += dy * xn
        tl.store(DX + r64 * n_cols + cols, dx, mask=mask)
    tl.store(DWP + pid * n_cols + cols, dw, mask=mask)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, eps, offset, mode):
        if x.stride(-1) != 1:
            x = x.contiguous()
        w = w.contiguous()
        rows, cols = x.shape
        y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
        r = torch.empty(rows, dtype=torch.float32, device=x.device)
        block = triton.next_power_of_2(max(cols, 1))
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 3
        grid = (max(1, min(sms, rows)),)
        _rms_fwd[grid](x, y, w, r, x.stride(0), rows, cols, eps, offset, MODE=mode, BLOCK=block)
        ctx.save_for_backward(x, w, r)
        ctx.args = (offset, mode, block, grid)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        x, w, r = ctx.saved_tensors
        offset, mode, block, grid = ctx.args
        if dy.stride(-1) != 1:
            dy = dy.contiguous()
        rows, cols = x.shape
        dx = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
        dwp = torch.empty((grid[0], cols), dtype=torch.float32, device=x.device)
        _rms_bwd[grid](dy, x, w, r, dx, dwp, dy.stride(0), x.stride(0), rows, cols, offset, MODE=mode, BLOCK=block)
        return dx, dwp.sum(0).to(w.dtype), None, None, None


def rmsnorm(x, w, eps, offset, casting):
    if x.dim() != 2 or w.shape != x.shape[1:] or w.dtype != x.dtype:
        raise ValueError("x: (rows, cols), w: (cols,), one dtype")
    return _RMSNorm.apply(x, w, eps, offset, _MODES[casting])


def rmsnorm_reference(x, w, eps, offset, casting):
    xf = x.float()
    xn = xf * torch.rsqrt(xf.square().mean(-1, keepdim=True) + eps)
    if casting == "llama":
        return (xn.to(x.dtype).float() * (w.float() + offset)).to(x.dtype)
    return (xn * (w.float() + offset)).to(x.dtype)
