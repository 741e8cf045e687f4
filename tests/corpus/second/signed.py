import torch
import triton
import triton.language as tl

INPUTS = {"x": "n", "sign": "n: bool"}
DTYPES = ("float32",)


@triton.jit
def signed_kernel(x_ptr, sign_ptr, y_ptr, n, s_x, s_s, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * s_x, mask=at < n, other=0.0)
    sign = tl.load(sign_ptr + at * s_s, mask=at < n, other=0).to(tl.int32)
    bits = x.to(tl.int32, bitcast=True) ^ (sign << 31)
    tl.store(y_ptr + at, bits.to(tl.float32, bitcast=True), mask=at < n)


def signed(x, sign):
    """`-x` where `sign`, otherwise `x`, in float32."""
    if x.dtype != torch.float32:
        raise TypeError("float32 only")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        signed_kernel[(triton.cdiv(x.numel(), 64),)](x, sign, y, x.numel(), x.stride(0), sign.stride(0), BLOCK=64)
    return y


def signed_reference(x, sign):
    return torch.where(sign, -x, x)
