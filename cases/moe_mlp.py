"""Which calls of the layer of experts are compared with the formulas of backprop_math/moe_mlp.md."""

from academy.formulas.cases import case

MODULE = "moe.moe_mlp"
BOTH = (MODULE, "fast.moe_mlp")
SIZES = {"T": 7, "K": 2, "E": 4, "H": 9, "N": 5}
GRADIENTS = {"X": "ME-dx", "w": "ME-dw", "A": "ME-W1-gate", "B": "ME-W1-up", "D": "ME-W2"}


def experts_of(T, K, E):
    """Expert 1 has nobody where there are several, and some slots are dropped."""
    import torch

    slots = torch.arange(T * K).view(T, K)
    experts = (slots * 5 % 3) * 2 % E
    return torch.where(slots % 7 == 3, -1, experts)


def chosen(T, K, E):
    import torch

    experts = experts_of(T, K, E)
    return {"c": (experts[:, :, None] == torch.arange(E)).double()}


COMMON = dict(returns="ME-o", gradients=GRADIENTS, values=chosen, sizes=SIZES)


@case(modules=BOTH, **COMMON)
def layer(module, X, w, A, B, D, T, K, E):
    import torch

    experts = experts_of(T, K, E).to(X.device)
    return module.moe_mlp(x=X, experts=experts, weights=w, gate_up=torch.cat([A, B], 1), down=D, plan=None)


@layer.pytorch
def _(module, X, w, A, B, D, T, K, E):
    import torch

    return module.moe_mlp_reference(X, experts_of(T, K, E).to(X.device), w, torch.cat([A, B], 1), D)


@case(modules=MODULE, **COMMON)
def in_small_tiles(module, X, w, A, B, D, nabla_O, T, K, E, N):
    import torch

    experts, gate_up = experts_of(T, K, E).to(X.device), torch.cat([A, B], 1)
    plan, tiles = module.sorted_by_expert(experts, E), dict(BLOCK_M=4, BLOCK_N=4, BLOCK_K=16)
    out, h = module.mlp_forward(X, w, gate_up, D, *plan, **tiles)
    dX, dw, dgate_up, dD = module.mlp_backward(nabla_O, X, w, gate_up, D, h, *plan, **tiles)
    return out, {"X": dX, "w": dw, "A": dgate_up[:, :N], "B": dgate_up[:, N:], "D": dD}


in_small_tiles.pytorch(layer.said["pytorch"])


@case(modules="fast.moe_mlp", **COMMON | {"sizes": SIZES | {"H": 24, "N": 16}, "dtypes": ("float16",)})
def in_short_blocks(module, X, w, A, B, D, nabla_O, T, K, E, N):
    import torch

    experts, gate_up = experts_of(T, K, E).to(X.device), torch.cat([A, B], 1)
    plan = module.sorted_by_expert(experts, E)
    out, h = module.mlp_forward(X, w, gate_up, D, *plan, BLOCK=8)
    dX, dw, dgate_up, dD = module.mlp_backward(nabla_O, X, w, gate_up, D, h, *plan, BLOCK=8)
    return out, {"X": dX, "w": dw, "A": dgate_up[:, :N], "B": dgate_up[:, N:], "D": dD}


in_short_blocks.pytorch(layer.said["pytorch"])


@case(modules=BOTH, returns="ME-h", values=chosen, sizes=SIZES, forward_only=True)
def gates(module, X, w, A, B, D, T, K, E, N):
    """What is kept for the backward pass, in the order of the slots."""
    import torch

    experts = experts_of(T, K, E).to(X.device)
    plan = module.sorted_by_expert(experts, E)
    h = module.mlp_forward(X, w, torch.cat([A, B], 1), D, *plan)[1]
    return torch.where(experts[:, :, None] < 0, 0.0, h[plan.position.long()][:, :, :N]).to(h.dtype)


@gates.pytorch
def _(X, A, T, K, E):
    import torch

    experts = experts_of(T, K, E).tolist()
    none = X.new_zeros(A.shape[1])
    return torch.stack([torch.stack([A[e] @ x if e >= 0 else none for e in row]) for x, row in zip(X, experts)])
