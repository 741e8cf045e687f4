import torch
import triton
import triton.language as tl

SIZES = {"tokens": (0, 1, 3, 17), "width": (1, 8, 33)}


def merge_states_inputs(tokens, heads, width):
    first, second = torch.randn(2, tokens, heads).unbind(0)
    return {
        "a": torch.randn(tokens, heads, width),
        "a_lse": first.masked_fill(torch.rand(tokens, heads) < 0.4, -float("inf")),
        "b": torch.randn(tokens, heads, width),
        "b_lse": second.masked_fill(torch.rand(tokens, heads) < 0.4, -float("inf")),
    }


@triton.jit
def merge_states_kernel(a_ptr, a_lse_ptr, b_ptr, b_lse_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, BLOCK)
    mask = d < width
    a_lse = tl.load(a_lse_ptr + row).to(tl.float32)
    b_lse = tl.load(b_lse_ptr + row).to(tl.float32)
    top = tl.maximum(a_lse, b_lse)
    a_part = tl.exp(a_lse - top)
    b_part = tl.exp(b_lse - top)
    a = tl.load(a_ptr + row * width + d, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + row * width + d, mask=mask, other=0.0).to(tl.float32)
    both = a_part + b_part
    y = (a * a_part + b * b_part) / tl.where(both == 0.0, 1.0, both)
    tl.store(out_ptr + row * width + d, y, mask=mask)


def merge_states(a, a_lse, b, b_lse):
    """Attention over two sets of keys from the results over each. What has seen no key has -inf, and gives zeros."""
    a, a_lse, b, b_lse = a.contiguous(), a_lse.contiguous(), b.contiguous(), b_lse.contiguous()
    out = torch.empty_like(a)
    if out.numel():
        width = a.shape[2]
        merge_states_kernel[(a.shape[0] * a.shape[1],)](
            a, a_lse, b, b_lse, out, width, BLOCK=triton.next_power_of_2(width)
        )
    return out


def merge_states_reference(a, a_lse, b, b_lse):
    parts = torch.softmax(torch.stack([a_lse, b_lse]).double(), 0)
    nothing = (a_lse == -float("inf")) & (b_lse == -float("inf"))
    y = parts[0, ..., None] * a.double() + parts[1, ..., None] * b.double()
    return torch.where(nothing[..., None], torch.zeros_like(y), y).to(a.dtype)
