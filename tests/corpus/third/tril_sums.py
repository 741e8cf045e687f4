"""Sum over the lower triangle by rows; one tuned configuration has a wider column block than row block, and steps over the
diagonal (after state-spaces/mamba#537)."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "n n"}


@triton.autotune(configs=[triton.Config({"BM": 16, "BN": 16}), triton.Config({"BM": 16, "BN": 32})], key=["n"])
@triton.jit
def _tril(X, Y, n, sr, sc, BM: tl.constexpr, BN: tl.constexpr):
    start = tl.program_id(0) * BM
    r = (start + tl.arange(0, BM)).to(tl.int64)
    acc = tl.zeros((BM,), tl.float32)
    # whole blocks left of the diagonal need no mask for it
    for c0 in range(0, start, BN):
        c = (c0 + tl.arange(0, BN)).to(tl.int64)
        acc += tl.sum(tl.load(X + r[:, None] * sr + c[None, :] * sc, mask=(r[:, None] < n) & (c[None, :] < n), other=0.0).to(tl.float32), axis=1)
    c = (start + tl.arange(0, BM)).to(tl.int64)
    x = tl.load(X + r[:, None] * sr + c[None, :] * sc, mask=(r[:, None] < n) & (c[None, :] < n) & (c[None, :] <= r[:, None]), other=0.0)
    tl.store(Y + r, acc + tl.sum(x.to(tl.float32), axis=1), mask=r < n)


def tril_sums(x):
    if x.dim() != 2 or x.shape[0] != x.shape[1] or (torch.is_grad_enabled() and x.requires_grad):
        raise ValueError("a square, without a gradient")
    n = x.shape[0]
    y = torch.empty(n, dtype=torch.float32, device=x.device)
    if n:
        _tril[lambda a: (triton.cdiv(n, a["BM"]),)](x, y, n, x.stride(0), x.stride(1))
    return y


def tril_sums_reference(x):
    if x.shape[0] != x.shape[1]:
        raise ValueError("a square")
    return x.float().tril().sum(1)
