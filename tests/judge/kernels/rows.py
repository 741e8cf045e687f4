import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n_rows, n_cols, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = (rows < n_rows)[:, None] & (offs < n_cols)[None, :]
    x = tl.load(x_ptr + rows[:, None] * stride + offs[None, :], mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(out_ptr + rows[:, None] * n_cols + offs[None, :], e / tl.sum(e, axis=1)[:, None], mask=mask)


def softmax(x):
    if x.requires_grad:
        raise ValueError("softmax is forward only")
    if x.stride(-1) != 1:
        x = x.contiguous()
    rows, cols = x.shape
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(max(cols, 1))
    softmax_kernel[(triton.cdiv(rows, 4),)](x, out, rows, cols, x.stride(0), ROWS=4, BLOCK=block)
    return out


def softmax_reference(x):
    return torch.softmax(x, dim=-1)
