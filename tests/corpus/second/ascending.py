import torch
import triton
import triton.language as tl

SIZES = {"cols": (1, 2, 7, 16, 40)}
DTYPES = ("float32",)


def ascending_inputs(rows, cols):
    x = torch.randn(rows, cols)
    x[torch.rand(rows, cols) < 0.1] = float("nan")
    return {"x": torch.where(torch.rand(rows, cols) < 0.5, -x, x)}


@triton.jit
def ascending_kernel(x_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    bits = tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0).to(tl.int32, bitcast=True)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    key = tl.where(c < cols, key, 0x7FFFFFFF)
    place = tl.zeros((BLOCK,), dtype=tl.int32)
    for j in range(cols):
        other = tl.max(tl.where(c == j, key, -2147483648), axis=0)
        place += ((other < key) | ((other == key) & (j < c))).to(tl.int32)
    tl.store(y_ptr + row * cols + place, bits.to(tl.float32, bitcast=True), mask=c < cols)


def ascending(x):
    """Each row in ascending order, NaN last; float32."""
    if x.dtype != torch.float32:
        raise TypeError("float32 only")
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        ascending_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


def ascending_reference(x):
    return x.sort(dim=1).values
