import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "seed": (3, 99991), "p": (0.25, 0.0)}


@triton.jit
def drawn(place, seed):
    h = (place * 7919 + tl.cast(seed, tl.int64) * 104729) % 1000003
    for _ in tl.static_range(4):
        h = (h * 48271 + 11) % 1000003
    return h.to(tl.float32) * (1.0 / 1000003.0)


@triton.jit
def repeatable_dropout_kernel(x_ptr, y_ptr, cols, s_r, s_c, seed, p, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    kept = drawn((row * cols + c) % 1000003, seed) >= p
    x = tl.load(x_ptr + row * s_r + c * s_c, mask=(c < cols) & kept, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + c, x / (1.0 - p), mask=c < cols)


class RepeatableDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seed, p):
        ctx.options = seed, p
        return dropped(x, seed, p)

    @staticmethod
    def backward(ctx, g):
        return dropped(g, *ctx.options), None, None


def dropped(x, seed, p):
    rows, cols = x.shape
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    if x.numel():
        block = min(64, triton.next_power_of_2(cols))
        repeatable_dropout_kernel[(rows, triton.cdiv(cols, block))](x, y, cols, *x.stride(), seed, p, BLOCK=block)
    return y


def repeatable_dropout(x, seed, p):
    """Dropout that draws the same numbers anew in the backward pass; what is dropped is not even read."""
    return RepeatableDropout.apply(x, seed, p)


def repeatable_dropout_reference(x, seed, p):
    rows, cols = x.shape
    h = (torch.arange(rows * cols, device=x.device) % 1000003 * 7919 + seed * 104729) % 1000003
    for _ in range(4):
        h = (h * 48271 + 11) % 1000003
    kept = (h.to(torch.float32) * (1.0 / 1000003.0) >= p).reshape(rows, cols)
    return torch.where(kept, x.float(), torch.zeros((), device=x.device)).div(1 - p).to(x.dtype)
