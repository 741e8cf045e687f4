import torch
import triton
import triton.language as tl

INPUTS = {"x": "batch time channels", "weight": "channels 4", "activation": (None, "silu")}


@triton.jit
def short_convolution_kernel(
    x_ptr, w_ptr, out_ptr, time, channels, SILU: tl.constexpr, WIDTH: tl.constexpr, BT: tl.constexpr, BC: tl.constexpr
):
    batch = tl.program_id(0).to(tl.int64)
    t = tl.program_id(1) * BT + tl.arange(0, BT)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    base = batch * time * channels
    inside = (t[:, None] < time) & (c[None, :] < channels)
    total = tl.zeros((BT, BC), dtype=tl.float32)
    for k in range(WIDTH):
        past = t - (WIDTH - 1 - k)
        known = inside & (batch * time + past[:, None] >= 0)
        x = tl.load(x_ptr + base + past[:, None] * channels + c[None, :], mask=known, other=0.0)
        w = tl.load(w_ptr + c * WIDTH + k, mask=c < channels, other=0.0)
        total += tl.where(known, x.to(tl.float32) * w[None, :].to(tl.float32), 0.0)
    if SILU:
        total = total / (1.0 + tl.exp(-total))
    tl.store(out_ptr + base + t[:, None] * channels + c[None, :], total, mask=inside)


def short_convolution(x, weight, activation=None):
    """Depthwise causal convolution over time, four taps, as state-space models have it before their scan."""
    x, weight = x.contiguous(), weight.contiguous()
    batch, time, channels = x.shape
    out = torch.empty_like(x)
    if x.numel() == 0:
        return out
    bt, bc = 16, min(32, triton.next_power_of_2(channels))
    grid = (batch, triton.cdiv(time, bt), triton.cdiv(channels, bc))
    short_convolution_kernel[grid](
        x, weight, out, time, channels, SILU=activation == "silu", WIDTH=weight.shape[1], BT=bt, BC=bc
    )
    return out


def short_convolution_reference(x, weight, activation=None):
    batch, time, channels = x.shape
    wide = x.float()
    total = torch.zeros_like(wide)
    for k in range(4):
        back = 3 - k
        if time > back:
            total[:, back:] += wide[:, : time - back] * weight[:, k].float()
    if activation == "silu":
        total = total / (1 + torch.exp(-total))
    return total.to(x.dtype)
