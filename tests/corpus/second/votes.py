import torch
import triton
import triton.language as tl

INPUTS = {"labels": "n: int64 below bins", "weights": "n: int32 below 50", "bins_like": "bins"}
SIZES = {"bins": (1, 5, 40)}


@triton.jit
def votes_kernel(labels_ptr, weights_ptr, out_ptr, n, s_l, s_w, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    label = tl.load(labels_ptr + at * s_l, mask=at < n, other=0)
    weight = tl.load(weights_ptr + at * s_w, mask=at < n, other=0)
    tl.atomic_add(out_ptr + label, weight.to(tl.int64), mask=at < n)


def votes(labels, weights, bins_like):
    """The sum of the weights, which are integers, for each label."""
    out = torch.zeros(bins_like.shape[0], dtype=torch.int64, device=labels.device)
    n = labels.shape[0]
    if n:
        votes_kernel[(triton.cdiv(n, 32),)](labels, weights, out, n, labels.stride(0), weights.stride(0), BLOCK=32)
    return out


def votes_reference(labels, weights, bins_like):
    out = torch.zeros(bins_like.shape[0], dtype=torch.int64, device=labels.device)
    return out.index_add(0, labels, weights.long())
