import torch
import triton
import triton.language as tl

INPUTS = {
    "parameter": "n: float32",
    "gradient": "n: float32",
    "momentum": "n: float32",
    "weight_decay": (0.0, 0.1),
}


@triton.autotune(
    configs=[triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=4)],
    key=["n"],
    restore_value=["p_ptr"],
)
@triton.jit
def lion_step_kernel(p_ptr, g_ptr, m_ptr, n, lr, decay, beta1, beta2, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    p = tl.load(p_ptr + at, mask=mask, other=0.0)
    g = tl.load(g_ptr + at, mask=mask, other=0.0)
    m = tl.load(m_ptr + at, mask=mask, other=0.0)
    u = beta1 * m + (1.0 - beta1) * g
    sign = tl.where(u > 0.0, 1.0, tl.where(u < 0.0, -1.0, u))
    tl.store(p_ptr + at, p * (1.0 - lr * decay) - lr * sign, mask=mask)
    tl.store(m_ptr + at, beta2 * m + (1.0 - beta2) * g, mask=mask)


def lion_step(parameter, gradient, momentum, weight_decay=0.0, lr=0.01):
    """One step of the Lion optimiser in place."""
    if not (parameter.is_contiguous() and momentum.is_contiguous()):
        raise ValueError("state must be contiguous")
    n = parameter.numel()
    if n:
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
        lion_step_kernel[grid](parameter, gradient.contiguous(), momentum, n, lr, weight_decay, 0.9, 0.5)


def lion_step_reference(parameter, gradient, momentum, weight_decay=0.0, lr=0.01):
    u = 0.9 * momentum + (1 - 0.9) * gradient
    sign = torch.where(u > 0, torch.ones_like(u), torch.where(u < 0, -torch.ones_like(u), u))
    parameter.copy_(parameter * (1 - lr * weight_decay) - lr * sign)
    momentum.copy_(0.5 * momentum + 0.5 * gradient)
