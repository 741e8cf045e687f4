"""Token shift within packed sequences, y[t] = x[t] - x[t - 1]; the block's first token takes a neighbour from the sequence before
if a sequence begins there (a boundary of cu_seqlens that only the inside of a block knows)."""
import torch
import triton
import triton.language as tl


def token_shift_inputs(tokens, cols, seqs):
    g = torch.Generator().manual_seed(tokens + 100 * cols + seqs)
    cuts = torch.randint(0, tokens + 1, (max(seqs - 1, 0),), generator=g).sort().values
    cu = torch.cat((torch.zeros(1, dtype=torch.int64), cuts, torch.full((1,), tokens)))
    return {"x": torch.randn(tokens, cols, generator=g), "cu_seqlens": cu}


@triton.jit
def _shift(X, CU, Y, D, sx, BT: tl.constexpr, BD: tl.constexpr):
    s = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1).to(tl.int64) * BD + tl.arange(0, BD)
    beg = tl.load(CU + s)
    end = tl.load(CU + s + 1)
    for t0 in range(beg, end, BT):
        t = t0 + tl.arange(0, BT)
        m = (t[:, None] < end) & (d[None, :] < D)
        x = tl.load(X + t[:, None] * sx + d[None, :], mask=m, other=0.0).to(tl.float32)
        p = tl.load(X + (t[:, None] - 1) * sx + d[None, :], mask=m & (t[:, None] > 0), other=0.0).to(tl.float32)
        tl.store(Y + t[:, None] * D + d[None, :], x - p, mask=m)


def token_shift(x, cu_seqlens):
    if x.dim() != 2 or cu_seqlens.dim() != 1 or cu_seqlens.numel() < 2 or (torch.is_grad_enabled() and x.requires_grad):
        raise ValueError("x: (tokens, cols), cu_seqlens: (sequences + 1,)")
    cu = cu_seqlens.contiguous()
    if int(cu[0]) != 0 or int(cu[-1]) != x.shape[0] or bool((cu[1:] < cu[:-1]).any()):
        raise ValueError("cu_seqlens rises from 0 to len(x)")
    x = x if x.stride(1) == 1 else x.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        _shift[(cu.numel() - 1, triton.cdiv(x.shape[1], 32))](x, cu, y, x.shape[1], x.stride(0), BT=16, BD=32)
    return y


def token_shift_reference(x, cu_seqlens):
    cu = cu_seqlens.tolist()
    if len(cu) < 2 or cu[0] != 0 or cu[-1] != x.shape[0]:
        raise ValueError("cu_seqlens")
    parts = []
    for a, b in zip(cu, cu[1:]):
        s = x[a:b].float()
        parts.append(s - torch.cat((torch.zeros_like(s[:1]), s[:-1])))
    return torch.cat(parts).to(x.dtype)
