import torch
import triton
import triton.language as tl

SIZES = {"batch": (1, 3), "heads": (1, 2), "queries": (1, 5), "keys": (1, 9, 20)}


def masked_scores_inputs(batch, heads, queries, keys):
    of = [(batch, heads), (batch, 1), (1, heads), (1, 1)][int(torch.randint(0, 4, ()))]
    return {
        "scores": torch.randn(batch, heads, queries, keys),
        "bias": torch.randn(*of, queries, keys),
    }


@triton.jit
def masked_scores_kernel(s_ptr, b_ptr, out_ptr, heads, queries, keys, sb_b, sb_h, sb_q, sb_k, BLOCK: tl.constexpr):
    batch = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    query = tl.program_id(2)
    k = tl.arange(0, BLOCK)
    mask = k < keys
    at = ((batch * heads + head) * queries + query) * keys + k
    bias = tl.load(b_ptr + batch * sb_b + head * sb_h + query * sb_q + k * sb_k, mask=mask, other=0.0)
    s = tl.load(s_ptr + at, mask=mask, other=-float("inf")).to(tl.float32) + bias.to(tl.float32)
    s = tl.where(mask, s, -float("inf"))
    e = tl.where(mask, tl.exp(s - tl.max(s)), 0.0)
    tl.store(out_ptr + at, e / tl.sum(e), mask=mask)


def masked_scores(scores, bias):
    """softmax(scores + bias) over the keys; the bias may be the same for all of a batch, for all heads, or both."""
    scores = scores.contiguous()
    batch, heads, queries, keys = scores.shape
    out = torch.empty_like(scores)
    sb_b, sb_h, sb_q, sb_k = bias.stride()
    if bias.shape[0] == 1:
        sb_b = 0
    if out.numel():
        masked_scores_kernel[(batch, heads, queries)](
            scores, bias, out, heads, queries, keys, sb_b, sb_h, sb_q, sb_k, BLOCK=triton.next_power_of_2(keys)
        )
    return out


def masked_scores_reference(scores, bias):
    return torch.softmax(scores.float() + bias.float(), -1).to(scores.dtype)
