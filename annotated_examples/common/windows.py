r"""
# Windows of keys

Queries that are packed one after the other see different stretches of the keys. Here is what the kernels share that
score keys and select some: where a query's window begins and ends, and the checks of both.
"""

from academy.runtime import checks  # before anything imports triton

import torch
import triton
import triton.language as tl

from annotated_examples.common.attention import same_device


# A window that can't be is empty, and the caller gets to know: what lies outside of the keys is never read.
@triton.jit
def window_of(start, end, rows, count, S):
    # start, end: (pointer, stride) of (count,), or None for the first key and the last.
    start_ptr, stride_start = start
    end_ptr, stride_end = end
    first, last = tl.zeros_like(rows), tl.zeros_like(rows) + S
    if start_ptr is not None:
        first = tl.load(start_ptr + rows.to(tl.int64) * stride_start, mask=rows < count, other=0)
    if end_ptr is not None:
        last = tl.load(end_ptr + rows.to(tl.int64) * stride_end, mask=rows < count, other=0)
    possible = (first >= 0) & (first <= S) & (last >= 0) & (last <= S)
    return tl.where(possible, first, 0), tl.where(possible, last, 0), possible


def bound(x):
    """A bound of windows as kernels take it."""
    return (None, 0) if x is None else (x, x.stride(0))


def window_contract(x, S, start, end):
    """Raises on bounds that aren't (len(x),) int32 beside `x`, or outside of [0, S] where values are looked at."""
    checks.optional_tensors(start=start, end=end)
    checks.dtypes((torch.int32,), start=start, end=end)
    for name, value in dict(start=start, end=end).items():
        if value is not None:
            checks.shape(name, value, (len(x),), "one for each query")
            same_device(logits=x, **{name: value})
            if checks.looks_at_values() and ((value < 0) | (value > S)).any():
                raise ValueError(f"{name} must be in [0, {S}], got {int(value.min())} to {int(value.max())}")
