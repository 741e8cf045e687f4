import torch
import triton
import triton.language as tl

INPUTS = {"target": "tokens heads width", "source": "tokens heads width"}


@triton.jit
def keep_heads_kernel(target_ptr, source_ptr, heads, width, s_t, s_h, s_d, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(source_ptr + token * s_t + head * s_h + d * s_d, mask=d < width, other=0.0)
    tl.store(target_ptr + (token * heads + head) * width + d, x)


def keep_heads(target, source):
    """Copies the source, which may have any strides, to a target that is dense."""
    if not target.is_contiguous():
        raise ValueError("the target isn't dense")
    tokens, heads, width = source.shape
    if source.numel():
        keep_heads_kernel[(tokens, heads)](
            target, source, heads, width, *source.stride(), BLOCK=triton.next_power_of_2(width)
        )


def keep_heads_reference(target, source):
    target.copy_(source)
