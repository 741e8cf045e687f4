import torch
import triton
import triton.language as tl

INPUTS = {"x": "time channels", "state": "3 channels", "weight": "4 channels"}
SIZES = {"time": (1, 2, 3, 16, 40)}


@triton.jit
def filter_with_state_kernel(
    x_ptr, state_ptr, weight_ptr, y_ptr, new_ptr, time, channels, BT: tl.constexpr, BC: tl.constexpr
):
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    t = tl.program_id(0).to(tl.int64) * BT + tl.arange(0, BT)
    there = (t[:, None] < time) & (c[None, :] < channels)
    y = tl.zeros((BT, BC), dtype=tl.float32)
    for tap in tl.static_range(4):
        s = t - 3 + tap
        now = tl.load(x_ptr + s[:, None] * channels + c[None, :], mask=there & (s[:, None] >= 0), other=0.0)
        old = tl.load(state_ptr + (s[:, None] + 3) * channels + c[None, :], mask=there & (s[:, None] < 0), other=0.0)
        w = tl.load(weight_ptr + tap * channels + c, mask=c < channels, other=0.0).to(tl.float32)
        y += (now.to(tl.float32) + old.to(tl.float32)) * w[None, :]
    tl.store(y_ptr + t[:, None] * channels + c[None, :], y, mask=there)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        j = tl.arange(0, 4)
        e = time - 3 + j
        inside = (j[:, None] < 3) & (c[None, :] < channels)
        at = e[:, None].to(tl.int64) * channels + c[None, :]
        fresh = tl.load(x_ptr + at, mask=inside & (e[:, None] >= 0), other=0.0)
        kept = tl.load(state_ptr + (e[:, None] + 3) * channels + c[None, :], mask=inside & (e[:, None] < 0), other=0.0)
        tl.store(new_ptr + j[:, None] * channels + c[None, :], fresh + kept, mask=inside)


def filter_with_state(x, state, weight):
    """A causal convolution over time. `state` has the three steps before, and then the last three; it is written to."""
    x, weight = x.contiguous(), weight.contiguous()
    time, channels = x.shape
    y = torch.empty_like(x)
    if y.numel():
        kept = state.contiguous()
        grid = (triton.cdiv(time, 16), triton.cdiv(channels, 32))
        filter_with_state_kernel[grid](x, kept, weight, y, kept, time, channels, BT=16, BC=32)
        if kept is not state:
            state.copy_(kept)
    return y


def filter_with_state_reference(x, state, weight):
    everything = torch.cat([state, x]).double()
    y = sum(everything[tap : tap + x.shape[0]] * weight[tap].double() for tap in range(4))
    state.copy_(everything[-3:])
    return y.to(x.dtype)
