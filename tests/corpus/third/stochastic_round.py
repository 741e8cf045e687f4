"""float32 to bfloat16 by stochastic rounding; the seed says which way. The reference is Philox 4x32-10 in PyTorch, so
both throw the same dice."""
import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols: float32", "seed": (0, 1234567)}


@triton.jit
def _round(X, Y, n, seed, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + o, mask=o < n, other=0.0)
    bits = x.to(tl.uint32, bitcast=True)
    dice = tl.randint(seed, o).to(tl.uint32, bitcast=True) & 0xFFFF
    up = ((bits + dice) >> 16) << 16
    finite = (bits & 0x7F800000) != 0x7F800000
    # of a NaN only the upper half is kept, with the quiet bit set, so that it stays one
    rest = tl.where(x != x, bits | 0x00400000, bits)
    y = tl.where(finite, up, (rest >> 16) << 16).to(tl.float32, bitcast=True)
    tl.store(Y + o, y.to(tl.bfloat16), mask=o < n)


def stochastic_round(x, seed):
    assert x.dtype == torch.float32 and x.numel() < 2**31
    assert not (torch.is_grad_enabled() and x.requires_grad)
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device)
    if x.numel():
        _round[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), seed, BLOCK=512)
    return y


def _philox(seed, offsets):
    m32 = 0xFFFFFFFF
    c0, c1, c2, c3 = offsets & m32, torch.zeros_like(offsets), torch.zeros_like(offsets), torch.zeros_like(offsets)
    k0, k1 = seed & m32, (seed >> 32) & m32

    def mul(a, b):  # 32 by 32 bits, in halves so that int64 doesn't overflow
        lo, hi = a & 0xFFFF, a >> 16
        low = lo * b
        mid = hi * b + (low >> 16)
        return (mid >> 16) & m32, ((mid << 16) | (low & 0xFFFF)) & m32

    for _ in range(10):
        h2, l2 = mul(c2, 0xCD9E8D57)
        h0, l0 = mul(c0, 0xD2511F53)
        c0, c1, c2, c3 = h2 ^ c1 ^ k0, l2, h0 ^ c3 ^ k1, l0
        k0, k1 = (k0 + 0x9E3779B9) & m32, (k1 + 0xBB67AE85) & m32
    return c0


def stochastic_round_reference(x, seed):
    bits = x.contiguous().view(torch.int32).long() & 0xFFFFFFFF
    offsets = torch.arange(x.numel(), device=x.device).view(x.shape)
    up = (bits + (_philox(seed, offsets) & 0xFFFF)) >> 16 & 0xFFFF
    rest = torch.where(x.isnan(), bits | 0x00400000, bits) >> 16
    half = torch.where(x.isfinite(), up, rest)
    half = torch.where(half >= 1 << 15, half - (1 << 16), half).to(torch.int16)
    return half.view(torch.bfloat16)
