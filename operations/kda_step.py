"""One token of Kimi delta attention: what is compared with formulas, and what is measured.

`shape` is (batch, heads, head dimension).
"""

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._attention import WIDTH
from operations._exact import CHUNKS
from operations._packed import with_a_copied_state
from operations.gated_delta_rule_step import cost as cost_of_one_gate
from operations.gated_delta_rule_step import in_a_slot
from operations.kda import gates_of_channels, tame
from operations.linear_attention import IN_CHUNKS

LESSON = "recurrences.kda_step"
FAST = None
FUNCTION = "kda_step_"
AXES = ("batch", "heads", "head dimension")
DERIVATION = "kda"
WITHOUT_ROUNDING = {"atoms": CHUNKS}


# ---------------------------------------------------------------- public functions
def one_token(batch, width):
    made = {name: x[:, 0] for name, x in gates_of_channels(batch, 1, width).items()}
    return {"state": torch.randn(batch, 2, width, width)} | made


PUBLIC = [
    Public(
        "kda_step_", one_token, at=(1, 64), float32=("state", "g", "beta"), sizes=WIDTH,
        more=[dict(wrap=in_a_slot, scale=0.5)], wrap=with_a_copied_state, differentiable=False, without=IN_CHUNKS,
        reference=f"{LESSON}.kda_step_reference",
    )
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
ONE_STEP = dict(modules=LESSON, values=tame, sizes={"m": 1, "d": 3, "n": 4}, dtypes=("float32",), forward_only=True)


@case(**ONE_STEP, returns=("KDA-O", "KDA-S"))
def one_step(module, Q, K, V, g, beta, Sigma, s):
    state = Sigma.float()[None, None].clone()
    q, k, v, gates = (x[:, None] for x in (Q, K, V, g.float()))
    o = module.kda_step_(state, q, k, v, gates, beta[:, None], scale=s)
    return o[:, 0], torch.cat([Sigma.float()[None], state[0]])


@one_step.pytorch
def _(Q, K, V, g, beta, Sigma, s):
    S = Sigma * g[0].exp()[:, None]
    S = S + K[0, :, None] * (beta * (V - K @ S))
    return s * Q @ S, torch.stack([Sigma, S])


@case(**ONE_STEP, returns="KDA-O")
def one_state_of_several(module, Q, K, V, g, beta, Sigma, s):
    """The second of two heads of the last of four rows. Two rows have no state, and the states beside the three that
    there are must stay as they are: what is changed there is added to the result."""
    kept = torch.stack([torch.stack([Sigma + 7 + 2 * place, Sigma + 8 + 2 * place]) for place in range(5)]).float()
    kept[1, 1] = Sigma
    states = kept.clone()
    slots = torch.tensor([1, -1, 3, 0], dtype=torch.int32, device=Q.device)

    def rows(x):
        """(B, heads, 1, …) of other numbers, but for the last row's second head."""
        return torch.stack([torch.stack([x / (row + 2), x / (5 - row) if row < 3 else x]) for row in range(4)])

    tensors = (rows(x) for x in (Q, K, V, g.float(), beta))
    o = module.kda_step_launch(states[1:4], *tensors, slots, s, BLOCK_E=2)
    strange = o[1:3].abs().sum() + (states - kept)[[0, 3, 4]].abs().sum()
    return o[3, 1] + strange


@one_state_of_several.pytorch
def _(Q, K, V, g, beta, Sigma, s):
    S = Sigma * g[0].exp()[:, None]
    return s * Q @ (S + K[0, :, None] * (beta * (V - K @ S)))


# ---------------------------------------------------------------- what is measured
# A gate for each number of a key, in float32, where the other rule has one for the head.
def cost(shape, dtype, slots=0):
    B, H, D = shape
    made = cost_of_one_gate(shape, dtype, gates=False, slots=slots)
    made["forward"]["bytes_read"] += 4 * B * H * D
    return made


def inputs(shape, dtype, device):
    B, H, D = shape
    made = {name: torch.randn(shape, dtype=dtype, device=device) for name in "qkv"}
    made["k"] = F.normalize(made["k"].float(), dim=-1).to(dtype)
    state = torch.randn(B, H, D, D, device=device)
    g = F.logsigmoid(torch.randn(shape, device=device) + 3)
    return dict(state=state) | made | dict(g=g, beta=torch.rand(B, H, device=device))


def eager(state, q, k, v, g, beta):
    from annotated_examples.recurrences.kda_step import kda_step_reference

    return kda_step_reference(state, q, k, v, g, beta)


def fla(inputs):
    from fla.ops.kda import fused_recurrent_kda

    def step(state, q, k, v, g, beta):
        one = (x[:, None] for x in (q, k, v, g, beta))
        o, final = fused_recurrent_kda(*one, initial_state=state, output_final_state=True)
        return o[:, 0]

    return step


# Two rows, of which one has a state. Both have the same gates.
_ROWS, _STATE = cost((2, 1, 2), torch.float32, slots=2)["forward"], 4 * 2 * 2
EXAMPLES = {
    LESSON: {
        "forward": _ROWS
        | dict(bytes_read=_ROWS["bytes_read"] - _STATE - 4 * 2, bytes_written=_ROWS["bytes_written"] - _STATE)
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
