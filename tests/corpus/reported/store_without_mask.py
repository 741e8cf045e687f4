import torch
import triton
import triton.language as tl

INPUTS = {"a": "m k", "b": "k n"}


@triton.jit
def linear_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    offs_n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    wrapped_m, wrapped_n = offs_m % M, offs_n % N
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK_K):
        offs_k = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + wrapped_m[:, None] * K + offs_k[None, :], mask=offs_k[None, :] < K, other=0.0)
        b = tl.load(b_ptr + offs_k[:, None] * N + wrapped_n[None, :], mask=offs_k[:, None] < K, other=0.0)
        acc += tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc)


def linear(a, b):
    if a.requires_grad or b.requires_grad:
        raise ValueError("forward only")
    (M, K), N = a.shape, b.shape[1]
    if b.shape[0] != K:
        raise ValueError("a and b do not fit")
    c = torch.zeros(M, N, dtype=a.dtype, device=a.device)
    if M and N and K:
        grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
        linear_kernel[grid](a.contiguous(), b.contiguous(), c, M, N, K, BLOCK=16, BLOCK_K=16)
    return c


def linear_reference(a, b):
    return a @ b
