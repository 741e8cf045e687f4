import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "length": "rows: int64 below cols"}


@triton.jit
def weights_kernel(x_ptr, length_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    seen = offs < tl.load(length_ptr + row)
    x = tl.load(x_ptr + row * n_cols + offs, mask=offs < n_cols, other=0.0).to(tl.float32)
    x = tl.where(seen, x, -1e30)
    e = tl.exp(x - tl.max(x, axis=0))
    e = tl.where(offs < n_cols, e, 0.0)
    tl.store(out_ptr + row * n_cols + offs, e / tl.sum(e, axis=0), mask=offs < n_cols)


def weights(x, length):
    if x.requires_grad:
        raise ValueError("forward only")
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        block = triton.next_power_of_2(x.shape[1])
        weights_kernel[(x.shape[0],)](x, length.contiguous(), out, x.shape[1], BLOCK=block)
    return out


def weights_reference(x, length):
    seen = torch.arange(x.shape[1], device=x.device) < length[:, None]
    return torch.softmax(x.masked_fill(~seen, -float("inf")), 1).nan_to_num(0.0)
