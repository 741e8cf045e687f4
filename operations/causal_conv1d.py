"""The causal convolution: what is compared with formulas, and what is measured.

The page has one channel. Here each row is a channel of one sequence.
"""

import torch

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._packed import ends, ends_made_inside, with_a_copied_state

LESSON = "recurrences.causal_conv1d"
FAST = "fast.causal_conv1d"
FUNCTION = "causal_conv1d"
AXES = ("batch", "tokens", "channels")
DERIVATION = "causal_conv1d"


# ---------------------------------------------------------------- public functions
def packed_tokens(tokens, width):
    rows = {"x": torch.randn(tokens, width), "cu_seqlens": ends(tokens)}
    return rows | {
        "weight": torch.randn(width, 4),
        "bias": torch.randn(width),
        "initial_state": torch.randn(3, width, 3),
    }


def filter_of_one_token(state, x, weight, bias=None, **options):
    from annotated_examples.recurrences.causal_conv1d import causal_conv1d_reference

    options |= dict(initial_state=state, return_final_state=True)
    y, final = causal_conv1d_reference(x[:, None], weight, bias, **options)
    state.copy_(final)
    return y[:, 0]


FINAL, WITHOUT_A_STATE = dict(return_final_state=True), dict(inputs={"initial_state": None})
# At 60 tokens a sequence has 16 and more on average, as the fast version wants them.
PUBLIC = [
    Public(
        "causal_conv1d",
        {"x": "batch tokens width", "weight": "width 4", "bias": "width", "initial_state": "batch width 3"}
        | {"activation": (None, "silu")} | FINAL,
        at=(2, 20, 40), calls=[dict(activation="silu"), FINAL], more=[WITHOUT_A_STATE],
    ),
    Public(
        "causal_conv1d_varlen", packed_tokens, at=(60, 40), options=FINAL, calls=[dict(activation="silu")],
        more=[dict(wrap=ends_made_inside(60, "cu_seqlens"), return_final_state=True)],
    ),
    Public(
        "causal_conv1d_step_",
        {"state": "batch width 3", "x": "batch width", "weight": "width 4", "bias": "width"}
        | {"activation": (None, "silu")},
        at=(2, 40), calls=[dict(activation="silu")], modules=(LESSON,), reference=filter_of_one_token,
        wrap=with_a_copied_state, differentiable=False,
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
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
    ends = torch.tensor([0, m], dtype=torch.int32, device=x.device)
    y, final = module.causal_conv1d_varlen(
        x.t(), w, ends, b, activation="silu", initial_state=s[None], return_final_state=True
    )  # fmt: skip
    return y.t(), final[0]


@one_packed_sequence.pytorch
def _(x, w, b, s):
    from annotated_examples.recurrences.causal_conv1d import causal_conv1d_reference

    options = dict(activation="silu", initial_state=s[None], return_final_state=True)
    y, final = causal_conv1d_reference(x.t()[None], w, b, **options)
    return y[0].t(), final[0]


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


# ---------------------------------------------------------------- what is measured
TAPS = 4


# Forward reads inputs and writes outputs; the final state is small. Backward reads upstream and inputs and writes a
# gradient. Filter and bias are small, and so are their gradients. (Without an activation backward doesn't need the
# bias.) The lesson leaves these gradients in parts, which are float32, one for each `tile` of tokens.
def cost(shape, dtype, taps=TAPS, tile=None, state=False, silu=True):
    n, D = torch.Size(shape).numel(), shape[-1]
    size, states = dtype.itemsize, shape[0] * D * (taps - 1)
    sums = D * (taps + 1) * (4 * -(-n // D // tile) if tile else size)
    return {
        "forward": dict(
            bytes_read=(n + D * (taps + 1) + states * state) * size,
            bytes_written=(n + states) * size,
            operations=2 * taps * n,
        ),
        "backward": dict(
            bytes_read=(2 * n + D * (taps + silu) + states * (1 + state)) * size,
            bytes_written=(n + states * state) * size + sums,
            operations=2 * taps * (taps + 2) * n,
        ),
    }


def inputs(shape, dtype, device):
    shapes = dict(x=shape, weight=(shape[-1], TAPS), bias=shape[-1:])
    return {name: torch.randn(size, dtype=dtype, device=device) for name, size in shapes.items()}


# The upstream gradient has the layout of this result. A convolution leaves the channels of a token far apart; the next
# layer wants them side by side. Left as they are, every backward pass would be timed on a transposed gradient.
def eager(x, weight, bias):
    padded = torch.nn.functional.pad(x.transpose(1, 2), (weight.shape[1] - 1, 0))
    z = torch.nn.functional.conv1d(padded, weight[:, None], bias, groups=weight.shape[0])
    return torch.nn.functional.silu(z).transpose(1, 2).contiguous()


def fla():
    from fla.modules.convolution import causal_conv1d

    return lambda x, weight, bias: causal_conv1d(x, weight, bias, activation="silu", backend="triton")[0]


# The fast version loads the bias whether it needs it or not.
EXAMPLES = {
    LESSON: cost((1, 5, 2), torch.float32, taps=3, tile=4, state=True, silu=False),
    FAST: cost((1, 5, 2), torch.float32, taps=3, state=True),
}
BENCH = dict(
    shapes=[(8, 4096, 4096), (1, 65536, 8192)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    call=lambda causal_conv1d: lambda x, weight, bias: causal_conv1d(x, weight, bias, activation="silu"),
    eager=eager,
    peers={"flash-linear-attention": fla},
    passes=["forward", "backward"],
    differentiable=["x", "weight", "bias"],
)
