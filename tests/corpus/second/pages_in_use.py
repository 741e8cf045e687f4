import torch
import triton
import triton.language as tl

SIZES = {"sequences": (1, 2, 4), "width": (4, 16)}


def pages_in_use_inputs(sequences, width):
    page, most = 4, 5
    lengths = torch.randint(1, page * most + 1, (sequences,), dtype=torch.int32)
    keys, values = torch.randn(2, sequences * most, page, width).unbind(0)
    table = torch.randperm(sequences * most).reshape(sequences, most)
    place = torch.arange(page * most).expand(sequences, -1)
    stale = torch.zeros(sequences * most, page, dtype=torch.bool)
    stale[table] = (place >= lengths[:, None]).reshape(sequences, most, page)
    values = values.masked_fill(stale[..., None], float("nan"))
    return {"q": torch.randn(sequences, width), "keys": keys, "values": values, "table": table, "lengths": lengths}


@triton.jit
def pages_in_use_kernel(
    q_ptr,
    keys_ptr,
    values_ptr,
    table_ptr,
    lengths_ptr,
    out_ptr,
    most,
    width,
    scale,
    PAGE: tl.constexpr,
    BD: tl.constexpr,
):
    sequence = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths_ptr + sequence)
    d = tl.arange(0, BD)
    q = tl.load(q_ptr + sequence * width + d, mask=d < width, other=0.0).to(tl.float32) * scale
    top = -float("inf")
    total = 0.0
    acc = tl.zeros((BD,), dtype=tl.float32)
    for j in range(tl.cdiv(length, PAGE)):
        page = tl.load(table_ptr + sequence * most + j).to(tl.int64)
        n = tl.arange(0, PAGE)
        seen = j * PAGE + n < length
        at = (page * PAGE + n[:, None]) * width + d[None, :]
        k = tl.load(keys_ptr + at, mask=seen[:, None] & (d[None, :] < width), other=0.0).to(tl.float32)
        v = tl.load(values_ptr + at, mask=d[None, :] < width, other=0.0).to(tl.float32)
        s = tl.where(seen, tl.sum(q[None, :] * k, axis=1), -float("inf"))
        higher = tl.maximum(top, tl.max(s))
        p = tl.exp(s - higher)
        old = tl.exp(top - higher)
        acc = acc * old + tl.sum(p[:, None] * v, axis=0)
        total = total * old + tl.sum(p)
        top = higher
    tl.store(out_ptr + sequence * width + d, acc / total, mask=d < width)


def pages_in_use(q, keys, values, table, lengths):
    """Attention of one query for each sequence over its pages. What is beyond its length, at least one, is undefined."""
    q, keys, values = q.contiguous(), keys.contiguous(), values.contiguous()
    table, lengths = table.contiguous(), lengths.contiguous()
    sequences, width = q.shape
    out = torch.empty_like(q)
    if out.numel():
        pages_in_use_kernel[(sequences,)](
            q,
            keys,
            values,
            table,
            lengths,
            out,
            table.shape[1],
            width,
            width**-0.5,
            PAGE=keys.shape[1],
            BD=triton.next_power_of_2(width),
        )
    return out


def pages_in_use_reference(q, keys, values, table, lengths):
    out = torch.zeros(q.shape, dtype=torch.float64, device=q.device)
    for i in range(q.shape[0]):
        n = int(lengths[i])
        k = keys[table[i].long()].flatten(0, 1)[:n].double()
        v = values[table[i].long()].flatten(0, 1)[:n].double()
        out[i] = torch.softmax(k @ q[i].double() * q.shape[1] ** -0.5, 0) @ v
    return out.to(q.dtype)
