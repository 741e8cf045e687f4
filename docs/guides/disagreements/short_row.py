import triton
import triton.language as tl

INPUTS = {"x": "rows cols"}


@triton.jit
def sum_kernel(x_ptr, out_ptr, N, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)  # of 64 columns two of four warps hold the same numbers as the others
    x = tl.load(x_ptr + row * stride + offs, mask=offs < N, other=0.0)
    tl.store(out_ptr + row, tl.sum(x.to(tl.float32), axis=0))


def summed(x):
    x, out = x.contiguous(), x.new_empty(len(x))
    if len(x):
        sum_kernel[(len(x),)](x, out, x.shape[1], x.stride(0), BLOCK=max(triton.next_power_of_2(x.shape[1]), 16))
    return out


def summed_reference(x):
    return x.sum(1)
