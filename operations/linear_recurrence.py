"""The linear recurrence: what is compared with formulas, and what is measured.

The page has one channel. Here each row is a channel of one sequence.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._packed import ends, ends_made_inside

LESSON = "recurrences.linear_recurrence"
FAST = "fast.linear_recurrence"
FUNCTION = "linear_recurrence"
AXES = ("batch", "tokens", "channels")
DERIVATION = "linear_recurrence"


# ---------------------------------------------------------------- public functions
def packed_gates(tokens, width):
    rows = {"a": torch.randn(tokens, width), "x": torch.randn(tokens, width), "cu_seqlens": ends(tokens)}
    return rows | {"initial_state": torch.randn(3, width)}


def of_bounded_gates(recurrence):
    return lambda a, **others: recurrence(a=a.sin(), **others)


def with_a_wide_state(recurrence):
    bounded = of_bounded_gates(recurrence)
    return lambda initial_state, **others: bounded(initial_state=initial_state.float(), **others)


def gates(batch, tokens, width):
    return torch.randn(batch, tokens, width).sigmoid().bfloat16()


def gates_of_sequences(tokens, width):
    return gates(1, tokens, width)[0]


FINAL = {"return_final_state": True}
BOUNDED = dict(inputs={"a": gates}, wrap=None)
OF_SEQUENCES = dict(inputs={"a": gates_of_sequences}, wrap=None)
# At 60 tokens a sequence has 16 and more on average, as the fast version wants them.
PUBLIC = [
    Public(
        "linear_recurrence",
        {"a": "batch tokens width", "x": "batch tokens width", "initial_state": "batch width: float32"} | FINAL,
        at=(2, 20, 40), calls=[BOUNDED, BOUNDED | FINAL], wrap=of_bounded_gates,
        batch={"batch": {FAST: "the length of a stretch hangs on how many channels all sequences have together"}},
    ),
    Public(
        "linear_recurrence_varlen", packed_gates, at=(60, 40), options=FINAL, float32=("initial_state",),
        calls=[OF_SEQUENCES], more=[OF_SEQUENCES | dict(wrap=ends_made_inside(60, "cu_seqlens")) | FINAL],
        wrap=with_a_wide_state,
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
BOTH = LESSON, FAST
ROWS = ("a", "x", "h_0", "g", "varphi")
RESULTS = ("LR", "LR-final")
GRADIENTS = {"x": "LR-dx", "a": "LR-da", "h_0": "LR-dh0"}


def bounded(a):
    """Gates from -1 to 1."""
    return {"a": a.sin()}


def state(h_0):
    return h_0[None].to(torch.promote_types(h_0.dtype, torch.float32))


def both(g, varphi):
    return g, varphi


@case(modules=BOTH, returns=RESULTS, gradients=GRADIENTS, rows=ROWS, values=bounded, upstream=both)
def linear_recurrence(module, a, x, h_0):
    h, final = module.linear_recurrence(a.t()[None], x.t()[None], state(h_0), return_final_state=True)
    return h[0].t(), final[0]


@case(modules=BOTH, returns=RESULTS, gradients=GRADIENTS, rows=ROWS, values=bounded, upstream=both)
def one_packed_sequence(module, a, x, h_0, m):
    ends = torch.tensor([0, m], dtype=torch.int32, device=x.device)
    h, final = module.linear_recurrence_varlen(a.t(), x.t(), ends, state(h_0), return_final_state=True)
    return h.t(), final[0]


@one_packed_sequence.pytorch
def _(a, x, h_0):
    from annotated_examples.recurrences.linear_recurrence import linear_recurrence_reference

    h, final = linear_recurrence_reference(a.t()[None], x.t()[None], state(h_0), return_final_state=True)
    return h[0].t(), final[0]


@case(modules=LESSON, returns=("LR-chunk", "LR-final"), gradients=GRADIENTS, rows=ROWS, values=bounded, upstream=both)
def in_tiles(module, a, x, h_0, g, varphi):
    first, size = state(h_0), dict(BLOCK_T=16, BLOCK_D=4)
    h, final = module.linear_recurrence_forward(a.t()[None], x.t()[None], first, **size)
    upstream = g.t()[None], varphi[None].float()
    dx, da, dh_0 = module.linear_recurrence_backward(*upstream, a.t()[None], h, first, **size)
    return (h[0].t(), final[0]), {"x": dx[0].t(), "a": da[0].t(), "h_0": dh_0[0].to(h_0.dtype)}


@case(modules=FAST, returns=("LR-chunk", "LR-final"), gradients=GRADIENTS, rows=ROWS, values=bounded, upstream=both)
def in_stretches(module, a, x, h_0, g, varphi):
    first, size = state(h_0), dict(ROWS=2, STRETCHES=4, BLOCK_D=4, num_warps=1)
    h, final = module.linear_recurrence_forward(a.t()[None], x.t()[None], first, **size)
    upstream = g.t()[None], varphi[None].float()
    dx, da, dh_0 = module.linear_recurrence_backward(*upstream, a.t()[None], h, first, **size)
    return (h[0].t(), final[0]), {"x": dx[0].t(), "a": da[0].t(), "h_0": dh_0[0].to(h_0.dtype)}


@in_tiles.pytorch
@in_stretches.pytorch
def _(a, x, h_0):
    from annotated_examples.recurrences.linear_recurrence import linear_recurrence_reference

    h, final = linear_recurrence_reference(a.t()[None], x.t()[None], state(h_0), return_final_state=True)
    return h[0].t(), final[0]


# ---------------------------------------------------------------- what is measured
# Forward reads gates and inputs and writes states; backward reads upstream, gates and states and writes two gradients.
# Final states are float32. An element takes about twenty operations in the rounds of a scan.
def cost(shape, dtype):
    n, states = torch.Size(shape).numel(), 4 * shape[0] * shape[2]
    size = dtype.itemsize
    return {
        "forward": dict(bytes_read=2 * n * size, bytes_written=n * size + states, operations=20 * n),
        "backward": dict(bytes_read=3 * n * size + states, bytes_written=2 * n * size + states, operations=22 * n),
    }


# With an initial state, which both passes read. Of the states the backward pass reads all but the last.
def example_cost(shape):
    costs, state = cost(shape, torch.float32), 4 * shape[0] * shape[2]
    costs["forward"]["bytes_read"] += state
    return costs


def inputs(shape, dtype, device):
    return dict(a=torch.rand(shape, dtype=dtype, device=device), x=torch.randn(shape, dtype=dtype, device=device))


def eager(a, x):
    from annotated_examples.recurrences.linear_recurrence import linear_recurrence_reference

    return linear_recurrence_reference(a, x)


def fla():
    from fla.ops.hgrn import chunk_hgrn

    return lambda a, x: chunk_hgrn(x, a.float().log())[0]


EXAMPLES = {name: example_cost((1, 6, 2)) for name in (LESSON, FAST)}
BENCH = dict(
    shapes=[(8, 4096, 2048), (1, 65536, 2048), (64, 1, 4096)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    eager=eager,
    time_eager=False,
    peers={"flash-linear-attention": fla},
    passes=["forward", "backward"],
    differentiable=["a", "x"],
    compile=False,
)
