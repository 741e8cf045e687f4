import torch
import triton
import triton.language as tl

SIZES = {"batch": (1, 2, 4), "width": (4, 8)}


def decode_in_parts_inputs(batch, width):
    lengths = torch.randint(1, 60, (batch,), dtype=torch.int32)
    return {
        "q": torch.randn(batch, width),
        "k": torch.randn(batch, 60, width),
        "v": torch.randn(batch, 60, width),
        "lengths": lengths,
    }


@triton.jit
def decode_part_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    length_ptr,
    acc_ptr,
    stat_ptr,
    most,
    width,
    PARTS: tl.constexpr,
    BN: tl.constexpr,
    BD: tl.constexpr,
):
    batch = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    n = part * BN + tl.arange(0, BN)
    d = tl.arange(0, BD)
    length = tl.load(length_ptr + batch)
    slot = batch * PARTS + part
    if part * BN < length:
        q = tl.load(q_ptr + batch * width + d, mask=d < width, other=0.0).to(tl.float32)
        inside = (n[:, None] < length) & (d[None, :] < width)
        at = (batch * most + n[:, None]) * width + d[None, :]
        k = tl.load(k_ptr + at, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at, mask=inside, other=0.0).to(tl.float32)
        s = tl.where(n < length, tl.sum(q[None, :] * k, axis=1), -float("inf"))
        top = tl.max(s)
        p = tl.exp(s - tl.where(top == -float("inf"), 0.0, top))
        tl.store(acc_ptr + slot * width + d, tl.sum(p[:, None] * v, axis=0), mask=d < width)
        tl.store(stat_ptr + slot * 2, top)
        tl.store(stat_ptr + slot * 2 + 1, tl.sum(p))


@triton.jit
def decode_merge_kernel(
    acc_ptr, stat_ptr, length_ptr, out_ptr, width, PARTS: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr
):
    batch = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BD)
    length = tl.load(length_ptr + batch)
    top = -float("inf")
    total = 0.0
    acc = tl.zeros((BD,), dtype=tl.float32)
    for part in range(0, length // BN + 1):
        slot = batch * PARTS + part
        t = tl.load(stat_ptr + slot * 2)
        higher = tl.where(t > top, t, top)
        shift = tl.where(higher == -float("inf"), 0.0, higher)
        old, new = tl.exp(top - shift), tl.exp(t - shift)
        acc = acc * old + new * tl.load(acc_ptr + slot * width + d, mask=d < width, other=0.0)
        total = total * old + new * tl.load(stat_ptr + slot * 2 + 1)
        top = higher
    tl.store(out_ptr + batch * width + d, acc / total, mask=d < width)


def decode_in_parts(q, k, v, lengths):
    """Attention of one query a sequence: parts of the keys by programs of their own, then merged."""
    q, k, v, lengths = q.contiguous(), k.contiguous(), v.contiguous(), lengths.contiguous()
    batch, most, width = k.shape
    parts = triton.cdiv(most, 16)
    acc = torch.empty(batch, parts, width, dtype=torch.float32, device=q.device)
    statistics = torch.empty(batch, parts, 2, dtype=torch.float32, device=q.device)
    out = torch.empty_like(q)
    if q.numel():
        block = triton.next_power_of_2(width)
        decode_part_kernel[(batch, parts)](q, k, v, lengths, acc, statistics, most, width, PARTS=parts, BN=16, BD=block)
        decode_merge_kernel[(batch,)](acc, statistics, lengths, out, width, PARTS=parts, BN=16, BD=block)
    return out


def decode_in_parts_reference(q, k, v, lengths):
    rows = []
    for b, length in enumerate(lengths.tolist()):
        p = torch.softmax((q[b].float() * k[b, :length].float()).sum(1), 0)
        rows.append((p[:, None] * v[b, :length].float()).sum(0))
    return torch.stack(rows).to(q.dtype)
