import torch
import triton
import triton.language as tl


def same_convolution_inputs(batch, time):
    return {"x": torch.randn(batch, time), "taps": torch.randn(int(torch.randint(1, 7, ())))}


@triton.jit
def same_convolution_kernel(x_ptr, w_ptr, out_ptr, time, width, s_b, s_t, s_w, left, BLOCK: tl.constexpr):
    batch = tl.program_id(0).to(tl.int64)
    t = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(width):
        at = t + k - left
        known = (at >= 0) & (at < time)
        x = tl.load(x_ptr + batch * s_b + at * s_t, mask=known, other=0.0).to(tl.float32)
        acc += tl.where(known, x * tl.load(w_ptr + k * s_w).to(tl.float32), 0.0)
    tl.store(out_ptr + batch * time + t, acc, mask=t < time)


def same_convolution(x, taps):
    """Correlation with zeros around it, as long as x; the odd zero of an even number of taps stands at the end."""
    batch, time = x.shape
    width = taps.shape[0]
    out = torch.empty(batch, time, dtype=x.dtype, device=x.device)
    if out.numel():
        same_convolution_kernel[(batch, triton.cdiv(time, 32))](
            x, taps, out, time, width, *x.stride(), taps.stride(0), width // 2, BLOCK=32
        )
    return out


def same_convolution_reference(x, taps):
    width, time = taps.shape[0], x.shape[1]
    left = (width - 1) // 2
    wide = x.float()
    acc = torch.zeros_like(wide)
    for k in range(width):
        first, last = max(0, left - k), min(time, time + left - k)
        if last > first:
            acc[:, first:last] += wide[:, first + k - left : last + k - left] * taps[k].float()
    return acc.to(x.dtype)
