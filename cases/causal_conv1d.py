"""Which calls of the causal convolution are compared with the formulas of backprop_math/causal_conv1d.md.

The page has one channel. Here each row is a channel of one sequence.
"""

from academy.formulas.cases import case

LESSON, FAST = "recurrences.causal_conv1d", "fast.causal_conv1d"
ROWS = ("x", "w", "b", "s", "g", "varphi")
RESULTS = ("CC-silu", "CC-final")
GRADIENTS = {"x": "CC-dx", "w": "CC-dw", "b": "CC-db", "s": "CC-ds"}


def both(g, varphi):
    return g, varphi


@case(modules=(LESSON, FAST), returns=RESULTS, gradients=GRADIENTS, rows=ROWS, upstream=both)
def causal_conv1d(module, x, w, b, s):
    y, final = module.causal_conv1d(
        x.t()[None], w, b, activation="silu", initial_state=s[None], return_final_state=True
    )  # fmt: skip
    return y[0].t(), final[0]


@case(modules=(LESSON, FAST), returns=RESULTS, gradients=GRADIENTS, rows=ROWS, upstream=both)
def one_packed_sequence(module, x, w, b, s, m):
    import torch

    ends = torch.tensor([0, m], dtype=torch.int32, device=x.device)
    y, final = module.causal_conv1d_varlen(
        x.t(), w, ends, b, activation="silu", initial_state=s[None], return_final_state=True
    )  # fmt: skip
    return y.t(), final[0]


@case(modules=(LESSON, FAST), returns="CC", rows=ROWS, forward_only=True)
def without_activation(module, x, w, b, s):
    return module.causal_conv1d(x.t()[None], w, b, initial_state=s[None])[0].t()


@case(modules=LESSON, returns="CC-silu", rows=ROWS, forward_only=True, sizes={"m": 1})
def one_token(module, x, w, b, s):
    return module.causal_conv1d_step_(s[None].clone(), x.t(), w, b, activation="silu").t()


@one_token.pytorch
def _(x, w, b, s):
    from annotated_examples.recurrences.causal_conv1d import causal_conv1d_reference

    return causal_conv1d_reference(x.t()[None], w, b, activation="silu", initial_state=s[None])[0].t()


@case(modules=(LESSON, FAST), returns=RESULTS, gradients=GRADIENTS, rows=ROWS, upstream=both)
def in_tiles(module, x, w, b, s, g, varphi):
    tile = dict(LENGTH=16, ROWS=2) if module.__name__.endswith(FAST) else dict(BLOCK_T=16)
    given, size = (x.t()[None], w, b, s[None], None), dict(silu=True, BLOCK_D=4, **tile)
    y, final = module.causal_conv1d_forward(*given, **size)
    upstream = g.t()[None].to(x.dtype), varphi[None].to(x.dtype)
    dx, dw, db, ds = module.causal_conv1d_backward(*upstream, *given, **size)
    return (y[0].t(), final[0]), {"x": dx[0].t(), "w": dw, "b": db, "s": ds[0]}


@in_tiles.pytorch
def _(x, w, b, s):
    from annotated_examples.recurrences.causal_conv1d import causal_conv1d_reference

    y, final = causal_conv1d_reference(
        x.t()[None], w, b, activation="silu", initial_state=s[None], return_final_state=True
    )  # fmt: skip
    return y[0].t(), final[0]
