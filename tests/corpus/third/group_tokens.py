"""Tokens per expert by atomics, beside the order in which a stable sort would put them: two launches."""
import torch
import triton
import triton.language as tl

INPUTS = {"expert": "tokens: int64 below 16", "n_experts": 16}


@triton.jit
def _count(E, CNT, n, BLOCK: tl.constexpr):
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    e = tl.load(E + o, mask=o < n, other=0)
    tl.atomic_add(CNT + e, 1, mask=o < n, sem="relaxed")


@triton.jit
def _place(E, CNT, OUT, n, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    # a program an expert: it starts behind the experts before it and walks the tokens in their order
    me = tl.program_id(0)
    ids = tl.arange(0, EXPERTS)
    at = tl.sum(tl.where(ids < me, tl.load(CNT + ids), 0), axis=0)
    for start in range(0, n, BLOCK):
        o = start + tl.arange(0, BLOCK)
        mine = (tl.load(E + o, mask=o < n, other=-1) == me).to(tl.int32)
        rank = tl.cumsum(mine, axis=0) - mine
        tl.store(OUT + at + rank, o.to(tl.int64), mask=mine != 0)
        at += tl.sum(mine, axis=0)


def group_tokens(expert, n_experts):
    assert expert.dim() == 1 and expert.dtype == torch.int64
    assert n_experts & (n_experts - 1) == 0, "a power of two"
    assert expert.numel() < 2**31
    expert = expert.contiguous()
    n = expert.numel()
    count = torch.zeros(n_experts, dtype=torch.int32, device=expert.device)
    order = torch.empty(n, dtype=torch.int64, device=expert.device)
    if n:
        _count[(triton.cdiv(n, 128),)](expert, count, n, BLOCK=128)
        _place[(n_experts,)](expert, count, order, n, EXPERTS=n_experts, BLOCK=256)
    return count, order


def group_tokens_reference(expert, n_experts):
    return torch.bincount(expert, minlength=n_experts).to(torch.int32), torch.sort(expert, stable=True).indices
