"""A lock around a sum that programs add to in turn, as in the backward pass of Triton's LayerNorm tutorial."""

from academy.runtime import device

import torch
import triton
import triton.language as tl


# --8<-- [start:lock]
@triton.jit
def column_sums_kernel(dy_ptr, sums_ptr, lock_ptr, count_ptr, N, BARRIER: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    part = tl.load(dy_ptr + tl.program_id(0) * N + offs, mask=mask, other=0.0)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:  # until the lock was free, and now it is ours
        pass
    if tl.load(count_ptr) == 0:
        tl.atomic_xchg(count_ptr, 1)  # the first program has nothing to add to
    else:
        part += tl.load(sums_ptr + offs, mask=mask, other=0.0)
    tl.store(sums_ptr + offs, part, mask=mask)
    if BARRIER:
        tl.debug_barrier()  # all threads have stored
    tl.atomic_xchg(lock_ptr, 0)  # one thread gives the lock back


# --8<-- [end:lock]
def column_sums(dy, barrier):
    M, N = dy.shape
    sums = torch.empty(N, device=dy.device)
    lock, count = torch.zeros(2, 1, dtype=torch.int32, device=dy.device)
    column_sums_kernel[(M,)](dy, sums, lock, count, N, BARRIER=barrier, BLOCK=triton.next_power_of_2(N))
    return sums


def EXAMPLE():
    column_sums(torch.arange(20.0, device=device.DEVICE).view(4, 5), barrier=False)
