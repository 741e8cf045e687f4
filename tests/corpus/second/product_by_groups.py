import torch
import triton
import triton.language as tl

SIZES = {"group": (16, 32, 64)}


def product_by_groups_inputs(rows, cols, group):
    return {
        "x": torch.randn(rows, 128),
        "codes": torch.randint(0, 100, (128, cols), dtype=torch.int8),
        "scales": torch.randn(128 // group, cols),
        "group": group,
    }


@triton.jit
def product_by_groups_kernel(
    x_ptr, codes_ptr, scales_ptr, y_ptr, inner, cols, group, BK: tl.constexpr, BN: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), dtype=tl.float32)
    for start in range(0, inner, BK):
        i = start + tl.arange(0, BK)
        x = tl.load(x_ptr + row * inner + i, mask=i < inner, other=0.0).to(tl.float32)
        inside = (i[:, None] < inner) & (n[None, :] < cols)
        codes = tl.load(codes_ptr + i[:, None].to(tl.int64) * cols + n[None, :], mask=inside, other=0)
        scales = tl.load(scales_ptr + (start // group) * cols + n, mask=n < cols, other=0.0)
        w = codes.to(tl.float32) * scales.to(tl.float32)[None, :]
        acc += tl.sum(x[:, None] * w, axis=0)
    tl.store(y_ptr + row * cols + n, acc, mask=n < cols)


def product_by_groups(x, codes, scales, group):
    """`x @ (codes * scales)`, where `group` rows of codes, at most 128, share a row of scales."""
    x, codes, scales = x.contiguous(), codes.contiguous(), scales.contiguous()
    rows, inner = x.shape
    cols = codes.shape[1]
    if group & (group - 1) or inner % group or not 1 <= group <= 128:
        raise ValueError("groups are powers of two that divide the inner dim, of at most 128")
    y = torch.empty(rows, cols, dtype=x.dtype, device=x.device)
    if y.numel():
        block = 32
        grid = (rows, triton.cdiv(cols, 32))
        product_by_groups_kernel[grid](x, codes, scales, y, inner, cols, group, BK=block, BN=32)
    return y


def product_by_groups_reference(x, codes, scales, group):
    w = codes.double() * scales.double().repeat_interleave(group, 0)
    return (x.double() @ w).to(x.dtype)
