import torch
import triton
import triton.language as tl

INPUTS = {
    "parameter": "rows cols: float32",
    "gradient": "rows cols: float32",
    "first": "rows cols: float32",
    "second": "rows cols: float32 nonnegative",
    "step": (1, 10),
    "weight_decay": (0.0, 0.1),
    "decoupled": (True, False),
}


@triton.jit
def adam_step_kernel(
    p_ptr, g_ptr, m_ptr, v_ptr, n, lr, beta1, beta2, eps, weight_decay, c1, c2, DECOUPLED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    p = tl.load(p_ptr + at, mask=mask, other=0.0)
    g = tl.load(g_ptr + at, mask=mask, other=0.0)
    m = tl.load(m_ptr + at, mask=mask, other=0.0)
    v = tl.load(v_ptr + at, mask=mask, other=0.0)
    if DECOUPLED:
        p = p * (1.0 - lr * weight_decay)
    g = g + weight_decay * p
    m = beta1 * m + (1.0 - beta1) * g
    v = beta2 * v + (1.0 - beta2) * g * g
    p = p - lr * (m / c1) / (tl.sqrt(v / c2) + eps)
    tl.store(p_ptr + at, p, mask=mask)
    tl.store(m_ptr + at, m, mask=mask)
    tl.store(v_ptr + at, v, mask=mask)


def adam_step(parameter, gradient, first, second, step, weight_decay=0.0, decoupled=True, lr=1e-2):
    """One step of Adam in place; `decoupled` shrinks the weights beside the gradient, as AdamW does."""
    if not (parameter.is_contiguous() and first.is_contiguous() and second.is_contiguous()):
        raise ValueError("state must be contiguous")
    n = parameter.numel()
    if n:
        adam_step_kernel[(triton.cdiv(n, 128),)](
            parameter,
            gradient.contiguous(),
            first,
            second,
            n,
            lr,
            0.9,
            0.99,
            1e-8,
            weight_decay,
            1 - 0.9**step,
            1 - 0.99**step,
            DECOUPLED=decoupled,
            BLOCK=128,
        )


def adam_step_reference(parameter, gradient, first, second, step, weight_decay=0.0, decoupled=True, lr=1e-2):
    p, g = parameter.clone(), gradient
    if decoupled:
        p = p * (1 - lr * weight_decay)
    else:
        g = g + weight_decay * p
    first.copy_(0.9 * first + 0.1 * g)
    second.copy_(0.99 * second + 0.01 * g * g)
    parameter.copy_(p - lr * (first / (1 - 0.9**step)) / (torch.sqrt(second / (1 - 0.99**step)) + 1e-8))
