import torch
import triton
import triton.language as tl

INPUTS = {"x": "batch time cols", "decay": "batch time cols", "start": "batch cols"}


@triton.jit
def decayed_sum_kernel(x_ptr, a_ptr, h_ptr, y_ptr, time, cols, BLOCK: tl.constexpr):
    batch = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = c < cols
    h = tl.load(h_ptr + batch * cols + c, mask=mask, other=0.0).to(tl.float32)
    for t in range(time):
        at = (batch * time + t) * cols + c
        a = tl.sigmoid(tl.load(a_ptr + at, mask=mask, other=0.0).to(tl.float32))
        h = a * h + tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + at, h, mask=mask)


@triton.jit
def decayed_sum_backward_kernel(a_ptr, h_ptr, y_ptr, g_ptr, dx_ptr, da_ptr, dh_ptr, time, cols, BLOCK: tl.constexpr):
    batch = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = c < cols
    carried = tl.zeros((BLOCK,), dtype=tl.float32)
    for back in range(time):
        t = time - 1 - back
        at = (batch * time + t) * cols + c
        a = tl.sigmoid(tl.load(a_ptr + at, mask=mask, other=0.0).to(tl.float32))
        before = tl.load(y_ptr + at - cols, mask=mask & (t > 0), other=0.0)
        d = tl.load(g_ptr + at, mask=mask, other=0.0).to(tl.float32) + carried
        tl.store(dx_ptr + at, d, mask=mask)
        tl.store(da_ptr + at, d * before * a * (1.0 - a), mask=mask)
        carried = d * a
    tl.store(dh_ptr + batch * cols + c, carried, mask=mask)


class DecayedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, decay, start):
        x, decay, start = x.contiguous(), decay.contiguous(), start.contiguous()
        batch, time, cols = x.shape
        y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        if x.numel():
            decayed_sum_kernel[(batch, triton.cdiv(cols, 32))](x, decay, start, y, time, cols, BLOCK=32)
        ctx.save_for_backward(decay, start, y)
        return y.to(x.dtype, copy=True)

    @staticmethod
    def backward(ctx, g):
        decay, start, y = ctx.saved_tensors
        batch, time, cols = y.shape
        dx, da, dh = torch.empty_like(decay), torch.empty_like(decay), torch.zeros_like(start)
        if y.numel():
            decayed_sum_backward_kernel[(batch, triton.cdiv(cols, 32))](
                decay, start, y, g.contiguous(), dx, da, dh, time, cols, BLOCK=32
            )
        return dx, da, dh


def decayed_sum(x, decay, start):
    """h = sigmoid(decay) * h + x at each time, from a state that is given."""
    return DecayedSum.apply(x, decay, start)


def decayed_sum_reference(x, decay, start):
    h, states = start.float(), []
    for t in range(x.shape[1]):
        h = torch.sigmoid(decay[:, t].float()) * h + x[:, t].float()
        states.append(h)
    return torch.stack(states, 1).to(x.dtype) if states else torch.zeros_like(x)
