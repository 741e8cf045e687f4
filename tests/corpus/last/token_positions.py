import torch
import triton
import triton.language as tl

SIZES = {"sequences": (1, 2, 4, 7)}


def token_positions_inputs(sequences):
    counts = torch.randint(0, 12, (sequences,))
    counts[torch.rand(sequences) < 0.25] = 0
    bounds = torch.cat([torch.zeros(1, dtype=torch.int32), torch.cumsum(counts, 0).to(torch.int32)])
    return {"bounds": bounds, "tokens": int(bounds[-1])}


@triton.jit
def token_positions_kernel(bounds_ptr, sequence_ptr, position_ptr, sequences, tokens, BLOCK: tl.constexpr):
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = token < tokens
    low = tl.zeros((BLOCK,), dtype=tl.int32)
    high = tl.zeros((BLOCK,), dtype=tl.int32) + sequences
    for _ in range(20):
        middle = (low + high) // 2
        reached = tl.load(bounds_ptr + middle, mask=mask & (low < high), other=0) < token
        open_ = low < high
        low = tl.where(open_ & reached, middle + 1, low)
        high = tl.where(open_ & ~reached, middle, high)
    exact = tl.load(bounds_ptr + low, mask=mask, other=0) == token
    sequence = tl.where(exact, low, low - 1)
    first = tl.load(bounds_ptr + sequence, mask=mask, other=0)
    tl.store(sequence_ptr + token, sequence, mask=mask)
    tl.store(position_ptr + token, token - first, mask=mask)


def token_positions(bounds, tokens):
    """Which sequence of a packed batch each token belongs to, and its place there."""
    bounds = bounds.contiguous()
    sequence = torch.empty(tokens, dtype=torch.int32, device=bounds.device)
    position = torch.empty_like(sequence)
    if tokens:
        token_positions_kernel[(triton.cdiv(tokens, 32),)](
            bounds, sequence, position, bounds.shape[0] - 1, tokens, BLOCK=32
        )
    return sequence, position


def token_positions_reference(bounds, tokens):
    counts = (bounds[1:] - bounds[:-1]).long()
    ids = torch.arange(counts.shape[0], device=bounds.device, dtype=torch.int32)
    sequence = torch.repeat_interleave(ids, counts)
    token = torch.arange(tokens, device=bounds.device, dtype=torch.int32)
    return sequence, (token - bounds[:-1][sequence.long()]).to(torch.int32)
