"""The last group of tiles has fewer rows than the others."""

from academy.runtime import device

import torch
import triton
import triton.language as tl

D = device.DEVICE


# --8<-- [start:exhibit]
@triton.jit
def broken_kernel(out_ptr, tiles_m, tiles_n, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    per_group = GROUP * tiles_n
    pid_m = (pid // per_group) * GROUP + (pid % per_group) % GROUP
    pid_n = (pid % per_group) // GROUP
    tl.atomic_add(out_ptr + pid_m * tiles_n + pid_n, 1, mask=pid_m < tiles_m)


@triton.jit
def fixed_kernel(out_ptr, tiles_m, tiles_n, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    per_group = GROUP * tiles_n
    first = (pid // per_group) * GROUP
    rows = min(tiles_m - first, GROUP)  # 2 in the last group, not 3
    pid_m = first + (pid % per_group) % rows
    pid_n = (pid % per_group) // rows
    tl.atomic_add(out_ptr + pid_m * tiles_n + pid_n, 1, mask=pid_m < tiles_m)


# --8<-- [end:exhibit]


def run(kernel, tiles_m, tiles_n):
    """How often each tile was visited."""
    out = torch.zeros(tiles_m, tiles_n, dtype=torch.int32, device=D)
    kernel[(tiles_m * tiles_n,)](out, tiles_m, tiles_n, GROUP=3)
    return out


def broken(tiles_m, tiles_n):
    return run(broken_kernel, tiles_m, tiles_n)


def fixed(tiles_m, tiles_n):
    return run(fixed_kernel, tiles_m, tiles_n)


def inputs():
    return 8, 4


def right(tiles_m, tiles_n):
    return torch.ones(tiles_m, tiles_n, dtype=torch.int32, device=D)


def EXAMPLE():
    broken(*inputs())
