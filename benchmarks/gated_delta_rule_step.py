"""What is measured of one token of the gated delta rule. `shape` is (batch, heads, head dimension)."""

import torch
import torch.nn.functional as F

LESSON = "recurrences.gated_delta_rule_step"
FAST = None
FUNCTION = "gated_delta_rule_step_"
AXES = ("batch", "heads", "head dimension")


# The state is read and written; the vectors of a token are small beside it. beta is float32, and so may be the gates.
def cost(shape, dtype, gates=True, slots=0):
    B, H, D = shape
    state, vector = 4 * B * H * D * D, B * H * D * dtype.itemsize
    return {
        "forward": dict(
            bytes_read=state + 3 * vector + 4 * B * H * (1 + gates) + 4 * slots,
            bytes_written=state + vector,
            operations=7 * B * H * D * D,
        )
    }


def inputs(shape, dtype, device):
    B, H, D = shape
    made = {name: torch.randn(shape, dtype=dtype, device=device) for name in "qkv"}
    made["k"] = F.normalize(made["k"].float(), dim=-1).to(dtype)
    state = torch.randn(B, H, D, D, device=device)
    g = F.logsigmoid(torch.randn(B, H, device=device) + 3)
    return dict(state=state) | made | dict(g=g, beta=torch.rand(B, H, device=device))


def eager(state, q, k, v, g, beta):
    from annotated_examples.recurrences.gated_delta_rule_step import gated_delta_rule_step_reference

    return gated_delta_rule_step_reference(state, q, k, v, g, beta)


def fla(inputs):
    from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

    def step(state, q, k, v, g, beta):
        one = (x[:, None] for x in (q, k, v, g, beta))
        o, final = fused_recurrent_gated_delta_rule(*one, initial_state=state, output_final_state=True)
        return o[:, 0]

    return step


# Two rows, of which one has a state.
_ROWS, _STATE = cost((2, 1, 2), torch.float32, gates=False, slots=2)["forward"], 4 * 2 * 2
EXAMPLES = {
    "recurrences.gated_delta_rule_step": {
        "forward": _ROWS | dict(bytes_read=_ROWS["bytes_read"] - _STATE, bytes_written=_ROWS["bytes_written"] - _STATE),
    }
}
BENCH = dict(
    shapes=[(128, 32, 128), (1, 32, 128)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    eager_name="PyTorch",
    compile=False,
    peers={"fla": fla},
    passes=["forward"],
)
