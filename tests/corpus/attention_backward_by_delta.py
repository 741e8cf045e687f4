# Attention of one head; its backward pass takes Σ o · do for Σ p · dp, as FlashAttention does: near one-hot rows the difference is rounding.
import torch, triton, triton.language as tl
INPUTS = {"q": "n d", "k": "n d", "v": "n d"}
SIZES = {"d": [16, 32, 64]}

@triton.jit
def scores(q_ptr, k_ptr, rows, cols, n, d, offs, scale, D: tl.constexpr, causal: tl.constexpr):
    q = tl.load(q_ptr + rows[:, None] * d + offs[None, :], mask=(rows[:, None] < n) & (offs[None, :] < d), other=0.0).to(tl.float32)
    k = tl.load(k_ptr + cols[:, None] * d + offs[None, :], mask=(cols[:, None] < n) & (offs[None, :] < d), other=0.0).to(tl.float32)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    keep = cols[None, :] < n
    if causal:
        keep = keep & (cols[None, :] <= rows[:, None])
    return q, k, tl.where(keep, s, -float("inf"))

@triton.jit
def fwd(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, n, d, scale, D: tl.constexpr, N: tl.constexpr, causal: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * 16 + tl.arange(0, 16)
    cols = tl.arange(0, N)
    offs = tl.arange(0, D)
    q, k, s = scores(q_ptr, k_ptr, rows, cols, n, d, offs, scale, D, causal)
    m = tl.max(s, axis=1)
    p = tl.exp(s - m[:, None])
    l = tl.sum(p, axis=1)
    v = tl.load(v_ptr + cols[:, None] * d + offs[None, :], mask=(cols[:, None] < n) & (offs[None, :] < d), other=0.0).to(tl.float32)
    o = tl.dot(p, v, input_precision="ieee") / l[:, None]
    tl.store(o_ptr + rows[:, None] * d + offs[None, :], o, mask=(rows[:, None] < n) & (offs[None, :] < d))
    tl.store(lse_ptr + rows, m + tl.log(l), mask=rows < n)

@triton.jit
def bwd(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, do_ptr, dq_ptr, dk_ptr, dv_ptr, n, d, scale, D: tl.constexpr, N: tl.constexpr, causal: tl.constexpr):
    rows = tl.arange(0, N).to(tl.int64)
    cols = tl.arange(0, N)
    offs = tl.arange(0, D)
    at = rows[:, None] * d + offs[None, :]
    mask = (rows[:, None] < n) & (offs[None, :] < d)
    q, k, s = scores(q_ptr, k_ptr, rows, cols, n, d, offs, scale, D, causal)
    lse = tl.load(lse_ptr + rows, mask=rows < n, other=float("inf"))
    p = tl.exp(s - lse[:, None])
    v = tl.load(v_ptr + at, mask=mask, other=0.0).to(tl.float32)
    o = tl.load(o_ptr + at, mask=mask, other=0.0).to(tl.float32)
    do = tl.load(do_ptr + at, mask=mask, other=0.0).to(tl.float32)
    delta = tl.sum(o * do, axis=1)
    dp = tl.dot(do, tl.trans(v), input_precision="ieee")
    ds = p * (dp - delta[:, None])
    tl.store(dq_ptr + at, tl.dot(ds, k, input_precision="ieee") * scale, mask=mask)
    tl.store(dk_ptr + at, tl.dot(tl.trans(ds), q, input_precision="ieee") * scale, mask=mask)
    tl.store(dv_ptr + at, tl.dot(tl.trans(p), do, input_precision="ieee"), mask=mask)

class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        n, d = q.shape
        o = torch.empty_like(q)
        lse = torch.empty(n, device=q.device)
        ctx.sizes = dict(D=max(16, triton.next_power_of_2(d)), N=max(16, triton.next_power_of_2(n)), causal=causal)
        if n:
            fwd[(triton.cdiv(n, 16),)](q, k, v, o, lse, n, d, d**-0.5, **ctx.sizes)
        ctx.save_for_backward(q, k, v, o, lse)
        return o
    @staticmethod
    def backward(ctx, do):
        q, k, v, o, lse = ctx.saved_tensors
        n, d = q.shape
        dq, dk, dv = torch.empty_like(q), torch.empty_like(q), torch.empty_like(q)
        if n:
            bwd[(1,)](q, k, v, o, lse, do.contiguous(), dq, dk, dv, n, d, d**-0.5, **ctx.sizes)
        return dq, dk, dv, None

def attention(q, k, v, causal=False):
    return Attention.apply(q, k, v, causal)

def attention_reference(q, k, v, causal=False):
    s = q @ k.T * q.shape[-1] ** -0.5
    if causal:
        s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -float("inf"))
    return torch.softmax(s, -1) @ v
