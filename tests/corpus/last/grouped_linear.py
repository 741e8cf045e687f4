import torch
import triton
import triton.language as tl

SIZES = {"experts": (1, 2, 4, 5), "inner": (16, 32, 48), "outer": (16, 32, 40)}


def grouped_linear_inputs(experts, inner, outer):
    counts = torch.randint(0, 40, (experts,))
    counts[torch.rand(experts) < 0.2] = 0
    ends = torch.cumsum(counts, 0).to(torch.int32)
    return {
        "x": torch.randn(int(ends[-1]), inner),
        "weight": torch.randn(experts, inner, outer),
        "ends": ends,
    }


@triton.jit
def grouped_linear_kernel(
    x_ptr, w_ptr, ends_ptr, out_ptr, inner, outer, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    expert = tl.program_id(0)
    first = tl.load(ends_ptr + expert - 1, mask=expert > 0, other=0)
    last = tl.load(ends_ptr + expert)
    total = tl.load(ends_ptr + tl.num_programs(0) - 1)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    w_base = w_ptr + expert.to(tl.int64) * inner * outer
    for start in range(first, last, BM):
        m = start + tl.arange(0, BM)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for at in range(0, inner, BK):
            k = at + tl.arange(0, BK)
            x = tl.load(
                x_ptr + m[:, None] * inner + k[None, :], mask=(m[:, None] < last) & (k[None, :] < inner), other=0.0
            )
            w = tl.load(
                w_base + k[:, None] * outer + n[None, :], mask=(k[:, None] < inner) & (n[None, :] < outer), other=0.0
            )
            acc = tl.dot(x.to(tl.float32), w.to(tl.float32), acc, input_precision="ieee")
        tl.store(out_ptr + m[:, None] * outer + n[None, :], acc, mask=(m[:, None] < total) & (n[None, :] < outer))


def grouped_linear(x, weight, ends):
    """Rows are sorted by expert; `ends` has the row after each expert's last one."""
    x, weight, ends = x.contiguous(), weight.contiguous(), ends.contiguous()
    experts, inner, outer = weight.shape
    out = torch.empty(x.shape[0], outer, dtype=x.dtype, device=x.device)
    if out.numel():
        grid = (experts, triton.cdiv(outer, 16))
        grouped_linear_kernel[grid](x, weight, ends, out, inner, outer, BM=16, BN=16, BK=16)
    return out


def grouped_linear_reference(x, weight, ends):
    parts, first = [], 0
    for e, last in enumerate(ends.tolist()):
        parts.append(x[first:last].float() @ weight[e].float())
        first = last
    return torch.cat(parts).to(x.dtype)
