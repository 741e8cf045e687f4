"""Repetition penalty on logits in place, autotuned without restore_value (after triton-lang/triton#6547)."""
import torch
import triton
import triton.language as tl

INPUTS = {"logits": "rows cols", "penalty": "rows cols: float32 positive"}


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 256})], key=["cols"])
@triton.jit
def _penalize(L, P, cols, sl, BLOCK: tl.constexpr):
    r = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(L + r * sl + c, mask=c < cols, other=0.0).to(tl.float32)
    p = tl.load(P + r * cols + c, mask=c < cols, other=1.0)
    tl.store(L + r * sl + c, tl.where(x > 0, x / p, x * p), mask=c < cols)


@torch.no_grad()
def penalize(logits, penalty):
    if logits.dim() != 2 or penalty.shape != logits.shape or logits.stride(1) != 1:
        raise ValueError("logits: (rows, cols), rows in one piece")
    rows, cols = logits.shape
    if cols > 2**20:
        raise ValueError("too wide")
    penalty = penalty.contiguous()
    if logits.numel():
        _penalize[lambda a: (rows, triton.cdiv(cols, a["BLOCK"]))](logits, penalty, cols, logits.stride(0))


@torch.no_grad()
def penalize_reference(logits, penalty):
    x = logits.float()
    logits.copy_(torch.where(x > 0, x / penalty, x * penalty).to(logits.dtype))
