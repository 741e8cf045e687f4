"""Which calls of the linear recurrence are compared with the formulas of backprop_math/linear_recurrence.md.

The page has one channel. Here each row is a channel of one sequence.
"""

from academy.formulas.cases import case

LESSON, FAST = "recurrences.linear_recurrence", "fast.linear_recurrence"
BOTH = LESSON, FAST
ROWS = ("a", "x", "h_0", "g", "varphi")
RESULTS = ("LR", "LR-final")
GRADIENTS = {"x": "LR-dx", "a": "LR-da", "h_0": "LR-dh0"}


def bounded(a):
    """Gates from -1 to 1."""
    return {"a": a.sin()}


def state(h_0):
    import torch

    return h_0[None].to(torch.promote_types(h_0.dtype, torch.float32))


def both(g, varphi):
    return g, varphi


@case(modules=BOTH, returns=RESULTS, gradients=GRADIENTS, rows=ROWS, values=bounded, upstream=both)
def linear_recurrence(module, a, x, h_0):
    h, final = module.linear_recurrence(a.t()[None], x.t()[None], state(h_0), return_final_state=True)
    return h[0].t(), final[0]


@case(modules=BOTH, returns=RESULTS, gradients=GRADIENTS, rows=ROWS, values=bounded, upstream=both)
def one_packed_sequence(module, a, x, h_0, m):
    import torch

    ends = torch.tensor([0, m], dtype=torch.int32, device=x.device)
    h, final = module.linear_recurrence_varlen(a.t(), x.t(), ends, state(h_0), return_final_state=True)
    return h.t(), final[0]


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
