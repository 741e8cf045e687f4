"""Sum of each column by programs over row blocks; the last to arrive adds the partials. The counters are kept between calls,
and nobody sets them back: from the second call on the last to arrive isn't noticed (a stale workspace)."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}
_COUNTERS = {}


@triton.jit
def _sum(X, PART, CNT, OUT, M, N, sr, sc, PARTS: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr):
    p = tl.program_id(0)
    j = tl.program_id(1)
    c = (j * BN + tl.arange(0, BN)).to(tl.int64)
    acc = tl.zeros((BN,), tl.float32)
    for r0 in range(p * BM, M, PARTS * BM):
        r = (r0 + tl.arange(0, BM)).to(tl.int64)
        x = tl.load(X + r[:, None] * sr + c[None, :] * sc, mask=(r[:, None] < M) & (c[None, :] < N), other=0.0)
        acc += tl.sum(x.to(tl.float32), axis=0)
    tl.store(PART + p * tl.cast(N, tl.int64) + c, acc, mask=c < N)
    tl.debug_barrier()
    if tl.atomic_add(CNT + j, 1, sem="acq_rel") == PARTS - 1:
        tl.debug_barrier()
        total = tl.zeros((BN,), tl.float32)
        for i in range(PARTS):
            total += tl.load(PART + i * tl.cast(N, tl.int64) + c, mask=c < N, other=0.0, cache_modifier=".cg")
        tl.store(OUT + c, total, mask=c < N)


def column_sums(x):
    if x.dim() != 2 or x.shape[1] > 64 * 65535 or (torch.is_grad_enabled() and x.requires_grad):
        raise ValueError("x: (rows, cols)")
    M, N = x.shape
    out = torch.zeros(N, dtype=torch.float32, device=x.device)
    blocks = triton.cdiv(N, 64)
    if N == 0:
        return out
    cnt = _COUNTERS.get((x.device, blocks))
    if cnt is None:
        cnt = _COUNTERS[x.device, blocks] = torch.zeros(blocks, dtype=torch.int32, device=x.device)
    part = torch.empty((4, N), dtype=torch.float32, device=x.device)
    _sum[(4, blocks)](x, part, cnt, out, M, N, x.stride(0), x.stride(1), PARTS=4, BN=64, BM=16)
    return out


def column_sums_reference(x):
    return x.float().sum(0)
