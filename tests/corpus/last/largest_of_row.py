import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def largest_of_row_kernel(x_ptr, v_ptr, cols, s_r, s_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * s_r + c * s_c, mask=c < cols, other=-float("inf")).to(tl.float32)
    bad = tl.sum(tl.where((c < cols) & (x != x), 1, 0))
    tl.store(v_ptr + row, tl.where(bad > 0, float("nan"), tl.max(x)))


@triton.jit
def largest_of_row_backward_kernel(x_ptr, v_ptr, g_ptr, dx_ptr, cols, s_r, s_c, s_g, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * s_r + c * s_c, mask=c < cols, other=-float("inf")).to(tl.float32)
    v = tl.load(v_ptr + row + c * 0).to(tl.float32)
    hit = (c < cols) & ((x == v) | ((x != x) & (v != v)))
    g = tl.load(g_ptr + row * s_g).to(tl.float32)
    tl.store(dx_ptr + row * cols + c, tl.where(hit, g, 0.0), mask=c < cols)


class LargestOfRow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        rows, cols = x.shape
        if cols == 0:
            raise ValueError("a row without columns has no largest number")
        v = torch.empty(rows, dtype=x.dtype, device=x.device)
        if rows:
            largest_of_row_kernel[(rows,)](x, v, cols, *x.stride(), BLOCK=triton.next_power_of_2(cols))
        ctx.save_for_backward(x, v)
        return v

    @staticmethod
    def backward(ctx, g):
        x, v = ctx.saved_tensors
        rows, cols = x.shape
        dx = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
        if rows:
            largest_of_row_backward_kernel[(rows,)](
                x, v, g, dx, cols, *x.stride(), g.stride(0), BLOCK=triton.next_power_of_2(cols)
            )
        return dx


def largest_of_row(x):
    """The largest number of each row. The first of equal ones gets the gradient."""
    return LargestOfRow.apply(x)


def largest_of_row_reference(x):
    with torch.no_grad():
        v = x.amax(1, keepdim=True)
        first = ((x == v) | (x.isnan() & v.isnan())).to(torch.int64).argmax(1, keepdim=True)
    return x.gather(1, first).squeeze(1)
