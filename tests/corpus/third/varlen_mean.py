"""Mean of each sequence of a packed batch (cu_seqlens), its gradient by a second kernel. An empty sequence gives zeros."""
import torch
import triton
import triton.language as tl


def varlen_mean_inputs(tokens, dim, seqs):
    g = torch.Generator().manual_seed(tokens * 7 + seqs)
    cuts = torch.randint(0, tokens + 1, (max(seqs - 1, 0),), generator=g).sort().values
    cu = torch.cat((torch.zeros(1, dtype=torch.int64), cuts, torch.full((1,), tokens, dtype=torch.int64))).to(torch.int32)
    return {"x": torch.randn(tokens, dim, generator=g), "cu_seqlens": cu}


@triton.jit
def _pool(X, CU, OUT, st, sd, D, BT: tl.constexpr, BD: tl.constexpr):
    s = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    beg = tl.load(CU + s).to(tl.int64)
    end = tl.load(CU + s + 1).to(tl.int64)
    acc = tl.zeros((BD,), dtype=tl.float32)
    for t0 in range(beg, end, BT):
        t = t0 + tl.arange(0, BT)
        x = tl.load(X + t[:, None] * st + d[None, :].to(tl.int64) * sd, mask=(t[:, None] < end) & (d[None, :] < D), other=0.0)
        acc += tl.sum(x.to(tl.float32), axis=0)
    n = tl.maximum(end - beg, 1).to(tl.float32)
    tl.store(OUT + s * D + d, acc / n, mask=d < D)


@triton.jit
def _pool_bwd(DY, CU, DX, ds, dd, D, BT: tl.constexpr, BD: tl.constexpr):
    s = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    beg = tl.load(CU + s).to(tl.int64)
    end = tl.load(CU + s + 1).to(tl.int64)
    g = tl.load(DY + s * ds + d.to(tl.int64) * dd, mask=d < D, other=0.0).to(tl.float32) / tl.maximum(end - beg, 1).to(tl.float32)
    for t0 in range(beg, end, BT):
        t = t0 + tl.arange(0, BT)
        tl.store(DX + t[:, None] * D + d[None, :], tl.broadcast_to(g[None, :], (BT, BD)),
                 mask=(t[:, None] < end) & (d[None, :] < D))


class _VarlenMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cu):
        cu = cu.contiguous()
        n, D = cu.numel() - 1, x.shape[1]
        out = torch.empty((n, D), dtype=x.dtype, device=x.device)
        if n and D:
            _pool[(n, triton.cdiv(D, 32))](x, cu, out, x.stride(0), x.stride(1), D, BT=16, BD=32)
        ctx.save_for_backward(cu)
        ctx.shape = x.shape
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        (cu,) = ctx.saved_tensors
        dx = torch.zeros(ctx.shape, dtype=dy.dtype, device=dy.device)
        n, D = dy.shape
        if n and D:
            _pool_bwd[(n, triton.cdiv(D, 32))](dy, cu, dx, dy.stride(0), dy.stride(1), D, BT=16, BD=32)
        return dx, None


def varlen_mean(x, cu_seqlens):
    """cu_seqlens: (sequences + 1,), rising, from 0 to len(x)."""
    if x.dim() != 2 or cu_seqlens.dim() != 1 or cu_seqlens.numel() < 1:
        raise ValueError("x: (tokens, dim), cu_seqlens: (sequences + 1,)")
    if int(cu_seqlens[0]) != 0 or int(cu_seqlens[-1]) != x.shape[0]:
        raise ValueError("cu_seqlens runs from 0 to len(x)")
    return _VarlenMean.apply(x, cu_seqlens)


def varlen_mean_reference(x, cu_seqlens):
    cu = cu_seqlens.tolist()
    if cu[0] != 0 or cu[-1] != x.shape[0]:
        raise ValueError("cu_seqlens")
    rows = [x[a:b].float().sum(0) / max(b - a, 1) for a, b in zip(cu, cu[1:])]
    return torch.stack(rows).to(x.dtype) if rows else x.new_empty((0, x.shape[1]))
