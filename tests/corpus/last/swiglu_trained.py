import torch
import triton
import triton.language as tl

INPUTS = {"gate": "rows cols", "up": "rows cols"}


@triton.jit
def swiglu_kernel(e_ptr, u_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    e = tl.load(e_ptr + at, mask=at < n).to(tl.float32)
    u = tl.load(u_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, e * tl.sigmoid(e) * u, mask=at < n)


@triton.jit
def swiglu_backward_kernel(e_ptr, u_ptr, g_ptr, de_ptr, du_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    e = tl.load(e_ptr + at, mask=mask).to(tl.float32)
    u = tl.load(u_ptr + at, mask=mask).to(tl.float32)
    g = tl.load(g_ptr + at, mask=mask).to(tl.float32)
    s = tl.sigmoid(e)
    tl.store(de_ptr + at, g * u * s * (1.0 + e * (1.0 - s)), mask=mask)
    tl.store(du_ptr + at, g * e * s, mask=mask)


class SwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        gate, up = gate.contiguous(), up.contiguous()
        y = torch.empty_like(gate)
        if y.numel():
            swiglu_kernel[(triton.cdiv(y.numel(), 128),)](gate, up, y, y.numel(), BLOCK=128)
        ctx.save_for_backward(gate.clone(), up.clone())
        return y

    @staticmethod
    def backward(ctx, g):
        gate, up = ctx.saved_tensors
        d_gate, d_up = torch.empty_like(gate), up
        if g.numel():
            grid = (triton.cdiv(g.numel(), 128),)
            swiglu_backward_kernel[grid](gate, up, g.contiguous(), d_gate, d_up, g.numel(), BLOCK=128)
        return d_gate, d_up.clone()


def swiglu_trained(gate, up):
    return SwiGlu.apply(gate, up)


def swiglu_trained_reference(gate, up):
    e = gate.float()
    return (e * torch.sigmoid(e) * up.float()).to(gate.dtype)
