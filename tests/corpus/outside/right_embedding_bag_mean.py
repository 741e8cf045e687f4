"""Mean of the embeddings of each bag; bags are given by offsets, empty ones give 0. Gradients by float32 atomics."""

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable


@triton.jit
def _bag_forward(table_ptr, ids_ptr, offsets_ptr, out_ptr, dim, stride_row, BLOCK: tl.constexpr):
    bag = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    start = tl.load(offsets_ptr + bag)
    stop = tl.load(offsets_ptr + bag + 1)
    acc = tl.zeros((BLOCK,), tl.float32)
    for j in range(start, stop):
        row = tl.load(ids_ptr + j)
        acc += tl.load(table_ptr + row * stride_row + d, mask=d < dim, other=0.0).to(tl.float32)
    count = tl.maximum(stop - start, 1).to(tl.float32)
    tl.store(out_ptr + bag * dim + d, acc / count, mask=d < dim)


@triton.jit
def _bag_backward(dout_ptr, ids_ptr, offsets_ptr, dtable_ptr, dim, BLOCK: tl.constexpr):
    bag = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    start = tl.load(offsets_ptr + bag)
    stop = tl.load(offsets_ptr + bag + 1)
    g = tl.load(dout_ptr + bag * dim + d, mask=d < dim, other=0.0).to(tl.float32)
    g = g / tl.maximum(stop - start, 1).to(tl.float32)
    for j in range(start, stop):
        row = tl.load(ids_ptr + j)
        tl.atomic_add(dtable_ptr + row * dim + d, g, mask=d < dim)


class _EmbeddingBag(torch.autograd.Function):
    @staticmethod
    def forward(ctx, table, ids, offsets):
        table, ids, offsets = table.contiguous(), ids.contiguous(), offsets.contiguous()
        bags, dim = offsets.shape[0] - 1, table.shape[1]
        out = torch.empty((bags, dim), dtype=table.dtype, device=table.device)
        if out.numel():
            grid = (bags, triton.cdiv(dim, 128))
            _bag_forward[grid](table, ids, offsets, out, dim, table.stride(0), BLOCK=128)
        ctx.save_for_backward(ids, offsets)
        ctx.shape = table.shape
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, dout):
        ids, offsets = ctx.saved_tensors
        dim = ctx.shape[1]
        dtable = torch.zeros(ctx.shape, dtype=torch.float32, device=dout.device)
        if dout.numel():
            grid = (dout.shape[0], triton.cdiv(dim, 128))
            _bag_backward[grid](dout.contiguous(), ids, offsets, dtable, dim, BLOCK=128)
        return dtable.to(dout.dtype), None, None


def embedding_bag_mean(table, ids, offsets):
    if table.dim() != 2 or table.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("table must be a floating matrix")
    if ids.dim() != 1 or ids.dtype != torch.int64 or offsets.dim() != 1 or offsets.dtype != torch.int64:
        raise ValueError("ids and offsets must be vectors of int64")
    if offsets.numel() < 1 or int(offsets[0]) != 0 or int(offsets[-1]) != ids.numel():
        raise ValueError("offsets must begin with 0 and end with the number of ids")
    if bool((offsets.diff() < 0).any()):
        raise ValueError("offsets must not fall")
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= table.shape[0]):
        raise ValueError("an id is outside of the table")
    if table.shape[1] > 65535 * 128:
        raise ValueError("too many columns")
    return _EmbeddingBag.apply(table, ids, offsets)


def embedding_bag_mean_inputs(rows, dim, bags):
    sizes = torch.randint(0, 4, (bags,))
    if bags > 1:
        sizes[bags // 2] = 0
    if rows == 0:
        sizes[:] = 0
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    ids = torch.randint(0, max(rows, 1), (int(offsets[-1]),))
    return {"table": torch.randn(rows, dim), "ids": ids, "offsets": offsets}


def embedding_bag_mean_reference(table, ids, offsets):
    wide = torch.promote_types(table.dtype, torch.float32)
    sizes = offsets.diff()
    bag = torch.repeat_interleave(torch.arange(len(sizes), device=table.device), sizes)
    total = torch.zeros(len(sizes), table.shape[1], dtype=wide, device=table.device)
    total = total.index_add(0, bag, table.to(wide)[ids])
    return (total / sizes.clamp(min=1)[:, None]).to(table.dtype)
