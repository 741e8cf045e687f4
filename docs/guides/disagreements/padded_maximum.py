import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def softmax_kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, offsets = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = offsets < cols
    x = tl.load(x_ptr + row * cols + offsets, mask=inside, other=-float("inf")).to(tl.float32)
    power = tl.exp(x - tl.max(x))  # exp(−∞) is 0, so that the padded lanes add nothing
    tl.store(out_ptr + row * cols + offsets, power / tl.sum(power), mask=inside)


def softmax(x):
    if x.dim() != 2 or x.requires_grad:
        raise ValueError("x must be a matrix that requires no gradient")
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        softmax_kernel[(len(x),)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def softmax_reference(x):
    return torch.softmax(x, dim=-1)
