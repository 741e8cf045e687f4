# Exercise: attention/bottom_right

from academy import device

import torch
import triton
import triton.language as tl


@triton.jit
def causal_mask_kernel(out_ptr, T, S, BLOCK_S: tl.constexpr):
    i = tl.program_id(0)
    j = tl.arange(0, BLOCK_S)
    sees = j <= tl.maximum(i + S - T, 0)
    tl.store(out_ptr + i * S + j, sees.to(tl.int32), mask=j < S)


def causal_mask(T, S):
    out = torch.empty(T, S, dtype=torch.int32, device=device.DEVICE)
    causal_mask_kernel[(T,)](out, T, S, BLOCK_S=triton.next_power_of_2(S))
    return out
