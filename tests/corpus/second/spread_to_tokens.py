import torch
import triton
import triton.language as tl


def spread_to_tokens_inputs(requests):
    counts = torch.randint(0, 5, (requests,), dtype=torch.int32)
    return {"x": torch.randn(requests), "ends": counts.cumsum(0, dtype=torch.int32), "tokens": int(counts.sum())}


@triton.jit
def spread_to_tokens_kernel(x_ptr, ends_ptr, out_ptr, requests, BLOCK: tl.constexpr, TOKENS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < requests
    first = tl.where(i == 0, 0, tl.load(ends_ptr + i - 1, mask=inside, other=0))
    last = tl.load(ends_ptr + i, mask=inside, other=0)
    x = tl.load(x_ptr + i, mask=inside, other=0.0)
    longest = tl.max(tl.where(inside, last - first, 0), axis=0)
    for start in range(0, longest, TOKENS):
        t = first[:, None] + start + tl.arange(0, TOKENS)[None, :]
        values = tl.broadcast_to(x[:, None], (BLOCK, TOKENS))
        tl.store(out_ptr + t, values, mask=inside[:, None] & (t < last[:, None]))


def spread_to_tokens(x, ends, tokens):
    """The value of each request for each of its tokens. `ends` has the sums of the lengths so far, the last `tokens`."""
    x, ends = x.contiguous(), ends.contiguous()
    out = torch.empty(tokens, dtype=x.dtype, device=x.device)
    if tokens:
        spread_to_tokens_kernel[(triton.cdiv(x.shape[0], 16),)](x, ends, out, x.shape[0], BLOCK=16, TOKENS=4)
    return out


def spread_to_tokens_reference(x, ends, tokens):
    counts = torch.diff(ends.long(), prepend=ends.new_zeros(1).long())
    return torch.repeat_interleave(x, counts)
