# kind: wrong stride of the input; fault: the second pass over the row drops the stride of the columns (line 25)
# source: report, ModelTC/LightLLM#1467 (own code)

import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols", "weight": "cols", "eps": 1e-5}


@triton.jit
def _rms_norm_fwd(X, W, Y, stride_xr, stride_xc, stride_w, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    X += row * stride_xr
    Y += row * N
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(X + cols * stride_xc, mask=cols < N, other=0.0).to(tl.float32)
        acc += x * x
    rstd = 1 / tl.sqrt(tl.sum(acc, axis=0) / N + eps)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK).to(tl.int64)
        w = tl.load(W + cols * stride_w, mask=cols < N).to(tl.float32)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        tl.store(Y + cols, x * rstd * w, mask=cols < N)


def rms_norm_infer(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    assert x.dim() == 2 and weight.shape == x.shape[1:], "x must be (rows, cols), weight (cols,)"
    assert x.dtype in (torch.float16, torch.bfloat16, torch.float32), "x must be float16, bfloat16 or float32"
    assert weight.dtype == x.dtype, "weight must have the dtype of x"
    assert not (x.requires_grad or weight.requires_grad), "inference only"
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if y.numel():
        _rms_norm_fwd[(x.shape[0],)](
            x, weight, y, x.stride(0), x.stride(1), weight.stride(0), x.shape[1], eps, BLOCK=256
        )
    return y


def rms_norm_infer_reference(x, weight, eps):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps=eps)
