# The correlation of two rows, from sums of products less the product of sums.
import torch, triton, triton.language as tl
INPUTS = {"x": "rows cols", "y": "rows cols"}
SIZES = {"cols": [5, 19, 37, 48, 64, 129, 512, 1037]}
@triton.jit
def k(x_ptr, y_ptr, r_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + offs, mask=offs < N, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * N + offs, mask=offs < N, other=0.0).to(tl.float32)
    sx = tl.sum(x, axis=0)
    sy = tl.sum(y, axis=0)
    xy = N * tl.sum(x * y, axis=0) - sx * sy
    xx = N * tl.sum(x * x, axis=0) - sx * sx
    yy = N * tl.sum(y * y, axis=0) - sy * sy
    tl.store(r_ptr + row, xy / tl.sqrt(xx * yy))
def pearson(x, y):
    if x.requires_grad or y.requires_grad:
        raise ValueError("forward only")
    x, y = x.contiguous(), y.contiguous()
    r = torch.empty(len(x), dtype=x.dtype, device=x.device)
    if len(x):
        k[(len(x),)](x, y, r, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return r
def pearson_reference(x, y):
    x, y = x - x.mean(1, keepdim=True), y - y.mean(1, keepdim=True)
    return (x * y).sum(1) / ((x * x).sum(1) * (y * y).sum(1)).sqrt()
