import torch
import triton
import triton.language as tl

SIZES = {"cols": (1, 2, 10, 33)}
DTYPES = ("float32",)


def nucleus_inputs(rows, cols):
    return {"p": torch.softmax(2.0 * torch.randn(rows, cols), 1), "mass": 0.7}


@triton.jit
def nucleus_kernel(p_ptr, out_ptr, cols, mass, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    p = tl.load(p_ptr + row * cols + c, mask=c < cols, other=0.0)
    before = tl.zeros((BLOCK,), dtype=tl.float32)
    for j in range(cols):
        q = tl.load(p_ptr + row * cols + j)
        before += tl.where((q > p) | ((q == p) & (j < c)), q, 0.0)
    kept = tl.where(before + p <= mass, p, 0.0)
    tl.store(out_ptr + row * cols + c, kept, mask=c < cols)


def nucleus(p, mass):
    """The fewest of each row's probabilities, from the largest on, whose sum reaches `mass`; zeros for the others."""
    p = p.contiguous()
    out = torch.empty_like(p)
    if p.numel():
        nucleus_kernel[(p.shape[0],)](p, out, p.shape[1], mass, BLOCK=triton.next_power_of_2(p.shape[1]))
    return out


def nucleus_reference(p, mass):
    order = p.argsort(dim=1, descending=True, stable=True)
    ranked = p.gather(1, order).double()
    before = ranked.cumsum(1) - ranked
    kept = torch.where(before < mass, ranked, torch.zeros_like(ranked)).to(p.dtype)
    return torch.zeros_like(p).scatter(1, order, kept)
