import torch
import triton
import triton.language as tl

INPUTS = {"x": "heads time 2*half", "angles": "time half: float32"}


@triton.jit
def rotate_kernel(x_ptr, angle_ptr, y_ptr, time, half, sign, BLOCK: tl.constexpr):
    head = tl.program_id(0).to(tl.int64)
    t = tl.program_id(1)
    d = tl.arange(0, BLOCK)
    mask = d < half
    angle = tl.load(angle_ptr + t * half + d, mask=mask, other=0.0)
    cos, sin = tl.cos(angle), tl.sin(angle) * sign
    at = (head * time + t) * 2 * half + d
    a = tl.load(x_ptr + at, mask=mask).to(tl.float32)
    b = tl.load(x_ptr + at + half, mask=mask).to(tl.float32)
    tl.store(y_ptr + at, a * cos - b * sin, mask=mask)
    tl.store(y_ptr + at + half, b * cos + a * sin, mask=mask)


def rotated(x, angles, sign):
    heads, time, width = x.shape
    y = torch.empty_like(x)
    if x.numel():
        rotate_kernel[(heads, time)](x, angles, y, time, width // 2, sign, BLOCK=triton.next_power_of_2(width // 2))
    return y


class Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, angles):
        x, angles = x.contiguous(), angles.contiguous()
        ctx.save_for_backward(angles)
        return rotated(x, angles, 1.0)

    @staticmethod
    def backward(ctx, g):
        (angles,) = ctx.saved_tensors
        return rotated(g.contiguous(), angles, 1.0), None


def rotate_trained(x, angles):
    """Turns the pairs (d, d + half) of each head by the angle of their time. Angles get no gradient."""
    return Rotate.apply(x, angles.detach())


def rotate_trained_reference(x, angles):
    a, b = x.float().chunk(2, -1)
    cos, sin = torch.cos(angles.detach()), torch.sin(angles.detach())
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).to(x.dtype)
