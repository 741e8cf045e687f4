import torch
import triton
import triton.language as tl

INPUTS = {"base": "rows cols", "index": "updates: int64 below rows", "update": "updates cols", "alpha": (1.0, -0.5)}


@triton.jit
def scatter_rows_add_kernel(out_ptr, index_ptr, u_ptr, cols, s_u, s_c, alpha, BLOCK: tl.constexpr):
    update = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = c < cols
    row = tl.load(index_ptr + update)
    u = tl.load(u_ptr + update * s_u + c * s_c, mask=inside, other=0.0).to(tl.float32)
    target = out_ptr + row * cols + c
    tl.store(target, tl.load(target, mask=inside) + alpha * u, mask=inside)


def scatter_rows_add(base, index, update, alpha=1.0):
    """base with alpha * update added to the rows that index names; a row may be named more than once."""
    out = base.detach().to(torch.float32, copy=True).contiguous()
    if out.numel() and update.numel():
        cols = base.shape[1]
        block = min(128, triton.next_power_of_2(cols))
        scatter_rows_add_kernel[(update.shape[0], triton.cdiv(cols, block))](
            out, index.contiguous(), update, cols, *update.stride(), alpha, BLOCK=block
        )
    return out.to(base.dtype)


def scatter_rows_add_reference(base, index, update, alpha=1.0):
    return base.float().index_add(0, index, update.float(), alpha=alpha).to(base.dtype)
