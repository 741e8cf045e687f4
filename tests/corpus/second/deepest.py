import torch
import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}
SIZES = {"cols": (1, 16, 32, 40, 48, 64)}


@triton.heuristics({"EVEN": lambda args: args["cols"] % 16 == 0})
@triton.jit
def deepest_kernel(x_ptr, out_ptr, cols, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    low = tl.full((BLOCK,), float("inf"), dtype=tl.float32)
    for start in range(0, cols, BLOCK):
        c = start + tl.arange(0, BLOCK)
        if EVEN:
            x = tl.load(x_ptr + row * cols + c)
        else:
            x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=float("inf"))
        low = tl.minimum(low, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
    bad = tl.sum(tl.where(low == low, 0, 1)) > 0
    tl.store(out_ptr + row, tl.where(bad, float("nan"), tl.min(low)))


def deepest(x):
    """The smallest number of each row; NaN if there is one."""
    x = x.contiguous()
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    if out.numel():
        deepest_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=32)
    return out


def deepest_reference(x):
    return x.amin(1)
