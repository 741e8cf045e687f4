import torch
import triton
import triton.language as tl

SIZES = {"adapters": (1, 3), "most": (2, 8), "inner": (1, 16, 40), "outer": (1, 20, 33)}


def adapter_rows_inputs(tokens, adapters, most, inner, outer):
    return {
        "x": torch.randn(tokens, inner),
        "a": torch.randn(adapters, most, inner),
        "b": torch.randn(adapters, outer, most),
        "ranks": torch.randint(1, most + 1, (adapters,)),
        "which": torch.randint(-1, adapters, (tokens,)),
    }


@triton.jit
def adapter_rows_kernel(
    x_ptr, a_ptr, b_ptr, ranks_ptr, which_ptr, y_ptr, most, inner, outer, RANK: tl.constexpr, BLOCK: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    which = tl.load(which_ptr + token)
    if which >= 0:
        rank = tl.load(ranks_ptr + which)
        r = tl.arange(0, RANK)
        narrow = tl.zeros((RANK,), dtype=tl.float32)
        for start in range(0, inner, BLOCK):
            c = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + token * inner + c, mask=c < inner, other=0.0).to(tl.float32)
            at = (which * most + r[:, None]) * inner + c[None, :]
            a = tl.load(a_ptr + at, mask=(r[:, None] < most) & (c[None, :] < inner), other=0.0)
            narrow += tl.sum(a.to(tl.float32) * x[None, :], axis=1)
        for start in range(0, outer, BLOCK):
            c = start + tl.arange(0, BLOCK)
            at = (which * outer + c[:, None]) * most + r[None, :]
            inside = (c[:, None] < outer) & (r[None, :] < most) & (r[None, :] <= rank)
            b = tl.load(b_ptr + at, mask=inside, other=0.0).to(tl.float32)
            y = tl.sum(tl.where(inside, b * narrow[None, :], 0.0), axis=1)
            tl.store(y_ptr + token * outer + c, y, mask=c < outer)


def adapter_rows(x, a, b, ranks, which):
    """`b @ (a @ x)` with the adapter of each row, of which `ranks` rows of `a` are in use; -1 for none gives zeros."""
    x, a, b, ranks, which = x.contiguous(), a.contiguous(), b.contiguous(), ranks.contiguous(), which.contiguous()
    tokens, inner = x.shape
    most, outer = a.shape[1], b.shape[1]
    y = torch.zeros(tokens, outer, dtype=x.dtype, device=x.device)
    if y.numel():
        adapter_rows_kernel[(tokens,)](
            x, a, b, ranks, which, y, most, inner, outer, RANK=triton.next_power_of_2(most), BLOCK=32
        )
    return y


def adapter_rows_reference(x, a, b, ranks, which):
    y = torch.zeros(x.shape[0], b.shape[1], dtype=torch.float64, device=x.device)
    for i in range(x.shape[0]):
        if which[i] >= 0:
            rank = int(ranks[which[i]])
            y[i] = b[which[i], :, :rank].double() @ (a[which[i], :rank].double() @ x[i].double())
    return y.to(x.dtype)
