import torch
import triton
import triton.language as tl

INPUTS = {"q": "tokens heads 2*half", "k": "tokens heads 2*half", "cos": "tokens half", "sin": "tokens half"}


@triton.jit
def turn_both_kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr, qo_ptr, ko_ptr, heads, half, q_t, q_h, q_d, k_t, k_h, k_d, BLOCK: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    d = tl.arange(0, BLOCK).to(tl.int64)
    mask = d < half
    cos = tl.load(cos_ptr + token * half + d, mask=mask).to(tl.float32)
    sin = tl.load(sin_ptr + token * half + d, mask=mask).to(tl.float32)
    out = (token * heads + head) * 2 * half + d
    q = q_ptr + token * q_t + head * q_h
    a = tl.load(q + d * q_d, mask=mask).to(tl.float32)
    b = tl.load(q + (d + half) * q_d, mask=mask).to(tl.float32)
    tl.store(qo_ptr + out, a * cos - b * sin, mask=mask)
    tl.store(qo_ptr + out + half, b * cos + a * sin, mask=mask)
    k = k_ptr + token * q_t + head * k_h
    a = tl.load(k + d * k_d, mask=mask).to(tl.float32)
    b = tl.load(k + (d + half) * k_d, mask=mask).to(tl.float32)
    tl.store(ko_ptr + out, a * cos - b * sin, mask=mask)
    tl.store(ko_ptr + out + half, b * cos + a * sin, mask=mask)


def turn_both(q, k, cos, sin):
    """Rotary embedding of queries and keys, which may have any strides."""
    cos, sin = cos.contiguous(), sin.contiguous()
    tokens, heads, width = q.shape
    qo = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    ko = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    if qo.numel():
        turn_both_kernel[(tokens, heads)](
            q,
            k,
            cos,
            sin,
            qo,
            ko,
            heads,
            width // 2,
            *q.stride(),
            *k.stride(),
            BLOCK=triton.next_power_of_2(width // 2),
        )
    return qo, ko


def turn_both_reference(q, k, cos, sin):
    def turn(x):
        a, b = x.double().chunk(2, -1)
        c, s = cos.double()[:, None], sin.double()[:, None]
        return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)

    return turn(q), turn(k)
