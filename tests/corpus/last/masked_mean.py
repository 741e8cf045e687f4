import torch
import triton
import triton.language as tl

INPUTS = {"x": "batch time width", "kept": "batch time: bool"}


@triton.jit
def masked_mean_kernel(x_ptr, kept_ptr, out_ptr, time, width, s_b, s_t, s_d, BLOCK: tl.constexpr):
    batch = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    count = 0.0
    for t in range(time):
        kept = tl.load(kept_ptr + batch * time + t).to(tl.float32)
        x = tl.load(x_ptr + batch * s_b + t * s_t + d * s_d, mask=d < width, other=0.0)
        total += x.to(tl.float32) * kept
        count += kept
    tl.store(out_ptr + batch * width + d, total / tl.maximum(count, 1.0), mask=d < width)


def masked_mean(x, kept):
    """Means over the tokens that are kept, for sentence embeddings. What the padding holds does not matter."""
    batch, time, width = x.shape
    out = torch.zeros(batch, width, dtype=x.dtype, device=x.device)
    if out.numel() and time:
        block = min(64, triton.next_power_of_2(width))
        masked_mean_kernel[(batch, triton.cdiv(width, block))](
            x, kept.contiguous().view(torch.uint8), out, time, width, *x.stride(), BLOCK=block
        )
    return out


def masked_mean_reference(x, kept):
    wide = torch.where(kept[:, :, None], x.float(), torch.zeros((), device=x.device))
    return (wide.sum(1) / kept.sum(1, keepdim=True).clamp(min=1)).to(x.dtype)
