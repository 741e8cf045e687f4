"""Linear attention: what is compared with formulas, and what is measured.

`shape` is (batch, tokens, heads, head dimension).
"""

import functools

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._attention import WIDTH
from operations._exact import CHUNKS
from operations._packed import ends, ends_made_inside, sequences_of

LESSON = "recurrences.linear_attention"
FAST = "fast.linear_attention"
FUNCTION = "linear_attention"
AXES = ("batch", "tokens", "heads", "head dimension")
DERIVATION = "linear_attention"
WITHOUT_ROUNDING = {"atoms": CHUNKS}


# ---------------------------------------------------------------- public functions
def gated_tokens(batch, tokens, width):
    """Two heads of values to one of queries and keys."""
    heads = {name: torch.randn(batch, tokens, count, width) / 4 for name, count in (("q", 1), ("k", 1), ("v", 2))}
    return heads | {"g": -torch.randn(batch, tokens, 2).abs() / 8}


def gated_sequences(tokens, width):
    return {name: x[0] for name, x in gated_tokens(1, tokens, width).items()} | {"cu_seqlens": ends(tokens)}


def of_sequences(*tensors, **inputs):
    from annotated_examples.recurrences.linear_attention import linear_attention_reference

    return sequences_of(linear_attention_reference)(*tensors, **inputs)


IN_CHUNKS = {
    "non-finite": "PyTorch's dense products make NaN where terms of weight 0 are left out",
    "magnitudes": "a state is a sum of products, which of numbers around 10⁴ has no digit in common with another's",
}
STATE, STATES = {"initial_state": "batch 2 width width: float32"}, {"initial_state": "3 2 width width: float32"}
SCALED = dict(scale=0.5, return_final_state=True)
USUAL = dict(options={"return_final_state": True}, sizes=WIDTH, without=IN_CHUNKS)
PUBLIC = [
    Public(
        "linear_attention", gated_tokens, at=(1, 40, 64), float32=("g",), **USUAL,
        calls=[{}, SCALED | dict(inputs=STATE)], more=[SCALED | dict(inputs=STATE | {"g": None})],
    ),
    Public(
        "linear_attention_varlen", gated_sequences, at=(40, 64), float32=("g",), **USUAL, calls=[dict(inputs=STATES)],
        more=[SCALED | dict(inputs=STATES, wrap=ends_made_inside(40, "cu_seqlens"))], reference=of_sequences,
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas
MODULES = (LESSON,)


def tame(Q, K, V, g, Sigma):
    """Gates that leave something, and numbers of a few units: a state is a sum of products."""
    return {
        "Q": torch.sin(Q),
        "K": torch.sin(K),
        "V": torch.sin(V),
        "Sigma": torch.sin(Sigma),
        "g": -torch.sin(g).abs() / 4,
        "s": 0.7,
    }


def one_head(*tensors):
    """(tokens, width) and (tokens,) as (1, tokens, 1, width) and (1, tokens, 1)."""
    return [x[None, :, None] for x in tensors]


@case(
    modules=MODULES,
    returns=("LA-O", "LA-next"),
    gradients={"Q": "LA-dq", "K": "LA-dk", "V": "LA-dv", "g": "LA-dg", "Sigma": "LA-dS"},
    values=tame,
    sizes={"m": 35, "d": 3, "n": 4},
)
def linear_attention(module, Q, K, V, g, Sigma, s):
    q, k, v, gates = one_head(Q, K, V, g.float())
    state = Sigma.float()[None, None]
    o, final = module.linear_attention(q, k, v, gates, scale=s, initial_state=state, return_final_state=True)
    return o[0, :, 0], final[0, 0]


@case(modules=MODULES, returns="LA-chunk", values=tame, sizes={"m": 7, "d": 3, "n": 4}, forward_only=True)
def one_sequence_of_several(module, Q, K, V, g, Sigma, s, m):
    """Between two others, which have a token each."""
    others = lambda x: torch.cat([x[:1], x, x[:1]])[:, None]  # noqa: E731
    ends = torch.tensor([0, 1, 1 + m, 2 + m], dtype=torch.int32, device=Q.device)
    state = Sigma.float().expand(3, 1, -1, -1)
    q, k, v, gates = (others(x) for x in (Q, K, V, g.float()))
    o, _ = module.linear_attention_varlen(q, k, v, ends, gates, scale=s, initial_state=state, return_final_state=True)
    return o[1 : 1 + m, 0]


@one_sequence_of_several.pytorch
def _(module, Q, K, V, g, Sigma, s):
    return module.linear_attention_reference(*one_head(Q, K, V, g), scale=s, initial_state=Sigma[None, None])[0, :, 0]


# ---------------------------------------------------------------- 16-bit numbers that a descriptor can describe
one_walk = linear_attention.again(modules=FAST, sizes={"m": 70, "d": 8, "n": 72}, dtypes=("bfloat16",))
one_walk_of_several = one_sequence_of_several.again(modules=FAST, sizes={"m": 7, "d": 8, "n": 16}, dtypes=("bfloat16",))


@case(
    modules=FAST,
    returns="LA-chunk",
    values=tame,
    sizes={"m": 70, "d": 8, "n": 16},
    dtypes=("bfloat16",),
    forward_only=True,
)
def in_parts(module, Q, K, V, g, Sigma, s):
    """As a long text of few heads is: in parts, of 64 tokens and of six."""
    q, k, v, gates = (x.transpose(1, 2) for x in one_head(Q, K, V, g.float()))
    o, _ = module.linear_attention_forward(q, k, v, gates, Sigma.float()[None, None], None, scale=s, LENGTH=64)
    return o[0, 0]


@in_parts.pytorch
def _(module, Q, K, V, g, Sigma, s):
    return module.linear_attention_reference(*one_head(Q, K, V, g), scale=s, initial_state=Sigma[None, None])[0, :, 0]


# ---------------------------------------------------------------- what is never returned
@case(modules=MODULES, returns="LA-S", values=tame, sizes={"m": 7, "d": 3, "n": 4}, forward_only=True)
def states(module, Q, K, V, g, Sigma, d):
    """Queries that are the columns of an identity read one row of the state each."""
    m = len(K)
    q = torch.eye(d, dtype=K.dtype, device=K.device)[:, None, None].expand(d, m, 1, d)
    k, v, gates = (x.expand(d, *x.shape[1:]) for x in one_head(K, V, g.float()))
    state = Sigma.float().expand(d, 1, -1, -1)
    o = module.linear_attention(q, k, v, gates, scale=1.0, initial_state=state)[:, :, 0]
    return torch.cat([Sigma[None], o.transpose(0, 1)])


@case(modules=MODULES, returns="LA-P", values=tame, sizes={"m": 7, "d": 3}, forward_only=True)
def scores(module, Q, K, V, g, s, m):
    """Values that are the columns of an identity leave the scores as they are."""
    identity = torch.eye(m, dtype=V.dtype, device=V.device)
    return module.linear_attention(*one_head(Q, K, identity, g.float()), scale=s)[0, :, 0]


@case(modules=MODULES, returns="LA-L", values=tame, sizes={"m": 7}, forward_only=True)
def decay(module, V, g, m):
    """All products of queries and keys are 1."""
    ones, identity = torch.ones_like(V[:, :1]), torch.eye(m, dtype=V.dtype, device=V.device)
    return module.linear_attention(*one_head(ones, ones, identity, g.float()), scale=1.0)[0, :, 0]


# ---------------------------------------------------------------- what is measured
CHUNK = 64


# q, k, v and the gates are read and o is written, once. The lesson reads q, k and v twice and moves a state for each
# chunk besides; that is its own affair, not what has to move.
def operations_of(B, T, H, D, E, C):
    """Forward: scores and outputs inside of a chunk, and three products with a state."""
    return 2 * B * H * T * (C * (D + E) // 2 + 2 * D * E)


def cost(shape, dtype):
    B, T, H, D = shape
    tensor, gates = B * T * H * D * dtype.itemsize, 4 * B * T * H
    forward = operations_of(B, T, H, D, D, CHUNK)
    return {
        "forward": dict(bytes_read=3 * tensor + gates, bytes_written=tensor, operations=forward),
        "backward": dict(bytes_read=4 * tensor + gates, bytes_written=3 * tensor + gates, operations=5 * forward // 2),
    }


def inputs(shape, dtype, device):
    B, T, H, D = shape
    made = {name: torch.randn(shape, dtype=dtype, device=device) for name in "qkv"}
    return made | dict(g=F.logsigmoid(torch.randn(B, T, H, device=device) + 3))


# With all pairs of tokens at once the reference needs T² numbers a head: a few heads at a time.
def reference(q, k, v, g):
    from torch.utils.checkpoint import checkpoint

    from annotated_examples.recurrences.linear_attention import linear_attention_reference

    one = functools.partial(checkpoint, linear_attention_reference, use_reentrant=False)
    batches = []
    for b in range(len(q)):
        heads = [one(*(x[b : b + 1, :, h : h + 1] for x in (q, k, v, g))) for h in range(v.shape[2])]
        batches.append(torch.cat(heads, dim=2))
    return torch.cat(batches)


def simple_gla(inputs):
    from fla.ops.simple_gla import chunk_simple_gla

    return lambda q, k, v, g: chunk_simple_gla(q, k, v, g)[0]


# The state at the end is written, too, and so is the gradient of the one at the start. One kernel writes its part of
# the gates' gradient, which the next one reads again.
EXAMPLES = {
    LESSON: {
        "forward": dict(
            bytes_read=4 * (3 * 8 + 4), bytes_written=4 * (8 + 4), operations=operations_of(1, 4, 1, 2, 2, 2)
        ),
        "backward": dict(
            bytes_read=4 * (4 * 8 + 4),
            bytes_written=4 * (3 * 8 + 4),
            operations=5 * operations_of(1, 4, 1, 2, 2, 2) // 2,
        ),
    },
    FAST: {
        "forward": dict(
            bytes_read=2 * 3 * 32 + 4 * 4,
            bytes_written=2 * 32 + 4 * 64,
            operations=operations_of(1, 4, 1, 8, 8, 2),
        ),
        "backward": dict(
            bytes_read=2 * 4 * 32 + 4 * 4,
            bytes_written=2 * 3 * 32 + 4 * 64,
            operations=5 * operations_of(1, 4, 1, 8, 8, 2) // 2,
        ),
    },
}
BENCH = dict(
    shapes=[(8, 4096, 16, 128), (1, 16384, 16, 128)],
    dtypes=[torch.bfloat16],
    inputs=inputs,
    compile=False,
    host_shape=(1, 128, 2, 64),
    eager=reference,
    time_eager=False,
    peers={"fla, simple_gla": simple_gla},
    # Apart, because fla refuses its backward pass on triton 3.6, and would be left out of both.
    variants={"": {}, "backward": dict(passes=["backward"], differentiable=["q", "k", "v", "g"])},
)
