"""The gated delta rule: what is compared with formulas, and what is measured.

`shape` is (batch, tokens, heads, head dimension).
"""

import torch
import torch.nn.functional as F

from academy.formulas.cases import case
from academy.judge.public import Public
from operations._exact import CHUNKS
from operations._packed import ends, ends_made_inside, sequences_of
from operations.linear_attention import CHUNK, SCALED, STATE, STATES, USUAL, gated_tokens, operations_of

LESSON = "recurrences.gated_delta_rule"
FAST = "fast.gated_delta_rule"
FUNCTION = "gated_delta_rule"
AXES = ("batch", "tokens", "heads", "head dimension")
DERIVATION = "gated_delta_rule"
# A chunk of 64 tokens and a part of one; columns are walked side by side, 8 of them as 72.
WITHOUT_ROUNDING = {"atoms": CHUNKS, "sizes": {"one_walk": {"m": 66, "n": 8}}}


# ---------------------------------------------------------------- public functions
def short_keys(batch, tokens, width):
    made = gated_tokens(batch, tokens, width)
    return made | {"k": made["k"] * 2 / width**0.5, "beta": torch.rand(batch, tokens, 2)}


def short_keys_of_sequences(tokens, width):
    return {name: x[0] for name, x in short_keys(1, tokens, width).items()} | {"cu_seqlens": ends(tokens)}


def of_sequences(*tensors, **inputs):
    from annotated_examples.recurrences.gated_delta_rule import gated_delta_rule_reference

    return sequences_of(gated_delta_rule_reference)(*tensors, **inputs)


PUBLIC = [
    Public(
        "gated_delta_rule", short_keys, at=(1, 40, 64), float32=("g", "beta"), **USUAL,
        more=[SCALED | dict(inputs=STATE)], calls=[{}],
    ),
    Public(
        "gated_delta_rule_varlen", short_keys_of_sequences, at=(40, 64), float32=("g", "beta"), **USUAL,
        calls=[dict(inputs=STATES)],
        more=[SCALED | dict(inputs=STATES, wrap=ends_made_inside(40, "cu_seqlens"))], reference=of_sequences,
    ),
]  # fmt: skip

# ---------------------------------------------------------------- what is compared with formulas


def tame(Q, K, V, g, beta, Sigma):
    """Short keys, gates that leave something, and numbers of a few units."""
    return {
        "Q": torch.sin(Q),
        "K": torch.sin(K) / max(K.shape[-1], 1) ** 0.5,
        "V": torch.sin(V),
        "Sigma": torch.sin(Sigma),
        "g": -torch.sin(g).abs() / 4,
        "beta": torch.sin(beta).abs(),
        "s": 0.7,
    }


MODULES = (LESSON,)
IN_FLOAT32 = dict(modules=MODULES, values=tame, sizes={"m": 7, "d": 3, "n": 4}, dtypes=("float32",), forward_only=True)


def one_head(*tensors):
    """(tokens, width) and (tokens,) as (1, tokens, 1, width) and (1, tokens, 1)."""
    return [x[None, :, None] for x in tensors]


@case(
    modules=MODULES,
    returns=("GD-O", "GD-next"),
    gradients={"Q": "GD-dq", "K": "GD-dk", "V": "GD-dv", "g": "GD-dg", "beta": "GD-dbeta", "Sigma": "GD-dS"},
    values=tame,
    sizes={"m": 35, "d": 3, "n": 4},
)
def gated_delta_rule(module, Q, K, V, g, beta, Sigma, s):
    q, k, v, gates, betas = one_head(Q, K, V, g.float(), beta)
    state = Sigma.float()[None, None]
    o, final = module.gated_delta_rule(q, k, v, gates, betas, scale=s, initial_state=state, return_final_state=True)
    return o[0, :, 0], final[0, 0]


@case(modules=MODULES, returns="GD-chunk", values=tame, sizes={"m": 7, "d": 3, "n": 4}, forward_only=True)
def one_sequence_of_several(module, Q, K, V, g, beta, Sigma, s, m):
    """Between two others, which have a token each."""
    others = lambda x: torch.cat([x[:1], x, x[:1]])[:, None]  # noqa: E731
    ends = torch.tensor([0, 1, 1 + m, 2 + m], dtype=torch.int32, device=Q.device)
    state = Sigma.float().expand(3, 1, -1, -1)
    q, k, v, gates, betas = (others(x) for x in (Q, K, V, g.float(), beta))
    o, _ = module.gated_delta_rule_varlen(
        q, k, v, gates, betas, ends, scale=s, initial_state=state, return_final_state=True
    )
    return o[1 : 1 + m, 0]


@one_sequence_of_several.pytorch
def _(module, Q, K, V, g, beta, Sigma, s):
    q, k, v, gates, betas = one_head(Q, K, V, g, beta)
    reference = module.gated_delta_rule_reference
    return reference(q, k, v, gates, betas, scale=s, initial_state=Sigma[None, None])[0, :, 0]


# ---------------------------------------------------------------- 16-bit numbers that a descriptor can describe
one_walk = gated_delta_rule.again(modules=FAST, sizes={"m": 70, "d": 8, "n": 72}, dtypes=("bfloat16",))
one_walk_of_several = one_sequence_of_several.again(modules=FAST, sizes={"m": 7, "d": 8, "n": 16}, dtypes=("bfloat16",))


@case(
    modules=FAST,
    returns="GD-chunk",
    values=tame,
    sizes={"m": 70, "d": 8, "n": 16},
    dtypes=("bfloat16",),
    forward_only=True,
)
def in_parts(module, Q, K, V, g, beta, Sigma, s):
    """As a long text of few heads is: in parts, of 64 tokens and of six."""
    q, k, v, gates, betas = (x.transpose(1, 2) for x in one_head(Q, K, V, g.float(), beta))
    o, _ = module.gated_delta_rule_forward(q, k, v, gates, betas, Sigma.float()[None, None], None, scale=s, LENGTH=64)
    return o[0, 0]


@in_parts.pytorch
def _(module, Q, K, V, g, beta, Sigma, s):
    q, k, v, gates, betas = one_head(Q, K, V, g, beta)
    reference = module.gated_delta_rule_reference
    return reference(q, k, v, gates, betas, scale=s, initial_state=Sigma[None, None])[0, :, 0]


# ---------------------------------------------------------------- what is never returned
@case(modules=MODULES, returns="GD-S", values=tame, sizes={"m": 7, "d": 3, "n": 4}, forward_only=True)
def states(module, Q, K, V, g, beta, Sigma, d):
    """Queries that are the columns of an identity read one row of the state each."""
    m = len(K)
    q = torch.eye(d, dtype=K.dtype, device=K.device)[:, None, None].expand(d, m, 1, d)
    k, v, gates, betas = (x.expand(d, *x.shape[1:]) for x in one_head(K, V, g.float(), beta))
    state = Sigma.float().expand(d, 1, -1, -1)
    o = module.gated_delta_rule(q, k, v, gates, betas, scale=1.0, initial_state=state)[:, :, 0]
    return torch.cat([Sigma[None], o.transpose(0, 1)])


def launched(module, K, V, g, beta, Sigma):
    """What each chunk's system is solved for: `(u, inverse)`, in tiles of 16 tokens. The kernel leaves out the ones on
    the inverse's diagonal."""
    k, v, gates, betas = (x.transpose(1, 2) for x in one_head(K, V, g.float(), beta))
    launch, chunks = module.sizes(k, v, 16, 16), module.cut(k, None, 16)
    inverse = K.new_empty(chunks.count, 1, 16, 16)
    state = Sigma.float()[None, None].contiguous()
    u, _, _ = module.differences(k, v, gates, betas, state, None, chunks, launch, inverse)
    return u[0, 0], inverse[0, 0, : len(K), : len(K)] + torch.eye(len(K), device=K.device)


@case(**IN_FLOAT32, returns=("GD-U", "GD-T"))
def system(module, K, V, g, beta, Sigma):
    return launched(module, K, V, g, beta, Sigma)


@system.pytorch
def _(module, K, V, g, beta, Sigma):
    inverse = in_pytorch(K, g, beta)
    return inverse @ (beta[:, None] * (V - g.cumsum(0).exp()[:, None] * (K @ Sigma))), inverse


@case(**IN_FLOAT32, returns="GD-W")
def part_of_the_state(module, K, g, beta, d):
    """With values of 0 and the identity for a state, the differences are -W."""
    identity = torch.eye(d, device=K.device)
    return -launched(module, K, torch.zeros_like(K), g, beta, identity)[0]


@part_of_the_state.pytorch
def _(module, K, g, beta, d):
    return in_pytorch(K, g, beta) @ ((beta * g.cumsum(0).exp())[:, None] * K)


def in_pytorch(K, g, beta):
    """The inverse of the chunk's system."""
    G, ones = g.cumsum(0), torch.eye(len(K), dtype=K.dtype, device=K.device)
    decay = (G[:, None] - G).masked_fill(torch.ones_like(ones).triu(1) > 0, -torch.inf).exp()
    A = ((K @ K.mT) * decay * beta[:, None]).tril(-1)
    return torch.linalg.solve_triangular(A, ones, upper=False, unitriangular=True)


# ---------------------------------------------------------------- what is measured
# As linear attention, with one more number for each token and head. In each chunk there is a system to solve: its
# matrix, its inverse, W and U, and what the keys ask of the state. Of a triangle only the half that isn't 0 is counted.
def delta_operations_of(B, T, H, D, E, C):
    return operations_of(B, T, H, D, E, C) + 2 * B * H * T * (C * (C // 3 + 2 * D + E) // 2 + D * E)


def cost(shape, dtype):
    B, T, H, D = shape
    tensor, numbers = B * T * H * D * dtype.itemsize, 2 * 4 * B * T * H
    forward = delta_operations_of(B, T, H, D, D, CHUNK)
    return {
        "forward": dict(bytes_read=3 * tensor + numbers, bytes_written=tensor, operations=forward),
        "backward": dict(
            bytes_read=4 * tensor + numbers, bytes_written=3 * tensor + numbers, operations=5 * forward // 2
        ),
    }


def inputs(shape, dtype, device):
    B, T, H, D = shape
    made = {name: torch.randn(shape, dtype=dtype, device=device) for name in "qkv"}
    made["k"] = F.normalize(made["k"].float(), dim=-1).to(dtype)
    g = F.logsigmoid(torch.randn(B, T, H, device=device) + 3)
    return made | dict(g=g, beta=torch.rand(B, T, H, device=device))


def reference(q, k, v, g, beta):
    """A head at a time: all pairs of tokens at once take T² numbers each."""
    from torch.utils.checkpoint import checkpoint

    from annotated_examples.recurrences.gated_delta_rule import gated_delta_rule_reference

    batches = []
    for b in range(len(q)):
        heads = []
        for h in range(v.shape[2]):
            one = [x[b : b + 1, :, h : h + 1] for x in (q, k, v, g, beta)]
            heads.append(checkpoint(gated_delta_rule_reference, *one, use_reentrant=False))
        batches.append(torch.cat(heads, dim=2))
    return torch.cat(batches)


def fla(inputs):
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    return lambda q, k, v, g, beta: chunk_gated_delta_rule(q, k, v, g, beta)[0]


_EXAMPLE, _FAST = delta_operations_of(1, 4, 1, 2, 2, 4), delta_operations_of(1, 4, 1, 8, 8, 4)
# The state at the end is written, too, and so is the gradient of the one at the start.
EXAMPLES = {
    LESSON: {
        "forward": dict(bytes_read=4 * (3 * 8 + 4), bytes_written=4 * (8 + 4), operations=_EXAMPLE),
        "backward": dict(bytes_read=4 * (4 * 8 + 4), bytes_written=4 * (3 * 8 + 4 + 4), operations=5 * _EXAMPLE // 2),
    },
    # Backward one kernel writes its part of the keys' gradient, which another one reads again.
    FAST: {
        "forward": dict(bytes_read=2 * 3 * 32 + 4 * 4, bytes_written=2 * 32 + 4 * 64, operations=_FAST),
        "backward": dict(
            bytes_read=2 * 4 * 32 + 4 * 4, bytes_written=2 * 2 * 32 + 4 * 4 + 4 * 64, operations=5 * _FAST // 2
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
    peers={"fla": fla},
    # Apart, because fla refuses its backward pass on triton 3.6, and would be left out of both.
    variants={"": {}, "backward": dict(passes=["backward"], differentiable=["q", "k", "v", "g", "beta"])},
)
