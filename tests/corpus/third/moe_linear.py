"""One linear layer an expert; tokens without one (-1) are left unwritten (after ROCm/aiter#160)."""
import torch
import triton
import triton.language as tl

def moe_linear_inputs(tokens, n):
    g = torch.Generator().manual_seed(tokens + 50 * n)
    return {"x": torch.randn(tokens, 16, generator=g), "w": torch.randn(4, n, 16, generator=g),
            "expert": torch.randint(-1, 4, (tokens,), generator=g)}


@triton.jit
def _moe(X, W, E, Y, N, sx, K: tl.constexpr, BN: tl.constexpr):
    t = tl.program_id(0).to(tl.int64)
    e = tl.load(E + t)
    if e < 0:
        return
    c = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    k = tl.arange(0, K)
    x = tl.load(X + t * sx + k).to(tl.float32)
    w = tl.load(W + (e * N + c[:, None]) * K + k[None, :], mask=c[:, None] < N, other=0.0).to(tl.float32)
    tl.store(Y + t * N + c, tl.sum(w * x[None, :], axis=1), mask=c < N)


def moe_linear(x, w, expert):
    if x.dim() != 2 or w.dim() != 3 or w.shape[2] != x.shape[1] or expert.shape != x.shape[:1] or w.dtype != x.dtype or x.shape[1] != 16:
        raise ValueError("x: (tokens, 16), w: (experts, n, 16), expert: (tokens,)")
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):
        raise RuntimeError("inference")
    if expert.numel() and not -1 <= int(expert.min()) <= int(expert.max()) < w.shape[0]:
        raise IndexError("expert")
    x, w, expert = x if x.stride(1) == 1 else x.contiguous(), w.contiguous(), expert.contiguous()
    y = torch.empty((x.shape[0], w.shape[1]), dtype=x.dtype, device=x.device)
    if y.numel():
        _moe[(x.shape[0], triton.cdiv(w.shape[1], 32))](x, w, expert, y, w.shape[1], x.stride(0), K=16, BN=32)
    return y


def moe_linear_reference(x, w, expert):
    if w.shape[2] != x.shape[1] or (expert.numel() and int(expert.max()) >= w.shape[0]):
        raise ValueError("shapes")
    y = torch.einsum("tk,tnk->tn", x.float(), w.float()[expert.clamp(min=0)])
    return torch.where((expert >= 0)[:, None], y, 0.0).to(x.dtype)
