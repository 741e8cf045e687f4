"""Penalty on repeated tokens, written over the logits, with an autotuner that puts them back after its trials."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 128}, num_warps=2), triton.Config({"BLOCK": 512}, num_warps=4)],
    key=["vocab"],
    restore_value=["logits_ptr"],
)
@triton.jit
def penalty_kernel(logits_ptr, seen_ptr, penalty_ptr, vocab, stride_l, stride_s, stride_p, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < vocab
    penalty = tl.load(penalty_ptr + row * stride_p).to(tl.float32)
    seen = tl.load(seen_ptr + row * stride_s + offs, mask=mask, other=0)
    logit = tl.load(logits_ptr + row * stride_l + offs, mask=mask, other=0.0).to(tl.float32)
    scaled = tl.where(logit > 0, logit / penalty, logit * penalty)
    tl.store(logits_ptr + row * stride_l + offs, scaled, mask=mask & (seen != 0))


def repetition_penalty_(logits, seen, penalty):
    """Divide positive and multiply negative logits by the penalty of the row, where `seen`. Returns logits."""
    if logits.dim() != 2 or seen.shape != logits.shape or penalty.shape != logits.shape[:1]:
        raise ValueError("logits and seen must be (batch, vocab), penalty (batch,)")
    if logits.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("logits must be float16, bfloat16 or float32")
    if seen.dtype != torch.int32 or penalty.dtype != torch.float32:
        raise ValueError("seen must be int32 and penalty float32")
    if logits.requires_grad or penalty.requires_grad:
        raise ValueError("repetition_penalty_ is for sampling: no gradients")
    if logits.shape[1] > 65535 * 128:
        raise ValueError("vocabulary too large")
    batch, vocab = logits.shape
    if logits.numel() == 0:
        return logits
    if batch > 1 and logits.stride(0) < vocab or logits.stride(1) != 1 and vocab > 1:
        raise ValueError("the rows of logits must be contiguous and must not overlap")
    seen = seen.contiguous()
    grid = lambda meta: (batch, triton.cdiv(vocab, meta["BLOCK"]))  # noqa: E731
    penalty_kernel[grid](logits, seen, penalty, vocab, logits.stride(0), seen.stride(0), penalty.stride(0))
    return logits


def repetition_penalty__reference(logits, seen, penalty):
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    scaled = torch.where(wide > 0, wide / penalty[:, None], wide * penalty[:, None]).to(logits.dtype)
    return logits.copy_(torch.where(seen != 0, scaled, logits))


INPUTS = {"logits": "batch vocab", "seen": "batch vocab: int32 below 2", "penalty": "batch: float32 positive"}
