r"""
# Packed sequences of a recurrence

Sequences of different lengths lie one after the other, without padding, and `cu_seqlens` says where each begins and
where the last one ends: 0, 3, 3, 8 are three sequences of 3, 0 and 5 tokens. What recurrences need for that: the check
of the offsets, and a tensor's strides as a kernel takes them.
"""

from academy.runtime import checks

import torch


# Offsets may end before the last row: rows after that belong to no sequence, and their results are 0.
def sequences_contract(total, cu_seqlens):
    """How many sequences there are in `total` rows; checks the offsets."""
    checks.tensors(cu_seqlens=cu_seqlens)
    checks.dtypes((torch.int32,), cu_seqlens=cu_seqlens)
    checks.dimensions("cu_seqlens", cu_seqlens, 1, "where each sequence begins, and where the last ends")
    if cu_seqlens.numel() == 0:
        raise ValueError("cu_seqlens must have at least one element, got none")
    if checks.looks_at_values():
        offsets = cu_seqlens.tolist()
        if offsets[0] != 0 or offsets[-1] > total or any(end < start for start, end in zip(offsets, offsets[1:])):
            raise ValueError(f"cu_seqlens must rise from 0 to at most the number of rows, {total}, got {offsets}")
    return cu_seqlens.numel() - 1


# All sequences lie along the first dimension of a packed tensor, so there is no stride from one to the next.
def strided_rows(x, cu_seqlens=None):
    """`(x, stride_b, stride_t, stride_d)` of x (B, T, D), or of packed x (total, D) with a stride_b of 0."""
    return (x, *x.stride()) if cu_seqlens is None else (x, 0, *x.stride())


def new_rows(x, cu_seqlens=None, dtype=None):
    """A tensor like x, contiguous. Packed, it is 0: no program writes rows that belong to no sequence."""
    make = torch.empty if cu_seqlens is None else torch.zeros
    return make(x.shape, dtype=dtype or x.dtype, device=x.device)


# Kernels that walk along one sequence at a time are for longer ones.
def few_tokens(x, cu_seqlens):
    """Whether the sequences have fewer than 16 tokens on average, or there are none."""
    batch = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    return batch == 0 or 16 * batch > x.shape[:-1].numel()


# A table for kernels whose tiles hold rows of several sequences.
def owners(cu_seqlens, total):
    """The sequence of each of `total` rows, int32; -1 for rows after the last."""
    rows = torch.arange(total, dtype=torch.int32, device=cu_seqlens.device)
    found = torch.searchsorted(cu_seqlens[1:].contiguous(), rows, right=True, out_int32=True)
    return torch.where(found < cu_seqlens.numel() - 1, found, -1)
