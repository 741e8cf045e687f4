# kind: fully masked row; fault: the maximum of a row without any position is -inf, and -inf - -inf is NaN (line 17)
# source: report, vllm-project/vllm#4405 for the kind (own code)

import torch
import triton
import triton.language as tl

INPUTS = {"scores": "rows cols", "lengths": "rows: int64 below cols"}


@triton.jit
def _masked_softmax(s_ptr, len_ptr, p_ptr, cols, stride_r, stride_c, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK).to(tl.int64)
    length = tl.load(len_ptr + row)
    s = tl.load(s_ptr + row * stride_r + c * stride_c, mask=c < length, other=-float("inf")).to(tl.float32)
    e = tl.exp(s - tl.max(s, axis=0))
    total = tl.sum(e, axis=0)
    tl.store(p_ptr + row * cols + c, e / tl.where(total == 0.0, 1.0, total), mask=c < cols)


@torch.no_grad()
def masked_softmax(scores, lengths):
    """Softmax over the first lengths[row] columns of each row, 0 behind them; a row of length 0 is all 0."""
    if scores.dim() != 2 or lengths.shape != scores.shape[:1] or lengths.dtype != torch.int64:
        raise ValueError("scores must be (rows, cols) and lengths int64 (rows,)")
    if scores.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("scores must be float16, bfloat16 or float32")
    if scores.requires_grad:
        raise ValueError("no backward pass")
    if scores.shape[1] > 16384:
        raise ValueError("at most 16384 columns")
    if lengths.numel() and (int(lengths.min()) < 0 or int(lengths.max()) > scores.shape[1]):
        raise ValueError("a length is longer than the row")
    p = torch.empty(scores.shape, dtype=scores.dtype, device=scores.device)
    if p.numel():
        block = triton.next_power_of_2(scores.shape[1])
        _masked_softmax[(scores.shape[0],)](
            scores, lengths.contiguous(), p, scores.shape[1], scores.stride(0), scores.stride(1), BLOCK=block
        )
    return p


def masked_softmax_reference(scores, lengths):
    seen = torch.arange(scores.shape[1], device=scores.device) < lengths[:, None]
    p = torch.softmax(scores.masked_fill(~seen, -float("inf")), dim=1)
    return torch.where(seen, p, 0.0)
