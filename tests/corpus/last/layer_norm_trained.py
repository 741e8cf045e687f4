import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "weight": "cols", "bias": "cols", "eps": 1e-5}


@triton.jit
def forward_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    mask = c < cols
    x = tl.load(x_ptr + row * cols + c, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x) / cols
    d = tl.where(mask, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(d * d) / cols + eps)
    w = tl.load(w_ptr + c, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + c, mask=mask, other=0.0).to(tl.float32)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    tl.store(y_ptr + row * cols + c, d * rstd * w + b, mask=mask)


@triton.jit
def backward_kernel(x_ptr, w_ptr, g_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    mask = c < cols
    x = tl.load(x_ptr + row * cols + c, mask=mask, other=0.0).to(tl.float32)
    g = tl.load(g_ptr + row * cols + c, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + c, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    n = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    wg = w * g
    along = tl.sum(wg * n) / cols
    level = tl.sum(g) / cols
    tl.store(dx_ptr + row * cols + c, (wg - level - n * along) * rstd, mask=mask)
    tl.atomic_add(dw_ptr + c, g * n, mask=mask)
    tl.atomic_add(db_ptr + c, g, mask=mask)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
        rows, cols = x.shape
        y = torch.empty_like(x)
        mean = torch.empty(rows, dtype=torch.float32, device=x.device)
        rstd = torch.empty_like(mean)
        if x.numel():
            forward_kernel[(rows,)](x, weight, bias, y, mean, rstd, cols, eps, BLOCK=triton.next_power_of_2(cols))
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, g):
        x, weight, mean, rstd = ctx.saved_tensors
        rows, cols = x.shape
        dx = torch.empty_like(x)
        dw = torch.zeros(cols, dtype=torch.float32, device=x.device)
        db = torch.zeros_like(dw)
        if x.numel():
            backward_kernel[(rows,)](
                x, weight, g.contiguous(), mean, rstd, dx, dw, db, cols, BLOCK=triton.next_power_of_2(cols)
            )
        return dx, dw.to(weight.dtype), db.to(weight.dtype), None


def layer_norm_trained(x, weight, bias, eps=1e-5):
    return LayerNorm.apply(x, weight, bias, eps)


def layer_norm_trained_reference(x, weight, bias, eps=1e-5):
    if x.shape[1] == 0:
        return x * weight + bias
    wide = x.float()
    d = wide - wide.mean(1, keepdim=True)
    rstd = 1 / torch.sqrt(d.pow(2).mean(1, keepdim=True) + eps)
    return (d * rstd * weight.float() + bias.float()).to(x.dtype)
