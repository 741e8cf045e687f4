"""How many tokens each expert gets, and where each expert's tokens begin (moe_align_block_size of vLLM, in small)."""

import torch
import triton
import triton.language as tl

INPUTS = {"ids": "tokens topk: int64 below experts", "weights": "experts"}


@triton.jit
def _count(ids_ptr, counts_ptr, n, experts, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ids = tl.load(ids_ptr + i, mask=i < n, other=-1).to(tl.int32)
    bins = tl.arange(0, BINS)
    # A comparison with each bin: no two lanes add to one address.
    hits = tl.sum((ids[:, None] == bins[None, :]).to(tl.int32), axis=0)
    tl.atomic_add(counts_ptr + bins, hits, mask=(bins < experts) & (hits > 0))


@triton.jit
def _offsets(counts_ptr, offsets_ptr, experts, BINS: tl.constexpr):
    e = tl.arange(0, BINS)
    counts = tl.load(counts_ptr + e, mask=e < experts, other=0)
    tl.store(offsets_ptr + 1 + e, tl.cumsum(counts, 0), mask=e < experts)


def expert_histogram(ids: torch.Tensor, weights: torch.Tensor):
    """ids int64 (tokens, topk), a weight for each expert (only its length counts). Returns (counts, offsets), int32."""
    if ids.ndim != 2 or ids.dtype != torch.int64:
        raise ValueError("ids must be int64 (tokens, topk)")
    if weights.ndim != 1 or weights.device != ids.device:
        raise ValueError("weights must be a vector on the device of ids")
    experts = weights.shape[0]
    if experts > 512:
        raise ValueError("at most 512 experts")
    if ids.numel() >= 2**31:
        raise ValueError("too many tokens")
    if ids.numel() and (int(ids.min()) < 0 or int(ids.max()) >= experts):
        raise ValueError("an id is no expert")
    counts = torch.zeros(experts, dtype=torch.int32, device=ids.device)
    offsets = torch.zeros(experts + 1, dtype=torch.int32, device=ids.device)
    bins = max(16, triton.next_power_of_2(experts))
    if ids.numel():
        flat = ids.reshape(-1).contiguous()
        _count[(triton.cdiv(flat.numel(), 64),)](flat, counts, flat.numel(), experts, BLOCK=64, BINS=bins)
        _offsets[(1,)](counts, offsets, experts, BINS=bins)
    return counts, offsets


def expert_histogram_reference(ids, weights):
    counts = torch.bincount(ids.reshape(-1), minlength=weights.shape[0]).to(torch.int32)
    zero = torch.zeros(1, dtype=torch.int32, device=ids.device)
    return counts, torch.cat([zero, counts.cumsum(0).to(torch.int32)])
