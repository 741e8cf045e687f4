"""Token numbers by expert, each expert's part padded to a whole block with a sentinel, as a grouped product wants it:
three launches, and the unused rest of the padded output is the sentinel, too."""
import torch
import triton
import triton.language as tl

INPUTS = {"topk_ids": "tokens 2: int64 below 8", "block": (4, 16), "experts": 8}


@triton.jit
def _count(IDS, CNT, n, E: tl.constexpr, BLOCK: tl.constexpr):
    e = tl.program_id(0)
    total = 0
    for i in range(0, n, BLOCK):
        o = i + tl.arange(0, BLOCK)
        total += tl.sum((tl.load(IDS + o, mask=o < n, other=-1) == e).to(tl.int32), axis=0)
    tl.store(CNT + e, total)


@triton.jit
def _offsets(CNT, OFF, TOTAL, PAD: tl.constexpr, E: tl.constexpr):
    e = tl.arange(0, E)
    c = tl.load(CNT + e)
    padded = ((c + PAD - 1) // PAD) * PAD
    tl.store(OFF + e, tl.cumsum(padded, axis=0) - padded)
    tl.store(TOTAL, tl.sum(padded, axis=0))


@triton.jit
def _fill(IDS, CNT, OFF, SORTED, EXPERT, n, PAD: tl.constexpr, BLOCK: tl.constexpr):
    e = tl.program_id(0)
    at = tl.load(OFF + e)
    count = tl.load(CNT + e)
    for b in range(0, tl.cdiv(count, PAD)):
        tl.store(EXPERT + at // PAD + b, e)
    done = 0
    for i in range(0, n, BLOCK):
        o = i + tl.arange(0, BLOCK)
        mine = (tl.load(IDS + o, mask=o < n, other=-1) == e).to(tl.int32)
        tl.store(SORTED + at + done + tl.cumsum(mine, axis=0) - 1, o, mask=mine == 1)
        done += tl.sum(mine, axis=0)


def moe_align(topk_ids, block, experts):
    """SORTED (padded), expert of each block (-1: unused), number of padded tokens."""
    if topk_ids.dim() != 2 or topk_ids.dtype != torch.int64 or topk_ids.numel() >= 2**30:
        raise ValueError("topk_ids: (tokens, k), int64")
    ids = topk_ids.contiguous()
    n = ids.numel()
    most = -(-(n + experts * (block - 1)) // block) * block
    srt = torch.full((most,), n, dtype=torch.int32, device=ids.device)
    expert = torch.full((most // block,), -1, dtype=torch.int32, device=ids.device)
    count = torch.empty(experts, dtype=torch.int32, device=ids.device)
    off = torch.empty(experts, dtype=torch.int32, device=ids.device)
    total = torch.empty(1, dtype=torch.int32, device=ids.device)
    _count[(experts,)](ids, count, n, E=experts, BLOCK=64)
    _offsets[(1,)](count, off, total, PAD=block, E=experts)
    _fill[(experts,)](ids, count, off, srt, expert, n, PAD=block, BLOCK=64)
    return srt, expert, total


def moe_align_reference(topk_ids, block, experts):
    flat = topk_ids.flatten()
    n = flat.numel()
    most = -(-(n + experts * (block - 1)) // block) * block
    out, exp = [], []
    for e in range(experts):
        i = (flat == e).nonzero().flatten()
        pad = -len(i) % block
        out += i.tolist() + [n] * pad
        exp += [e] * ((len(i) + pad) // block)
    total = torch.tensor([len(out)], dtype=torch.int32)
    return (torch.tensor(out + [n] * (most - len(out)), dtype=torch.int32),
            torch.tensor(exp + [-1] * (most // block - len(exp)), dtype=torch.int32), total)
