import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows inner", "weight": "outer inner", "bias": "outer"}
SIZES = {"inner": (16, 64, 500), "outer": (8, 32)}


@triton.jit
def project_kernel(
    x_ptr, w_ptr, b_ptr, out_ptr, rows, inner, outer, sx_m, sx_k, sw_n, sw_k,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, inner, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(
            x_ptr + m[:, None] * sx_m + k[None, :] * sx_k, mask=(m[:, None] < rows) & (k[None, :] < inner), other=0.0
        )
        w = tl.load(
            w_ptr + n[None, :] * sw_n + k[:, None] * sw_k, mask=(n[None, :] < outer) & (k[:, None] < inner), other=0.0
        )
        acc = tl.dot(x.to(tl.float16).to(tl.float32), w.to(tl.float32), acc, input_precision="ieee")
    acc += tl.load(b_ptr + n, mask=n < outer, other=0.0).to(tl.float32)[None, :]
    inside = (m[:, None] < rows) & (n[None, :] < outer)
    tl.store(out_ptr + m[:, None] * outer + n[None, :], acc, mask=inside)


def project(x, weight, bias):
    """x @ weight.T + bias, accumulated in float32."""
    rows, inner = x.shape
    outer = weight.shape[0]
    out = torch.empty(rows, outer, dtype=x.dtype, device=x.device)
    if out.numel():
        grid = (triton.cdiv(rows, 16), triton.cdiv(outer, 16))
        project_kernel[grid](
            x, weight, bias.contiguous(), out, rows, inner, outer, *x.stride(), *weight.stride(), BM=16, BN=16, BK=32
        )
    return out


def project_reference(x, weight, bias):
    return (x.float() @ weight.float().T + bias.float()).to(x.dtype)
