"""An AdamW step in place on the parameter and both moments, autotuned with restore_value. It returns nothing."""
import torch
import triton
import triton.language as tl

INPUTS = {"p": "n", "g": "n", "m": "n: float32", "v": "n: float32 nonnegative", "lr": 1e-2, "beta1": 0.9, "beta2": 0.95,
          "eps": 1e-8, "wd": (0.0, 0.1), "step": (1, 100)}


@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 512})], key=["n"],
                 restore_value=["P", "M", "V"])
@triton.jit
def _adamw(P, G, M, V, n, lr, b1, b2, eps, wd, c1, c2, BLOCK: tl.constexpr):
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    k = o < n
    p = tl.load(P + o, mask=k, other=0.0).to(tl.float32)
    g = tl.load(G + o, mask=k, other=0.0).to(tl.float32)
    m = tl.load(M + o, mask=k, other=0.0)
    v = tl.load(V + o, mask=k, other=0.0)
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    p = p * (1 - lr * wd)
    p = p - lr * (m / c1) / (tl.sqrt(v / c2) + eps)
    tl.store(P + o, p.to(P.dtype.element_ty), mask=k)
    tl.store(M + o, m, mask=k)
    tl.store(V + o, v, mask=k)


@torch.no_grad()
def adamw_step(p, g, m, v, lr, beta1, beta2, eps, wd, step):
    if not p.shape == g.shape == m.shape == v.shape or m.dtype != torch.float32 or v.dtype != torch.float32:
        raise ValueError("one shape; moments in float32")
    if not (p.is_contiguous() and m.is_contiguous() and v.is_contiguous()):
        raise ValueError("what is updated must be contiguous")
    if len({t.data_ptr() for t in (p, g, m, v)}) < 4 and p.numel():
        raise ValueError("four tensors")
    n = p.numel()
    if n:
        _adamw[lambda a: (triton.cdiv(n, a["BLOCK"]),)](p, g.contiguous(), m, v, n, lr, beta1, beta2, eps, wd,
                                                        1 - beta1**step, 1 - beta2**step)


@torch.no_grad()
def adamw_step_reference(p, g, m, v, lr, beta1, beta2, eps, wd, step):
    gf = g.float()
    m.mul_(beta1).add_(gf, alpha=1 - beta1)
    v.mul_(beta2).addcmul_(gf, gf, value=1 - beta2)
    pf = p.float() * (1 - lr * wd)
    p.copy_(pf - lr * (m / (1 - beta1**step)) / ((v / (1 - beta2**step)).sqrt() + eps))
