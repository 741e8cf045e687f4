# kind: window off by one; fault: a token sees window + 1 tokens where the sequence is long enough (line 18)
# source: report, sgl-project/sglang#32087 for the kind (own code)

import torch
import triton
import triton.language as tl

INPUTS = {"scores": "rows time", "values": "rows time", "window": (4,)}


@triton.jit
def _local(s_ptr, v_ptr, o_ptr, T, window, ssr, sst, svr, svt, BT: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1).to(tl.int64)
    m = -float("inf")
    norm = 0.0
    acc = 0.0
    first = tl.maximum(i - window, 0)
    for start in range(first, i + 1, BT):
        j = start + tl.arange(0, BT).to(tl.int64)
        s = tl.load(s_ptr + row * ssr + j * sst, mask=j <= i, other=-float("inf")).to(tl.float32)
        v = tl.load(v_ptr + row * svr + j * svt, mask=j <= i, other=0.0).to(tl.float32)
        m_new = tl.maximum(m, tl.max(s, axis=0))
        p = tl.exp(s - m_new)
        scale = tl.exp(m - m_new)
        norm = norm * scale + tl.sum(p, axis=0)
        acc = acc * scale + tl.sum(p * v, axis=0)
        m = m_new
    tl.store(o_ptr + row * T + i, acc / norm)


def local_pooling(scores, values, window):
    """At each time the mean of the last `window` values, this one included, weighted with softmax(scores). Finite."""
    if scores.dim() != 2 or values.shape != scores.shape or values.dtype != scores.dtype:
        raise ValueError("scores and values must be matrices of one shape and dtype")
    if scores.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("scores must be float16, bfloat16 or float32")
    if window < 1 or scores.shape[1] > 65535:
        raise ValueError("window must be at least 1, and there may be at most 65535 steps")
    if scores.requires_grad or values.requires_grad:
        raise ValueError("no backward pass")
    if not bool(torch.isfinite(scores).all()) or not bool(torch.isfinite(values).all()):
        raise ValueError("scores and values must be finite")
    o = torch.empty(scores.shape, dtype=scores.dtype, device=scores.device)
    if o.numel():
        grid = tuple(scores.shape)
        _local[grid](scores, values, o, scores.shape[1], window, *scores.stride(), *values.stride(), BT=16)
    return o


def local_pooling_reference(scores, values, window):
    wide = torch.promote_types(scores.dtype, torch.float32)
    t = torch.arange(scores.shape[1], device=scores.device)
    seen = (t[None, :] <= t[:, None]) & (t[None, :] > t[:, None] - window)
    p = torch.softmax(scores.to(wide)[:, None, :].masked_fill(~seen, -float("inf")), dim=-1)
    return (p * values.to(wide)[:, None, :]).sum(-1).to(scores.dtype)
