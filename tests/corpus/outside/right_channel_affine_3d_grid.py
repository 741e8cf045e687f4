"""y = x * scale[c] + shift[c] for x (n, c, length), on a grid of three axes."""

import torch
import triton
import triton.language as tl

INPUTS = {"x": "n c length", "scale": "c", "shift": "c"}


@triton.jit
def _affine(x_ptr, a_ptr, b_ptr, y_ptr, length, C, sxn, sxc, sxl, sa, sb, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1).to(tl.int64)
    n = tl.program_id(2).to(tl.int64)
    a = tl.load(a_ptr + c * sa).to(tl.float32)
    b = tl.load(b_ptr + c * sb).to(tl.float32)
    x = tl.load(x_ptr + n * sxn + c * sxc + i * sxl, mask=i < length).to(tl.float32)
    tl.store(y_ptr + (n * C + c) * length + i, x * a + b, mask=i < length)


def channel_affine(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    if x.ndim != 3:
        raise ValueError(f"x must be (n, c, length), not {tuple(x.shape)}")
    N, C, L = x.shape
    if N > 65535 or C > 65535:
        raise ValueError("n and c may be at most 65535, CUDA's limit for the second and third axis of a grid")
    if scale.shape != (C,) or shift.shape != (C,):
        raise ValueError(f"scale and shift must have shape ({C},)")
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(f"{x.dtype} isn't supported")
    if scale.dtype != x.dtype or shift.dtype != x.dtype:
        raise ValueError("scale and shift must have the dtype of x")
    if x.requires_grad or scale.requires_grad or shift.requires_grad:
        raise ValueError("channel_affine is forward only")
    with torch.cuda.device(x.device):
        y = torch.empty((N, C, L), device=x.device, dtype=x.dtype)
        if y.numel():
            grid = (triton.cdiv(L, 256), C, N)
            _affine[grid](x, scale, shift, y, L, C, *x.stride(), scale.stride(0), shift.stride(0), BLOCK=256)
    return y


def channel_affine_reference(x, scale, shift):
    wide = torch.promote_types(x.dtype, torch.float32)
    return (x.to(wide) * scale.to(wide)[:, None] + shift.to(wide)[:, None]).to(x.dtype)
