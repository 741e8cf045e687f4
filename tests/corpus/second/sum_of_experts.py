import torch
import triton
import triton.language as tl

SIZES = {"routed": (1, 4), "shared": (0, 1, 2), "inner": (1, 16, 20), "outer": (1, 24)}


def sum_of_experts_inputs(tokens, routed, shared, inner, outer):
    picked = torch.rand(tokens, routed).topk(min(2, routed), 1).indices
    always = torch.arange(routed, routed + shared).expand(tokens, shared)
    chosen = torch.cat([picked, always], 1)
    return {
        "x": torch.randn(tokens, inner),
        "weights": torch.randn(routed + shared, outer, inner),
        "chosen": chosen,
        "gates": torch.rand(chosen.shape),
        "routed": routed,
    }


@triton.jit
def sum_of_experts_kernel(
    x_ptr, w_ptr, chosen_ptr, gates_ptr, y_ptr, picks, experts, inner, outer, BK: tl.constexpr, BN: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), dtype=tl.float32)
    for j in range(picks):
        expert = tl.load(chosen_ptr + token * picks + j)
        if (expert >= 0) & (expert < experts):
            gate = tl.load(gates_ptr + token * picks + j).to(tl.float32)
            for start in range(0, inner, BK):
                i = start + tl.arange(0, BK)
                x = tl.load(x_ptr + token * inner + i, mask=i < inner, other=0.0).to(tl.float32)
                at = (expert * outer + n[:, None]) * inner + i[None, :]
                w = tl.load(w_ptr + at, mask=(n[:, None] < outer) & (i[None, :] < inner), other=0.0).to(tl.float32)
                acc += gate * tl.sum(w * x[None, :], axis=1)
    tl.store(y_ptr + token * outer + n, acc, mask=n < outer)


def sum_of_experts(x, weights, chosen, gates, routed):
    """The weighted sum of the chosen experts' products, of which the first `routed` are chosen by a router."""
    x, weights, chosen, gates = x.contiguous(), weights.contiguous(), chosen.contiguous(), gates.contiguous()
    tokens, inner = x.shape
    outer = weights.shape[1]
    y = torch.zeros(tokens, outer, dtype=x.dtype, device=x.device)
    if y.numel():
        grid = (tokens, triton.cdiv(outer, 16))
        sum_of_experts_kernel[grid](
            x,
            weights,
            chosen,
            gates,
            y,
            chosen.shape[1],
            routed,
            inner,
            outer,
            BK=16,
            BN=16,
        )
    return y


def sum_of_experts_reference(x, weights, chosen, gates, routed):
    y = torch.zeros(x.shape[0], weights.shape[1], dtype=torch.float64, device=x.device)
    for i in range(x.shape[0]):
        for j in range(chosen.shape[1]):
            y[i] += gates[i, j].double() * (weights[chosen[i, j]].double() @ x[i].double())
    return y.to(x.dtype)
