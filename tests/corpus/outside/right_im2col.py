"""Patches of 3 by 3 with stride 2 and padding 1 as columns: torch.nn.functional.unfold."""

import torch
import triton
import triton.language as tl

INPUTS = {"x": "n c h w"}


@triton.jit
def _im2col(x_ptr, out_ptr, C, H, W, OH, OW, sn, sc, sh, sw, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ow = i % OW
    rest = i // OW
    oh = rest % OH
    rest = rest // OH
    kw = rest % 3
    rest = rest // 3
    kh = rest % 3
    rest = rest // 3
    c = rest % C
    n = rest // C
    y = oh * 2 - 1 + kh
    x = ow * 2 - 1 + kw
    inside = (i < total) & (y >= 0) & (y < H) & (x >= 0) & (x < W)
    v = tl.load(x_ptr + n * sn + c * sc + y * sh + x * sw, mask=inside, other=0.0)
    tl.store(out_ptr + i, v, mask=i < total)


def im2col(x):
    """x (n, c, h, w) with nothing empty but n → (n, 9 * c, oh * ow)."""
    if x.dim() != 4 or 0 in x.shape[1:]:
        raise ValueError("x must be (n, c, h, w), with c, h and w at least 1")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be float16, bfloat16 or float32")
    if x.requires_grad:
        raise ValueError("im2col has no backward pass here")
    N, C, H, W = x.shape
    OH, OW = (H + 1) // 2, (W + 1) // 2
    out = x.new_empty((N, 9 * C, OH * OW))
    if out.numel():
        _im2col[(triton.cdiv(out.numel(), 256),)](
            x, out, C, H, W, OH, OW, *x.stride(), out.numel(), BLOCK=256
        )  # fmt: skip
    return out


def im2col_reference(x):
    N, C, H, W = x.shape
    OH, OW = (H + 1) // 2, (W + 1) // 2
    p = torch.nn.functional.pad(x, (1, 2, 1, 2))
    parts = [p[:, :, kh : kh + 2 * OH : 2, kw : kw + 2 * OW : 2] for kh in range(3) for kw in range(3)]
    return torch.stack(parts, dim=2).reshape(N, 9 * C, OH * OW)
