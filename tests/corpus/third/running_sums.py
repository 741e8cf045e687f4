"""Running sums along a row, forwards or backwards, exclusive or not, any strides; integers add in int64 and floats in
float32 (the path depends on the dtype). A carry runs from tile to tile."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "counts": "rows cols: int64 below 9", "reverse": (False, True), "exclusive": (False, True)}


@triton.jit
def _scan(X, Y, sr, sc, N, REVERSE: tl.constexpr, EXCLUSIVE: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carry = tl.zeros((), dtype=ACC)
    for i in range(0, N, BLOCK):
        j = i + tl.arange(0, BLOCK)
        k = j - 1 if EXCLUSIVE else j  # the term that comes in here
        c = N - 1 - k if REVERSE else k
        x = tl.load(X + row * sr + c.to(tl.int64) * sc, mask=(k >= 0) & (j < N), other=0).to(ACC)
        s = tl.cumsum(x, axis=0) + carry
        carry += tl.sum(x, axis=0)
        tl.store(Y + row * N + (N - 1 - j if REVERSE else j), s, mask=j < N)


def _run(x, reverse, exclusive):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        acc = tl.float32 if x.dtype.is_floating_point else tl.int64
        _scan[(x.shape[0],)](x, y, x.stride(0), x.stride(1), x.shape[1], REVERSE=reverse, EXCLUSIVE=exclusive, ACC=acc, BLOCK=64)
    return y


class _Cumsum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, reverse, exclusive):
        ctx.how = reverse, exclusive
        return _run(x, reverse, exclusive)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        reverse, exclusive = ctx.how
        return _run(dy, not reverse, exclusive), None, None


def running_sums(x, counts, reverse, exclusive):
    if x.dim() != 2 or counts.shape != x.shape or counts.dtype != torch.int64:
        raise ValueError("x and counts: (rows, cols)")
    return _Cumsum.apply(x, reverse, exclusive), _run(counts, reverse, exclusive)


def running_sums_reference(x, counts, reverse, exclusive):
    def one(v):
        w = v.flip(1) if reverse else v
        s = w.cumsum(1)
        if exclusive:
            s = torch.cat((torch.zeros_like(s[:, :1]), s[:, :-1]), 1)
        return s.flip(1) if reverse else s

    return one(x.float()).to(x.dtype), one(counts)
