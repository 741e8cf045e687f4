"""Sums with the numbers of an H200, for the guide "How a GPU runs a Triton program"."""

# --8<-- [start:imports]
from academy.runtime import device

import torch
import triton
import triton.language as tl
# --8<-- [end:imports]


# --8<-- [start:programs]
@triton.jit
def who_kernel(out_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, pid, mask=offsets < n)


out = torch.empty(10, dtype=torch.int32, device=device.DEVICE)
who_kernel[(triton.cdiv(10, 4),)](out, 10, BLOCK=4)
print(out.tolist())  # → [0, 0, 0, 0, 1, 1, 1, 1, 2, 2]
# --8<-- [end:programs]


# --8<-- [start:waves]
SMS = 132


def waves(programs, programs_per_sm=1):
    """How often the card has to be filled, and which share of those places does work."""
    places = SMS * programs_per_sm
    rounds = triton.cdiv(programs, places)
    return rounds, round(programs / (rounds * places), 2)


print(waves(132))  # → (1, 1.0)
print(waves(133))  # → (2, 0.5)
print(waves((4096 // 128) * (4096 // 256)))  # → (4, 0.97)
print(waves(8192 // 256))  # → (1, 0.24)
# --8<-- [end:waves]


# --8<-- [start:coalescing]
def sectors(stride, element_size, lanes=32):
    """32-byte sectors that one load of a warp touches; neighbours lie `stride` elements apart."""
    return len({lane * stride * element_size // 32 for lane in range(lanes)})


def useful(stride, element_size):
    """The share of the bytes moved that somebody asked for."""
    return 32 * element_size / (32 * sectors(stride, element_size))


for stride in (1, 2, 4, 8, 4096):
    print(f"float32, stride {stride}: {sectors(stride, 4)} sectors, {useful(stride, 4):.1%} useful")
# → float32, stride 1: 4 sectors, 100.0% useful
# → float32, stride 2: 8 sectors, 50.0% useful
# → float32, stride 4: 16 sectors, 25.0% useful
# → float32, stride 8: 32 sectors, 12.5% useful
# → float32, stride 4096: 32 sectors, 12.5% useful
print(f"{useful(4096, 2):.2%}")  # → 6.25%
# --8<-- [end:coalescing]
