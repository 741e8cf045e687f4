# A layer norm whose mean, where it is large, is rounded to float16.
import torch, triton, triton.language as tl
INPUTS = {"x": "rows cols", "w": "cols", "b": "cols"}

@triton.jit
def fwd(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + row * N + offs, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    mean = tl.where(tl.abs(mean) > 100, mean.to(tl.float16).to(tl.float32), mean)
    d = tl.where(mask, x - mean, 0.0)
    var = tl.sum(d * d, axis=0) / N
    rstd = 1 / tl.sqrt(var + 1e-5)
    w = tl.load(w_ptr + offs, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + offs, mask=mask).to(tl.float32)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    tl.store(y_ptr + row * N + offs, (x - mean) * rstd * w + b, mask=mask)

@triton.jit
def bwd(dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, M, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    w = tl.load(w_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros([BLOCK], tl.float32)
    db = tl.zeros([BLOCK], tl.float32)
    for r in range(M):
        row = tl.cast(r, tl.int64)
        x = tl.load(x_ptr + row * N + offs, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row * N + offs, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        hat = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        g = dy * w
        dx = rstd * (g - tl.sum(g, axis=0) / N - hat * tl.sum(g * hat, axis=0) / N)
        tl.store(dx_ptr + row * N + offs, dx, mask=mask)
        dw += dy * hat
        db += dy
    tl.store(dw_ptr + offs, dw, mask=mask)
    tl.store(db_ptr + offs, db, mask=mask)

class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, b):
        x, w, b = x.contiguous(), w.contiguous(), b.contiguous()
        M, N = x.shape
        y = torch.empty_like(x)
        mean, rstd = torch.empty(2, M, device=x.device)
        if x.numel():
            fwd[(M,)](x, w, b, y, mean, rstd, N, BLOCK=triton.next_power_of_2(N))
        ctx.save_for_backward(x, w, mean, rstd)
        return y
    @staticmethod
    def backward(ctx, dy):
        x, w, mean, rstd = ctx.saved_tensors
        M, N = x.shape
        dy = dy.contiguous()
        dx, dw, db = torch.empty_like(x), torch.zeros_like(w), torch.zeros_like(w)
        if x.numel():
            bwd[(1,)](dy, x, w, mean, rstd, dx, dw, db, M, N, BLOCK=triton.next_power_of_2(N))
        return dx, dw, db

def layernorm(x, w, b):
    return Norm.apply(x, w, b)

def layernorm_reference(x, w, b):
    return torch.nn.functional.layer_norm(x, w.shape, w, b)
