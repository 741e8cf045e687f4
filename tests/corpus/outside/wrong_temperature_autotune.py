# kind: autotune in place without restore_value; fault: each trial of the autotuner scales the logits once more
# (line 12)
# source: report, triton-lang/triton#6547 (own code)

import torch
import triton
import triton.language as tl

INPUTS = {"logits": "batch vocab", "temperature": "batch: float32 positive"}


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 128}, num_warps=2),
        triton.Config({"BLOCK": 256}, num_warps=4),
        triton.Config({"BLOCK": 1024}, num_warps=8),
    ],
    key=["vocab"],
)
@triton.jit
def _temperature(logits_ptr, t_ptr, vocab, stride_b, stride_v, stride_t, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    v = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    t = tl.load(t_ptr + row * stride_t)
    at = logits_ptr + row * stride_b + v * stride_v
    x = tl.load(at, mask=v < vocab, other=0.0).to(tl.float32)
    tl.store(at, x / t, mask=v < vocab)


def apply_temperature_(logits, temperature):
    """logits (batch, vocab) divided by temperature (batch,) in place; returns logits."""
    if logits.dim() != 2 or temperature.shape != logits.shape[:1]:
        raise ValueError("logits must be (batch, vocab), temperature (batch,)")
    if logits.dtype not in (torch.float16, torch.bfloat16, torch.float32) or temperature.dtype != torch.float32:
        raise ValueError("logits must be floating, temperature float32")
    if logits.requires_grad or temperature.requires_grad:
        raise ValueError("apply_temperature_ works in place: no gradients")
    batch, vocab = logits.shape
    if vocab > 65535 * 128:
        raise ValueError("vocabulary too large")
    if any(s == 0 and n > 1 for n, s in zip(logits.shape, logits.stride())):
        raise ValueError("logits must not be expanded")
    if logits.numel():
        grid = lambda meta: (batch, triton.cdiv(vocab, meta["BLOCK"]))  # noqa: E731
        _temperature[grid](logits, temperature, vocab, *logits.stride(), temperature.stride(0))
    return logits


def apply_temperature__reference(logits, temperature):
    wide = torch.promote_types(logits.dtype, torch.float32)
    return logits.copy_((logits.to(wide) / temperature[:, None].to(wide)).to(logits.dtype))
