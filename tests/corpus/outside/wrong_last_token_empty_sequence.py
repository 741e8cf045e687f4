# kind: empty sequences in cu_seqlens; fault: an empty sequence gets the last token of the sequence before it (line 14)
# source: report, open-lm-engine/lm-engine#505 (own code)

import torch
import triton
import triton.language as tl


@triton.jit
def _last(x_ptr, cu_ptr, out_ptr, dim, stride_t, stride_d, BLOCK: tl.constexpr):
    seq = tl.program_id(0).to(tl.int64)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    end = tl.load(cu_ptr + seq + 1).to(tl.int64)
    mask = (d < dim) & (end > 0)
    x = tl.load(x_ptr + (end - 1) * stride_t + d * stride_d, mask=mask, other=0.0)
    tl.store(out_ptr + seq * dim + d, x, mask=d < dim)


def last_tokens(x, cu_seqlens):
    """x (tokens, dim), cu_seqlens int32 (sequences + 1,) → (sequences, dim), zeros for an empty sequence."""
    if x.dim() != 2 or x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError("x must be (tokens, dim) in float16, bfloat16 or float32")
    if cu_seqlens.dim() != 1 or cu_seqlens.dtype != torch.int32 or cu_seqlens.numel() < 1:
        raise ValueError("cu_seqlens must be a vector of int32")
    if int(cu_seqlens[0]) != 0 or int(cu_seqlens[-1]) != x.shape[0] or bool((cu_seqlens.diff() < 0).any()):
        raise ValueError("cu_seqlens must rise from 0 to the number of tokens")
    if x.requires_grad:
        raise ValueError("no backward pass")
    if x.shape[1] > 65535 * 128:
        raise ValueError("too many columns")
    n = cu_seqlens.numel() - 1
    out = torch.empty((n, x.shape[1]), dtype=x.dtype, device=x.device)
    if out.numel():
        grid = (n, triton.cdiv(x.shape[1], 128))
        _last[grid](x, cu_seqlens.contiguous(), out, x.shape[1], x.stride(0), x.stride(1), BLOCK=128)
    return out


def last_tokens_inputs(sequences, dim):
    lengths = torch.randint(1, 5, (sequences,))
    lengths[1::3] = 0
    cu = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to(torch.int32)
    return {"x": torch.randn(int(cu[-1]), dim), "cu_seqlens": cu}


def last_tokens_reference(x, cu_seqlens):
    rows = [
        x[b - 1] if b > a else x.new_zeros(x.shape[1]) for a, b in zip(cu_seqlens.tolist(), cu_seqlens.tolist()[1:])
    ]
    return torch.stack(rows) if rows else x.new_zeros(0, x.shape[1])
