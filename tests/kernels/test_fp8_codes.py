"""common/fp8: float32 to codes of eight bits, all of the card's and ours, against PyTorch's rounding on the CPU."""

from __future__ import annotations

import pytest
import torch
import triton

from academy.runtime.device import DEVICE
from annotated_examples.common.fp8 import LARGEST
from tests.kernels import harness
from tests.kernels.fp8_kernels import codes_kernel


def every_boundary(dtype: torch.dtype) -> torch.Tensor:
    """All codes, what lies halfway between two of them, and a few float32 numbers on either side of each."""
    finite = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    finite = finite[finite.isfinite()].unique()
    marks = torch.cat([finite, (finite[1:] + finite[:-1]) / 2, torch.tensor([LARGEST[dtype] * 1.0625, 7e4, 1e30])])
    near = marks.view(torch.int32)[:, None] + torch.arange(-3, 4, dtype=torch.int32)
    special = torch.tensor([0.0, float("inf"), float("nan"), 1e-45, 1.1754942e-38, 3.4028235e38])
    found = torch.cat([near.flatten().view(torch.float32), special])
    return torch.cat([found, -found])


def a_sample() -> torch.Tensor:
    """One of 4096 bit patterns of float32, from all over: the step is odd."""
    return (torch.arange(2**20, dtype=torch.int64) * 4097).to(torch.int32).view(torch.float32)


@pytest.mark.parametrize("by_hand", [True, False])
@pytest.mark.parametrize("dtype", LARGEST, ids=str)
def test_nearest_codes(dtype, by_hand):
    x = torch.cat([every_boundary(dtype), a_sample()])
    q = torch.empty(len(x), dtype=dtype, device=DEVICE)
    codes_kernel[(triton.cdiv(len(x), 2**16),)](x.to(DEVICE), q, len(x), BY_HAND=by_hand, BLOCK=2**16)
    wanted = x.clamp(-LARGEST[dtype], LARGEST[dtype]).to(dtype)  # NaN stays NaN
    q, nan = q.cpu(), x.isnan()
    assert bool(q.float()[nan].isnan().all())
    wrong = (q.view(torch.uint8) != wanted.view(torch.uint8)) & ~nan
    assert not wrong.any(), (x[wrong][:5], q[wrong][:5].float(), wanted[wrong][:5].float())


def test_cards_without_the_instruction_round_by_hand():
    """Before Hopper nothing goes through 16 bits. (Codes in e4m3 need an Ada card.)"""
    for arch, code, found in harness.without_gpu("fp8_without_gpu.py"):
        instruction = "cvt.rn.satfinite.e5m2x2.f32" if code == "fp8e5" else "cvt.rn.satfinite.e4m3x2.f32"
        assert found == ([instruction] if arch >= 90 else []), (arch, code)
