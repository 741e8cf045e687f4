# A tuned matmul of the kind most people publish: autotune + heuristics + grouped order + descriptor loads. RIGHT code: is
# there a false alarm?
import torch, triton, triton.language as tl

INPUTS = {"a": "m k", "b": "k n"}


@triton.autotune(configs=[triton.Config({"BM": 32, "BN": 32, "BK": 16, "GROUP": 4})], key=["M", "N", "K"])
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BK"] == 0})
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, EVEN_K: tl.constexpr):
    pid = tl.program_id(0)
    tm, tn = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GROUP * tn)
    first = group * GROUP
    size = min(tm - first, GROUP)
    pm, pn = first + (pid % (GROUP * tn)) % size, (pid % (GROUP * tn)) // size
    m = (pm * BM + tl.arange(0, BM)).to(tl.int64) % M
    n = (pn * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        if EVEN_K:
            a = tl.load(a_ptr + m[:, None] * K + start + k[None, :])
            b = tl.load(b_ptr + (start + k)[:, None].to(tl.int64) * N + n[None, :])
        else:
            a = tl.load(a_ptr + m[:, None] * K + start + k[None, :], mask=(start + k)[None, :] < K, other=0.0)
            b = tl.load(b_ptr + (start + k)[:, None].to(tl.int64) * N + n[None, :], mask=(start + k)[:, None] < K, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    m, n = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN)
    tl.store(c_ptr + m[:, None].to(tl.int64) * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))


def matmul(a, b):
    if a.requires_grad or b.requires_grad:
        raise ValueError("forward only")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError("shapes")
    a, b = a.contiguous(), b.contiguous()
    M, K, N = *a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=a.dtype, device=a.device)
    if c.numel():
        kernel[lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)](a, b, c, M, N, K)
    return c


def matmul_reference(a, b):
    return a @ b
