"""A layer of experts: what is compared with formulas, and what is measured.

All experts have the same number of rows.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public

LESSON = "moe.moe_mlp"
FAST = "fast.moe_mlp"
FUNCTION = "moe_mlp"
AXES = ("tokens", "slots", "experts", "width", "inner width")
DERIVATION = "moe_mlp"


# ---------------------------------------------------------------- public functions
def tokens_of_experts(tokens, width):
    """Four experts, the second without tokens, and a dropped slot."""
    experts = (torch.arange(2 * tokens).view(tokens, 2) * 2 % 4).int()
    experts[:1, 1] = -1
    tensors = {"x": torch.randn(tokens, width), "experts": experts, "weights": torch.rand(tokens, 2)}
    return tensors | {"gate_up": torch.randn(4, 48, width) / 4, "down": torch.randn(4, width, 24)}


def sorted_beforehand(mlp):
    def call(experts, **tensors):
        from annotated_examples.moe.router import sort_by_expert

        return mlp(experts=experts, plan=sort_by_expert(experts, len(tensors["down"])), **tensors)

    return call


PUBLIC = [
    Public(
        "moe_mlp", tokens_of_experts, at=(5, 40), more=[dict(wrap=sorted_beforehand)], float32=("weights",),
        sizes={"width": (16, 40)}, without={"non-finite": "PyTorch multiplies the zeros of dropped slots"},
    )
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
BOTH = (LESSON, FAST)
SIZES = {"T": 7, "K": 2, "E": 4, "H": 9, "N": 5}
GRADIENTS = {"X": "ME-dx", "w": "ME-dw", "A": "ME-W1-gate", "B": "ME-W1-up", "D": "ME-W2"}


def experts_of(T, K, E):
    """Expert 1 has nobody where there are several, and some slots are dropped."""
    slots = torch.arange(T * K).view(T, K)
    experts = (slots * 5 % 3) * 2 % E
    return torch.where(slots % 7 == 3, -1, experts)


def chosen(T, K, E):
    experts = experts_of(T, K, E)
    return {"c": (experts[:, :, None] == torch.arange(E)).double()}


COMMON = dict(returns="ME-o", gradients=GRADIENTS, values=chosen, sizes=SIZES)


@case(modules=BOTH, **COMMON)
def layer(module, X, w, A, B, D, T, K, E):
    experts = experts_of(T, K, E).to(X.device)
    return module.moe_mlp(x=X, experts=experts, weights=w, gate_up=torch.cat([A, B], 1), down=D, plan=None)


@layer.pytorch
def _(module, X, w, A, B, D, T, K, E):
    return module.moe_mlp_reference(X, experts_of(T, K, E).to(X.device), w, torch.cat([A, B], 1), D)


@case(modules=LESSON, **COMMON)
def in_small_tiles(module, X, w, A, B, D, nabla_O, T, K, E, N):
    experts, gate_up = experts_of(T, K, E).to(X.device), torch.cat([A, B], 1)
    plan, tiles = module.sorted_by_expert(experts, E), dict(BLOCK_M=4, BLOCK_N=4, BLOCK_K=16)
    out, h = module.mlp_forward(X, w, gate_up, D, *plan, **tiles)
    dX, dw, dgate_up, dD = module.mlp_backward(nabla_O, X, w, gate_up, D, h, *plan, **tiles)
    return out, {"X": dX, "w": dw, "A": dgate_up[:, :N], "B": dgate_up[:, N:], "D": dD}


in_small_tiles.pytorch(layer.said["pytorch"])


@case(modules=FAST, **COMMON | {"sizes": SIZES | {"H": 24, "N": 16}, "dtypes": ("float16",)})
def in_short_blocks(module, X, w, A, B, D, nabla_O, T, K, E, N):
    experts, gate_up = experts_of(T, K, E).to(X.device), torch.cat([A, B], 1)
    plan = module.sorted_by_expert(experts, E)
    out, h = module.mlp_forward(X, w, gate_up, D, *plan, BLOCK=8)
    dX, dw, dgate_up, dD = module.mlp_backward(nabla_O, X, w, gate_up, D, h, *plan, BLOCK=8)
    return out, {"X": dX, "w": dw, "A": dgate_up[:, :N], "B": dgate_up[:, N:], "D": dD}


in_short_blocks.pytorch(layer.said["pytorch"])


@case(modules=BOTH, returns="ME-h", values=chosen, sizes=SIZES, forward_only=True)
def gates(module, X, w, A, B, D, T, K, E, N):
    """What is kept for the backward pass, in the order of the slots."""
    experts = experts_of(T, K, E).to(X.device)
    plan = module.sorted_by_expert(experts, E)
    h = module.mlp_forward(X, w, torch.cat([A, B], 1), D, *plan)[1]
    return torch.where(experts[:, :, None] < 0, 0.0, h[plan.position.long()][:, :, :N]).to(h.dtype)


@gates.pytorch
def _(X, A, T, K, E):
    experts = experts_of(T, K, E).tolist()
    none = X.new_zeros(A.shape[1])
    return torch.stack([torch.stack([A[e] @ x if e >= 0 else none for e in row]) for x, row in zip(X, experts)])


# ---------------------------------------------------------------- what is measured
# The matrices of all used experts and the tokens are read, the tokens are written, and the rows before the activation,
# which the backward pass reads. A slot has a weight and two numbers of the plan. Forward makes three products, of gate,
# up and down, and each has two gradients.
def cost(shape, dtype, used=None):
    tokens, slots, experts, width, inner = shape
    size, one, rows = dtype.itemsize, 3 * width * inner, tokens * slots
    matrices, plan, h = (used or experts) * one * size, 12 * rows + 4 * experts, 2 * rows * inner * size
    hidden, operations = tokens * width * size, 2 * rows * one
    return {
        "forward": dict(bytes_read=matrices + hidden + plan, bytes_written=hidden + h, operations=operations),
        "backward": dict(
            bytes_read=matrices + 2 * hidden + plan + h,
            bytes_written=experts * one * size + hidden + 4 * rows,
            operations=2 * operations,
        ),
    }


def inputs(shape, dtype, device):
    tokens, slots, experts, width, inner = shape
    chosen = torch.arange(tokens * slots, device=device).view(tokens, slots) % experts
    make = lambda *sizes: torch.randn(sizes, dtype=dtype, device=device)  # noqa: E731
    return dict(
        x=make(tokens, width),
        experts=chosen.int(),
        weights=torch.rand(tokens, slots, device=device),
        gate_up=make(experts, 2 * inner, width) / width**0.5,
        down=make(experts, width, inner) / inner**0.5,
    )


def eager(x, experts, weights, gate_up, down):
    from annotated_examples.moe.moe_mlp import moe_mlp_reference

    return moe_mlp_reference(x, experts, weights, gate_up, down)


# How transformers computes its layers of experts: gather, `torch.nn.functional.grouped_mm`, and a kernel for each step
# in between.
def transformers():
    from types import SimpleNamespace

    from transformers.integrations.moe import grouped_mm_experts_forward

    def activation(h):
        gate, up = h.chunk(2, -1)
        return torch.nn.functional.silu(gate) * up

    def layer(x, experts, weights, gate_up, down):
        options = dict(num_experts=len(down), has_gate=True, has_bias=False, is_transposed=False)
        module = SimpleNamespace(gate_up_proj=gate_up, down_proj=down, _apply_gate=activation, **options)
        return grouped_mm_experts_forward(module, x, experts.long(), weights)

    return layer


# The fast version's next kernel reads h again, so a recording takes it for scratch: what is left is the result.
FAST_EXAMPLE = cost((5, 2, 3, 8, 8), torch.float16, used=2)
FAST_EXAMPLE["forward"]["bytes_written"] = 5 * 8 * 2
EXAMPLES = {LESSON: cost((5, 2, 3, 4, 3), torch.float32, used=2), FAST: FAST_EXAMPLE}
BENCH = dict(
    shapes=[(8192, 6, 64, 2048, 1408), (8192, 8, 128, 2048, 768), (8192, 4, 32, 2880, 2880), (512, 6, 64, 2048, 1408)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    peers={"transformers": transformers},
    compile=False,
    passes=["forward", "backward"],
    differentiable=["x", "weights", "gate_up", "down"],
    host_shape=(64, 2, 4, 64, 64),
)
