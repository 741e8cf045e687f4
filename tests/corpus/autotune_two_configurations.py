# triton#6547: an autotuned kernel with two configurations.
import torch, triton, triton.language as tl
INPUTS = {"x": "rows cols"}
@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def halve_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offs, tl.load(x_ptr + offs, mask=offs < n) * 0.5, mask=offs < n)
def halved(x):
    if x.requires_grad:
        raise ValueError("forward only")
    x = x.contiguous()
    y = torch.empty_like(x)
    halve_kernel[lambda meta: (triton.cdiv(y.numel(), meta["BLOCK"]),)](x, y, y.numel())
    return y
def halved_reference(x):
    return x * 0.5
def EXAMPLE():
    halved(torch.arange(300.0))
