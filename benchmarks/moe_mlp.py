"""What is measured of a layer of experts, and against whom. All experts have the same number of rows."""

import torch

LESSON = "moe.moe_mlp"
FAST = "fast.moe_mlp"
FUNCTION = "moe_mlp"
AXES = ("tokens", "slots", "experts", "width", "inner width")


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
EXAMPLES = {"moe.moe_mlp": cost((5, 2, 3, 4, 3), torch.float32, used=2), "fast.moe_mlp": FAST_EXAMPLE}
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
