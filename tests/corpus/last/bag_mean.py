import torch
import triton
import triton.language as tl

SIZES = {"bags": (1, 2, 5, 8), "width": (1, 8, 20)}


def bag_mean_inputs(bags, width):
    counts = torch.randint(0, 7, (bags,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(counts, 0)])
    return {
        "table": torch.randn(30, width),
        "indices": torch.randint(0, 30, (int(offsets[-1]),)),
        "offsets": offsets,
        "mode": "mean" if torch.rand(()) < 0.6 else "sum",
    }


@triton.jit
def bag_mean_kernel(table_ptr, index_ptr, offset_ptr, out_ptr, width, stride, MEAN: tl.constexpr, BLOCK: tl.constexpr):
    bag = tl.program_id(0)
    d = tl.arange(0, BLOCK)
    first = tl.load(offset_ptr + bag)
    last = tl.load(offset_ptr + bag + 1)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for at in range(first, last):
        index = tl.load(index_ptr + at)
        total += tl.load(table_ptr + index * stride + d, mask=d < width, other=0.0).to(tl.float32)
    if MEAN:
        count = (last - first).to(tl.float32)
        total = total / count
    tl.store(out_ptr + bag.to(tl.int64) * width + d, total, mask=d < width)


def bag_mean(table, indices, offsets, mode="mean"):
    """Sums or means of rows of a table, one for each bag; a bag without rows gives zeros."""
    if mode not in ("sum", "mean"):
        raise ValueError(f"mode {mode!r} is not supported")
    if table.stride(-1) != 1:
        table = table.contiguous()
    indices, offsets = indices.contiguous(), offsets.contiguous()
    width, bags = table.shape[1], offsets.shape[0] - 1
    out = torch.empty(bags, width, dtype=table.dtype, device=table.device)
    if out.numel():
        bag_mean_kernel[(bags,)](
            table,
            indices,
            offsets,
            out,
            width,
            table.stride(0),
            MEAN=mode == "mean",
            BLOCK=triton.next_power_of_2(width),
        )
    return out


def bag_mean_reference(table, indices, offsets, mode="mean"):
    rows = []
    for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist()):
        total = table[indices[first:last]].float().sum(0)
        rows.append(total / max(last - first, 1) if mode == "mean" else total)
    return torch.stack(rows).to(table.dtype)
