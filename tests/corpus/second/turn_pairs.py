import torch
import triton
import triton.language as tl

INPUTS = {"x": "tokens heads 2*half", "cos": "tokens half", "sin": "tokens half", "neighbours": (False, True)}


@triton.jit
def turn_pairs_kernel(x_ptr, cos_ptr, sin_ptr, y_ptr, heads, half, NEIGHBOURS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    token = row // heads
    d = tl.arange(0, BLOCK)
    inside = d < 2 * half
    if NEIGHBOURS:
        other = d ^ 1
        sign = tl.where(d % 2 == 0, -1.0, 1.0)
    else:
        other = tl.where(d < half, d + half, d - half)
        sign = tl.where(d < half, -1.0, 1.0)
    angle = d % half
    x = tl.load(x_ptr + row * 2 * half + d, mask=inside, other=0.0).to(tl.float32)
    z = tl.load(x_ptr + row * 2 * half + other, mask=inside, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + token * half + angle, mask=inside, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + token * half + angle, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * 2 * half + d, x * cos + sign * z * sin, mask=inside)


def turn_pairs(x, cos, sin, neighbours):
    """Rotary embedding of pairs: of the two halves, or of neighbours."""
    x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
    tokens, heads, width = x.shape
    y = torch.empty_like(x)
    if y.numel():
        turn_pairs_kernel[(tokens * heads,)](
            x, cos, sin, y, heads, width // 2, NEIGHBOURS=neighbours, BLOCK=triton.next_power_of_2(width)
        )
    return y


def turn_pairs_reference(x, cos, sin, neighbours):
    c, s = cos.double()[:, None], sin.double()[:, None]
    if neighbours:
        a, b = x.double()[..., 0::2], x.double()[..., 1::2]
        return torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2).to(x.dtype)
    a, b = x.double().chunk(2, -1)
    return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)
