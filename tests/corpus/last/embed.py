import torch
import triton
import triton.language as tl

INPUTS = {"table": "tokens width", "ids": "batch time: int64 below tokens", "padding": (None, 0)}


@triton.jit
def embed_kernel(table_ptr, ids_ptr, out_ptr, width, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    token = tl.load(ids_ptr + at)
    tl.store(out_ptr + at * width + d, tl.load(table_ptr + token * width + d, mask=d < width), mask=d < width)


@triton.jit
def embed_backward_kernel(g_ptr, ids_ptr, d_ptr, width, padding, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    token = tl.load(ids_ptr + at)
    g = tl.load(g_ptr + at * width + d, mask=d < width, other=0.0).to(tl.float32)
    tl.atomic_add(d_ptr + token * width + d, g, mask=(d < width) & (at != padding))


class Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, ids, padding):
        table, ids = table.contiguous(), ids.contiguous()
        out = torch.empty(*ids.shape, table.shape[1], dtype=table.dtype, device=table.device)
        if out.numel():
            embed_kernel[(ids.numel(),)](table, ids, out, table.shape[1], BLOCK=triton.next_power_of_2(table.shape[1]))
        ctx.save_for_backward(ids)
        ctx.table = table.shape, table.dtype, padding
        return out

    @staticmethod
    def backward(ctx, g):
        (ids,) = ctx.saved_tensors
        shape, dtype, padding = ctx.table
        d = torch.zeros(shape, dtype=torch.float32, device=g.device)
        if g.numel():
            embed_backward_kernel[(ids.numel(),)](
                g.contiguous(),
                ids,
                d,
                shape[1],
                -1 if padding is None else padding,
                BLOCK=triton.next_power_of_2(shape[1]),
            )
        return d.to(dtype), None, None


def embed(table, ids, padding=None):
    """Rows of a table; the padding token's row gets no gradient."""
    return Embed.apply(table, ids, padding)


def embed_reference(table, ids, padding=None):
    rows = table[ids]
    if padding is None:
        return rows
    return torch.where((ids == padding)[..., None], rows.detach(), rows)
