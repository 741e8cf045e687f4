import torch
import triton
import triton.language as tl

INPUTS = {"table": "size cols", "index": "n: int64 below size", "rows": "n cols"}
SIZES = {"size": (1, 4, 20)}


@triton.jit
def put_rows_kernel(out_ptr, index_ptr, rows_ptr, n, cols, BLOCK: tl.constexpr):
    target = tl.program_id(0).to(tl.int64)
    last = tl.full((), -1, dtype=tl.int64)
    for i in range(n):
        last = tl.where(tl.load(index_ptr + i) == target, i, last)
    if last >= 0:
        for start in range(0, cols, BLOCK):
            c = start + tl.arange(0, BLOCK)
            x = tl.load(rows_ptr + last * cols + c, mask=c < cols)
            tl.store(out_ptr + target * cols + c, x, mask=c < cols)


def put_rows(table, index, rows):
    """`table` with `rows[i]` at `index[i]`; of several for one place the last counts."""
    index, rows = index.contiguous(), rows.contiguous()
    out = table.detach().clone(memory_format=torch.contiguous_format)
    if rows.numel():
        put_rows_kernel[(table.shape[0],)](out, index, rows, index.shape[0], table.shape[1], BLOCK=32)
    return out


def put_rows_reference(table, index, rows):
    out = table.clone(memory_format=torch.contiguous_format)
    for i, target in enumerate(index.tolist()):
        out[target] = rows[i]
    return out
