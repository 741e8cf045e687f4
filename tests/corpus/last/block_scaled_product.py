import torch
import triton
import triton.language as tl

SIZES = {"rows": (1, 5, 17), "inner": (16, 40, 64), "outer": (16, 24, 50)}


def block_scaled_product_inputs(rows, inner, outer):
    return {
        "x": torch.randn(rows, inner),
        "codes": torch.randint(-127, 128, (outer, inner)).to(torch.int8),
        "scales": torch.rand(-(-outer // 16), -(-inner // 16)) + 0.01,
    }


@triton.jit
def block_scaled_product_kernel(
    x_ptr, q_ptr, s_ptr, out_ptr, rows, inner, outer, s_m, s_k, per_row, BLOCK: tl.constexpr
):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.program_id(1)
    n = tile * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for at in range(0, tl.cdiv(inner, BLOCK)):
        k = at * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(
            x_ptr + m[:, None] * s_m + k[None, :] * s_k, mask=(m[:, None] < rows) & (k[None, :] < inner), other=0.0
        )
        q = tl.load(q_ptr + n[None, :] * inner + k[:, None], mask=(n[None, :] < outer) & (k[:, None] < inner), other=0)
        w = q.to(tl.float32) * tl.load(s_ptr + tile * per_row + at).to(tl.float32)
        acc = tl.dot(x.to(tl.float32), w, acc, input_precision="ieee")
    inside = (m[:, None] < rows) & (n[None, :] < outer)
    tl.store(out_ptr + m[:, None] * outer + n[None, :], acc, mask=inside)


def block_scaled_product(x, codes, scales):
    """x @ weight.T for a weight in 8 bits with one scale for each block of 16 by 16 codes."""
    codes, scales = codes.contiguous(), scales.contiguous()
    rows, inner = x.shape
    outer = codes.shape[0]
    out = torch.empty(rows, outer, dtype=x.dtype, device=x.device)
    if out.numel():
        grid = (triton.cdiv(rows, 16), triton.cdiv(outer, 16))
        block_scaled_product_kernel[grid](x, codes, scales, out, rows, inner, outer, *x.stride(), inner // 16, BLOCK=16)
    return out


def block_scaled_product_reference(x, codes, scales):
    outer, inner = codes.shape
    full = scales.float().repeat_interleave(16, 0).repeat_interleave(16, 1)[:outer, :inner]
    return (x.float() @ (codes.float() * full).T).to(x.dtype)
